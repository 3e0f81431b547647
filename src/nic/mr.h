/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions and the key table. lkey == rkey, made of the row and a count of the row's uses; the row that
 * has been free longest is used next, so that an old key fails for a long time (NIC_KEYS_REST in nic.h).
 */
#ifndef UNPIN_NIC_MR_H
#define UNPIN_NIC_MR_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "mm/safecopy.h"
#include "odp/space.h"

struct nic;
struct nic_pd;
struct nic_context;

struct nic_mr; /* opaque to verbs */

struct nic_mr_info {
	uint64_t addr, length, iova;
	uint32_t key;
	int access;
};

/*
 * Registers [addr, addr + length), any alignment, reachable by keys at iova. access as ibv_reg_mr(3):
 * IBV_ACCESS_ON_DEMAND records the range and nothing else; without it (or if the profile says so) the pages
 * are pinned. With ON_DEMAND, (0, SIZE_MAX) is an implicit region: all of the address space, as it is at any
 * time; iova must be 0.
 *
 * HUGETLB with ON_DEMAND: the whole range lies in hugetlb mappings now; without it the flag says nothing to
 * this device. ZERO_BASED sets iova to 0. MW_BIND is accepted and grants nothing, since there are no memory
 * windows.
 *
 * 0; -EINVAL: length 0, a range that wraps or leaves the address space, REMOTE_WRITE or REMOTE_ATOMIC without
 * LOCAL_WRITE, unknown access bits, HUGETLB over other memory or implicit, ZERO_BASED implicit; what the
 * profile refuses (caps.h); -EFAULT, -ENOMEM: as pin_create; -ENOMEM: no keys left.
 */
int nic_mr_create(
	struct nic_pd *pd, uint64_t addr, uint64_t length, uint64_t iova, int access, struct nic_mr **out);
/* Every form of ibv_rereg_mr(3): flags IBV_REREG_MR_CHANGE_*. The key changes with the translation only. On
 * failure -errno and *still_valid tells whether the old region stands (it does unless the error came after
 * the old one was given up, which this implementation avoids). */
int nic_mr_rereg(struct nic_mr *mr, int flags, struct nic_pd *pd, uint64_t addr, uint64_t length, int access,
	int *still_valid);
/* Parked operations on it fail at once; returns when no copy runs. Cannot fail. */
void nic_mr_destroy(struct nic_mr *mr);
void nic_mr_info(const struct nic_mr *mr, struct nic_mr_info *info);

/*
 * ibv_advise_mr(3) in domain pd, for n scatter/gather elements, of any on-demand regions. All of them are
 * checked before anything is done. With IBV_ADVISE_MR_FLAG_FLUSH it returns when all pages are valid, or at
 * the first element that cannot be; without it the work is handed on, and ends by itself when a region does.
 *
 * 0; -EINVAL: unknown advice or flags, no elements, a region of another domain; -ENOENT: no such key (also
 * when the region ends meanwhile); -EOPNOTSUPP: not an on-demand region, or the profile has no prefetch;
 * -EFAULT: outside the region; -EPERM: write advice on a region without a right to write. With FLUSH also
 * -EFAULT: unmapped, and -EPERM: the mapping does not allow the access; -ENOMEM.
 */
int nic_mr_advise(struct nic_pd *pd, unsigned advice, unsigned flags, const struct ibv_sge *sge, uint32_t n);

#endif
