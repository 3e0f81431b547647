/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "made_segment.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct unpin_segment *made;
int made_fd;

int made_segment_open(void)
{
	made_fd = memfd_create(UNPIN_SEGMENT_NAME, MFD_CLOEXEC);
	if (made_fd < 0 || ftruncate(made_fd, sizeof(*made)))
		return -1;
	made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED, made_fd, 0);
	if (made == MAP_FAILED)
		return -1;
	made->version = UNPIN_SEGMENT_VERSION;
	made->header_bytes = offsetof(struct unpin_segment, region);
	made->total_bytes = sizeof(*made);
	made->region_bytes = sizeof(made->region[0]);
	made->region_rows = UNPIN_SEGMENT_REGIONS;
	made->pid = getpid();
	made->start_ns = 1;
	strcpy(made->device, "unpin0");
	made->magic = UNPIN_SEGMENT_MAGIC;
	return 0;
}

void made_segment_close(void)
{
	munmap(made, sizeof(*made));
	close(made_fd);
}
