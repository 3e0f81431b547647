/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Each profile's row by its effect; what a program sees of it is in tests/users/profiles.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u

static struct nic_caps caps_of(uint64_t profile, uint64_t implicit)
{
	struct settings set = { 0 };

	set.value[SETTING_PROFILE_ID] = profile;
	set.value[SETTING_IMPLICIT_ID] = implicit;
	return nic_caps_of(&set);
}

static void every_profile_promises_only_what_the_device_does(void **state)
{
	struct nic_caps all = caps_of(PROFILE_UNPIN, 1);

	(void)state;
	assert_int_equal(all.general, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_true(all.prefetch);
	assert_int_equal(0, all.no_on_demand | all.no_implicit | all.no_huge | all.no_zero_based);
	for (uint64_t i = PROFILE_UNPIN; i <= PROFILE_STALE_FIRMWARE; i++) {
		struct nic_caps c = caps_of(i, 1);

		assert_int_equal(0, c.general & ~all.general);
		assert_int_equal(0, c.rc & ~all.rc);
		assert_int_equal(0, c.ud & ~all.ud);
		/* The bit and the refusal are one thing. */
		assert_int_equal((c.general & IBV_ODP_SUPPORT) != 0, c.no_on_demand == 0);
		assert_int_equal((c.general & IBV_ODP_SUPPORT_IMPLICIT) != 0, c.no_implicit == 0);
		assert_int_equal((c.general & IBV_ODP_SUPPORT) != 0, c.rc != 0);
	}
}

static void implicit_regions_can_be_hidden(void **state)
{
	(void)state;
	for (uint64_t i = PROFILE_UNPIN; i <= PROFILE_STALE_FIRMWARE; i++) {
		struct nic_caps with = caps_of(i, 1), without = caps_of(i, 0);

		assert_int_equal(without.general, with.general & ~(uint64_t)IBV_ODP_SUPPORT_IMPLICIT);
		assert_int_equal(without.no_implicit, with.no_implicit ? with.no_implicit : EINVAL);
		assert_int_equal(without.rc, with.rc);
	}
}

static void registrations_follow_the_profile(void **state)
{
	static const struct {
		const char *profile, *implicit;
		int plain, on_demand, everywhere, zero_based;
		enum unpin_region_kind kind;
	} row[] = {
		{ "unpin", "1", 0, 0, 0, 0, UNPIN_REGION_ODP },
		{ "unpin", "0", 0, 0, -EINVAL, 0, UNPIN_REGION_ODP },
		{ "mlx5", "1", 0, 0, 0, 0, UNPIN_REGION_ODP },
		{ "rxe", "1", 0, 0, -EOPNOTSUPP, -EOPNOTSUPP, UNPIN_REGION_ODP },
		{ "none", "1", 0, -EOPNOTSUPP, -EOPNOTSUPP, -EOPNOTSUPP, UNPIN_REGION_NONE },
		{ "stale-firmware", "1", 0, 0, -EINVAL, 0, UNPIN_REGION_PINNED },
	};
	uint8_t *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		const int odp = IBV_ACCESS_ON_DEMAND;
		struct pair p;
		struct nic_mr *mr;

		setenv("UNPIN_PROFILE", row[i].profile, 1);
		setenv("UNPIN_IMPLICIT", row[i].implicit, 1);
		pair_open(&p, NULL);
		assert_string_equal(p.ctx->nic->seg->profile, row[i].profile);
#define REG(addr, len, access) nic_mr_create(p.pd, (uintptr_t)(addr), len, (uintptr_t)(addr), access, &mr)
#define EXPECT(want, call)                                                                                   \
	do {                                                                                                 \
		int got_ = (call);                                                                           \
		if (got_ != (want))                                                                          \
			fail_msg("%s: %s: %d", row[i].profile, #call, got_);                                 \
		if (!got_)                                                                                   \
			nic_mr_destroy(mr);                                                                  \
	} while (0)
		EXPECT(row[i].plain, REG(m, PAGE, 0));
		EXPECT(row[i].on_demand, REG(m, PAGE, odp));
		EXPECT(row[i].everywhere, REG(0, SIZE_MAX, odp));
		EXPECT(row[i].zero_based, REG(m, PAGE, odp | IBV_ACCESS_ZERO_BASED));
		if (!row[i].on_demand) {
			assert_int_equal(0, REG(m, PAGE, odp));
			assert_int_equal(row[i].kind, p.ctx->nic->seg->region[mr->row].kind);
			assert_int_equal(row[i].kind == UNPIN_REGION_PINNED ? PAGE : 0, pin_total());
			nic_mr_destroy(mr);
		}
		assert_int_equal(0, pin_total());
		pair_close(&p);
	}
	unsetenv("UNPIN_PROFILE");
	unsetenv("UNPIN_IMPLICIT");
	munmap(m, PAGE);
}

static void a_setting_that_cannot_be_read_opens_no_device(void **state)
{
	struct nic_context *ctx;
	struct pair p;

	(void)state;
	setenv("UNPIN_FAULT_REPLY", "whatever", 1);
	assert_int_equal(-EINVAL, nic_context_open(&ctx));
	unsetenv("UNPIN_FAULT_REPLY");
	pair_open(&p, NULL);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_profile_promises_only_what_the_device_does),
		cmocka_unit_test(implicit_regions_can_be_hidden),
		cmocka_unit_test(registrations_follow_the_profile),
		cmocka_unit_test(a_setting_that_cannot_be_read_opens_no_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
