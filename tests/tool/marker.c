/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A library that shows that it has been loaded: the tests of `unpin run` preload it in place of the device.
 */
#include <stdlib.h>

__attribute__((constructor)) static void leave_mark(void)
{
	setenv("UNPIN_TEST_MARK", "loaded", 1);
}
