/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The entry of the fuzzer of rdma netlink answers: fuzz_rdmanl.c. */
#ifndef UNPIN_TESTS_TOOL_FUZZ_RDMANL_H
#define UNPIN_TESTS_TOOL_FUZZ_RDMANL_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
