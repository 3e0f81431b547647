/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Reading recorded machines, which are untrusted; whole machines and their reports are in tests/doctor/. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/command.h"
#include "tool/doctor.h"

static char root[64];
static struct doctor d;

static int make_root(void **state)
{
	strcpy(root, "/tmp/doctor_test_XXXXXX");
	if (!mkdtemp(root))
		return -1;
	memset(&d, 0, sizeof(d));
	d.root = root;
	d.root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return d.root_fd < 0;
}

static int drop_root(void **state)
{
	char command[128];

	close(d.root_fd);
	free(d.config);
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

/* Makes a file, and the folders on its way. */
static void put(const char *path, const void *data, size_t length)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, length, f), length);
	fclose(f);
}

static void put_text(const char *path, const char *text)
{
	put(path, text, strlen(text));
}

static void link_to(const char *path, const char *target)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	assert_int_equal(symlink(target, full), 0);
}

/* Runs the command on root; what it prints is counted, and its status returned. */
static int run(bool json, long *printed)
{
	char name[] = "doctor", option[] = "--root", flag[] = "--json";
	char *argv[] = { name, option, root, json ? flag : NULL, NULL };
	int out = dup(STDOUT_FILENO), fd = memfd_create("out", MFD_CLOEXEC), status;

	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	status = cmd_doctor(json ? 4 : 3, argv);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	*printed = (long)lseek(fd, 0, SEEK_CUR);
	close(out);
	close(fd);
	return status;
}

static void the_first_line_comes_without_blanks(void **state)
{
	char line[8];

	put_text("/a/b", "  x16 \t\nmore\n");
	assert_true(doctor_line(&d, line, sizeof(line), "/a/%s", "b"));
	assert_string_equal(line, "x16");
	put_text("/long", "0123456789\n");
	assert_true(doctor_line(&d, line, sizeof(line), "/long"));
	assert_string_equal(line, "0123456");
	put_text("/empty", "\n");
	assert_false(doctor_line(&d, line, sizeof(line), "/empty"));
	assert_false(doctor_line(&d, line, sizeof(line), "/none"));
	assert_string_equal(line, "");
}

static void a_number_is_decimal_or_hexadecimal_and_a_word_is_none(void **state)
{
	uint64_t v = 0;

	put_text("/vendor", "0x15b3\n");
	put_text("/width", "16\n");
	put_text("/limit", "max\n");
	assert_true(doctor_number(&d, &v, "/vendor"));
	assert_int_equal(v, 0x15b3);
	assert_true(doctor_number(&d, &v, "/width"));
	assert_int_equal(v, 16);
	assert_false(doctor_number(&d, &v, "/limit"));
	assert_false(doctor_number(&d, &v, "/none"));
	assert_int_equal(v, 16);
}

static void a_link_does_not_lead_out_of_the_record(void **state)
{
	char line[64];

	put_text("/proc/version", "inside\n");
	link_to("/absolute", "/proc/version");
	link_to("/upwards", "../../../../../../../../proc/version");
	/* Both would be the machine's own file, if root were not the end of the way up. */
	assert_true(doctor_line(&d, line, sizeof(line), "/absolute"));
	assert_string_equal(line, "inside");
	assert_true(doctor_line(&d, line, sizeof(line), "/upwards"));
	assert_string_equal(line, "inside");
	assert_false(doctor_exists(&d, "/etc/passwd"));
	assert_false(doctor_exists(&d, "/../../etc/passwd"));
}

static void a_fifo_in_a_record_does_not_hold_the_doctor_up(void **state)
{
	char full[512], line[8];

	snprintf(full, sizeof(full), "%s/fifo", root);
	assert_int_equal(mkfifo(full, 0644), 0);
	assert_false(doctor_line(&d, line, sizeof(line), "/fifo"));
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
	char *text;

	put_text("/log", "a\033[2Jb\rc\x7f\td\n");
	text = doctor_read(&d, "/log");
	assert_string_equal(text, "a?[2Jb?c?\td\n");
	free(text);
}

static void names_come_sorted_and_without_hidden_ones(void **state)
{
	char **names;

	put_text("/dir/b", "");
	put_text("/dir/a", "");
	put_text("/dir/.c", "");
	names = doctor_names(&d, "/dir");
	assert_string_equal(names[0], "a");
	assert_string_equal(names[1], "b");
	assert_null(names[2]);
	doctor_names_free(names);
	assert_null(doctor_names(&d, "/none"));
}

static void a_setting_of_the_kernel_is_found_by_its_whole_name(void **state)
{
	const char *source;
	char value[16];

	put_text("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
	put_text("/boot/config-6.1.0-9-amd64",
		"# CONFIG_INFINIBAND_X is not set\nCONFIG_INFINIBAND_USER=y\nCONFIG_INFINIBAND=m\n");
	assert_true(doctor_config(&d, "INFINIBAND", value, sizeof(value), &source));
	assert_string_equal(value, "m");
	assert_string_equal(source, "/boot/config-*");
	assert_true(doctor_config(&d, "INFINIBAND_X", value, sizeof(value), NULL));
	assert_string_equal(value, "n");
	assert_true(doctor_config(&d, "FINIBAND", value, sizeof(value), NULL));
	assert_string_equal(value, "n");
	assert_int_equal(doctor_kernel_version(&d, NULL, 0), 6001);
}

static void without_a_configuration_nothing_is_claimed(void **state)
{
	char value[16];

	assert_false(doctor_config(&d, "INFINIBAND", value, sizeof(value), NULL));
	assert_int_equal(doctor_kernel_version(&d, NULL, 0), 0);
}

static void a_damaged_packed_configuration_is_none(void **state)
{
	char value[16];

	put("/proc/config.gz", "\x1f\x8b\x08 not gzip at all", 20);
	assert_false(doctor_config(&d, "INFINIBAND", value, sizeof(value), NULL));
}

static void a_field_is_that_of_its_line_in_bytes(void **state)
{
	const char *text = "SwapTotal2:  1 kB\nSwapTotal:       8 kB\n";

	assert_int_equal(doctor_field(text, "SwapTotal"), 8192);
	assert_true(doctor_field(text, "MemTotal") == UINT64_MAX);
	assert_true(doctor_field("", "MemTotal") == UINT64_MAX);
}

/* What a check finds in the record. */
static void look(const struct doctor_group *g, const char *id, struct doctor_result *r)
{
	*r = (struct doctor_result){ .verdict = DOCTOR_NA };
	for (size_t i = 0; i < g->count; i++)
		if (strcmp(g->checks[i].id, id) == 0)
			g->checks[i].run(&d, r);
	assert_non_null(r->seen);
}

static void drop(struct doctor_result *r)
{
	free(r->seen);
	free(r->meaning);
	free(r->advice);
}

static void an_atomic_write_is_not_taken_for_atomics(void **state)
{
	put_text("/sys/class/infiniband/rxe0/node_desc", "rxe\n");
	put_text("/verbs/ibv_devinfo", "hca_id:\trxe0\n\tgeneral_odp_caps:\n\t\tODP_SUPPORT\n\trc_odp_caps:\n"
				       "\t\tSUPPORT_SRQ\n\t\tSUPPORT_ATOMIC_WRITE\n\tud_odp_caps:\n"
				       "\t\tSUPPORT_ATOMIC\n");
	doctor_find(&d);
	assert_true(d.device.caps_known);
	assert_int_equal(d.device.general, IBV_ODP_SUPPORT);
	assert_int_equal(d.device.says[DOCTOR_RC], IBV_ODP_SUPPORT_SRQ_RECV);
	assert_int_equal(d.device.says[DOCTOR_UD], IBV_ODP_SUPPORT_ATOMIC);
	doctor_find_close(&d);
}

static void a_card_whose_number_is_not_known_is_told_by_its_driver(void **state)
{
	put_text("/sys/class/infiniband/mlx4_0/device/device", "0x4242\n");
	put_text("/sys/class/infiniband/mlx4_0/device/uevent", "DRIVER=mlx4_core\n");
	doctor_find(&d);
	assert_int_equal(d.device.kind, DOCTOR_KIND_MLX4);
	doctor_find_close(&d);
}

static void only_host_memory_counts_as_ordinary_memory_of_ucx(void **state)
{
	struct doctor_result r;

	put_text("/environ", "UCX_REG_NONBLOCK_MEM_TYPES=ze-host,cuda\n");
	look(&doctor_manners_group, "manners.ucx", &r);
	assert_int_equal(r.verdict, DOCTOR_WARN);
	assert_non_null(strstr(r.seen, "leaves out host"));
	drop(&r);
	put_text("/environ", "UCX_REG_NONBLOCK_MEM_TYPES=cuda,host\n");
	look(&doctor_manners_group, "manners.ucx", &r);
	assert_int_equal(r.verdict, DOCTOR_OK);
	drop(&r);
}

/* What a check finds with these variables set. */
static void assert_manners(const char *id, const char *variables, enum doctor_verdict want, const char *word)
{
	struct doctor_result r;

	put_text("/environ", variables);
	look(&doctor_manners_group, id, &r);
	if (r.verdict != want || !strstr(r.seen, word))
		fail_msg("%s of %s: verdict %d: %s", id, variables, (int)r.verdict, r.seen);
	drop(&r);
}

static void a_value_that_cannot_work_is_worth_a_warning(void **state)
{
	assert_manners("manners.unpin", "UNPIN_LOSS=3\n", DOCTOR_WARN, "UNPIN_LOSS=3");
	assert_manners("manners.unpin", "UNPIN_LOSS=0.3\n", DOCTOR_OK, "UNPIN_LOSS=0.3");
	assert_manners("manners.unpin", "UNPIN_FAULT_MODE=sloppy\n", DOCTOR_WARN, "sloppy");
	assert_manners(
		"manners.unpin", "UNPIN_DISABLE=io_uring,foo\n", DOCTOR_WARN, "foo, which is no facility");
	assert_manners("manners.unpin", "UNPIN_DISABLE=io_uring,psi\n", DOCTOR_OK, "io_uring,psi");
	assert_manners("manners.unpin", "UNPIN_LOG=loud\n", DOCTOR_WARN, "UNPIN_LOG=loud");
	assert_manners("manners.unpin", "UNPIN_LOG=debug\n", DOCTOR_OK, "");
	assert_manners("manners.libfabric", "FI_VERBS_USE_ODP=maybe\n", DOCTOR_WARN, "no boolean");
	assert_manners("manners.libfabric", "FI_VERBS_USE_ODP=Yes\n", DOCTOR_OK, "FI_VERBS_USE_ODP=Yes");
	assert_manners("manners.fork", "RDMA_FORK_SAFE=1\n", DOCTOR_WARN, "RDMAV_FORK_SAFE");
	assert_manners("manners.fork", "RDMAV_FORK_SAFE=1\n", DOCTOR_UNKNOWN, "kernel");
}

static void queue_pairs_past_the_kernel_are_worth_a_warning_on_a_card_with_the_old_scheme(void **state)
{
	static const char both[] = "UCX_REG_NONBLOCK_MEM_TYPES=host\nUCX_IB_MLX5_DEVX_OBJECTS=rcqp,rcsrq\n";

	put_text("/sys/class/infiniband/mlx5_0/device/device", "0x1017\n");
	put_text("/proc/sys/kernel/osrelease", "6.18.0\n");
	doctor_find(&d);
	assert_manners("manners.ucx", both, DOCTOR_WARN, "rcqp");
	assert_manners("manners.ucx", "UCX_REG_NONBLOCK_MEM_TYPES=host\nUCX_IB_MLX5_DEVX_OBJECTS=rcsrq\n",
		DOCTOR_OK, "rcsrq");
	assert_manners("manners.ucx", "UCX_IB_MLX5_DEVX_OBJECTS=rcqp\n", DOCTOR_OK, "rcqp");
	d.device.id = 0x1021;
	assert_manners("manners.ucx", both, DOCTOR_OK, "rcqp");
	put_text("/proc/sys/kernel/osrelease", "6.1.0\n");
	assert_manners("manners.ucx", both, DOCTOR_WARN, "rcqp");
	doctor_find_close(&d);
}

static void a_record_of_ibv_devinfo_alone_names_the_device(void **state)
{
	put_text("/verbs/ibv_devinfo",
		"hca_id:\trxe0\n\tfw_ver:\t\t\t0.0.0\n\tvendor_id:\t\t\t0xffffff\n\tphys_port_cnt:\t1\n"
		"\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
		"hca_id:\tmlx5_1\n\tvendor_id:\t0x02c9\n\tvendor_part_id:\t4119\n");
	doctor_find(&d);
	assert_true(d.device.found);
	assert_string_equal(d.device.name, "rxe0");
	assert_int_equal(d.device.count, 2);
	assert_true(d.device.port_active);
	assert_string_equal(d.device.firmware, "0.0.0");
	assert_false(d.device.caps_known);
	assert_int_equal(d.device.id, 0);
	doctor_find_close(&d);
	d.wanted = "mlx5_1";
	memset(&d.device, 0, sizeof(d.device));
	doctor_find(&d);
	assert_int_equal(d.device.kind, DOCTOR_KIND_MLX5);
	assert_int_equal(d.device.id, 4119);
	assert_false(d.device.port_active);
	doctor_find_close(&d);
}

static void ucx_that_may_pin_instead_is_told_until_it_may_not(void **state)
{
	static const char *const forbids[] = { "n", "no", "0", "off" };
	struct doctor_result r;
	char text[128];

	put_text("/environ", "UCX_REG_NONBLOCK_MEM_TYPES=host\nUCX_REG_NONBLOCK_FALLBACK=y\n");
	look(&doctor_manners_group, "manners.ucx", &r);
	assert_non_null(strstr(r.seen, "pins without a word"));
	drop(&r);
	for (size_t i = 0; i < sizeof(forbids) / sizeof(forbids[0]); i++) {
		snprintf(text, sizeof(text),
			"UCX_REG_NONBLOCK_FALLBACK=%s\nUCX_REG_NONBLOCK_MEM_TYPES=host\n", forbids[i]);
		put_text("/environ", text);
		look(&doctor_manners_group, "manners.ucx", &r);
		assert_null(strstr(r.seen, "pins without a word"));
		drop(&r);
	}
}

static void an_empty_record_is_not_usable_and_is_reported_whole(void **state)
{
	long printed;

	assert_int_equal(run(false, &printed), 1);
	assert_true(printed > 1000);
	assert_int_equal(run(true, &printed), 1);
	assert_true(printed > 1000);
}

/* Every file that is read, with the beginning that leads deeper into its reader. */
static const struct {
	const char *path, *begin;
} garbage_files[] = {
	{ "/sys/class/infiniband/mlx5_0/fw_ver", "12." },
	{ "/sys/class/infiniband/mlx5_0/node_desc", "" },
	{ "/sys/class/infiniband/mlx5_0/ports/1/state", "4:" },
	{ "/sys/class/infiniband/mlx5_0/device/device", "0x1013" },
	{ "/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=" },
	{ "/sys/class/infiniband/mlx5_0/device/resource", "0x0 0xffffff 0x20c\n" },
	{ "/sys/class/infiniband/mlx5_0/device/iommu_group/type", "" },
	{ "/sys/class/infiniband/mlx5_0/device/current_link_width", "1" },
	{ "/sys/class/infiniband/mlx5_0/device/max_link_width", "1" },
	{ "/sys/bus/pci/devices/0000:00:01.0/vendor", "0x15b3\n" },
	{ "/sys/bus/pci/devices/0000:00:01.0/class", "0x020000\n" },
	{ "/sys/bus/pci/devices/a name that is longer than an address/vendor", "0x15b3\n" },
	{ "/proc/cmdline", "" },
	{ "/proc/modules", "ib_core " },
	{ "/proc/meminfo", "SwapTotal:" },
	{ "/proc/swaps", "Filename\n/dev/zram0 partition " },
	{ "/proc/self/limits", "Max locked memory " },
	{ "/proc/self/cgroup", "0::/" },
	{ "/proc/self/status", "CapEff:" },
	{ "/proc/self/smaps", "KernelPageSize:" },
	{ "/proc/self/uid_map", "0 0 " },
	{ "/proc/1/cgroup", "" },
	{ "/proc/sys/kernel/osrelease", "" },
	{ "/proc/sys/vm/swappiness", "" },
	{ "/proc/sys/vm/max_map_count", "" },
	{ "/sys/kernel/mm/transparent_hugepage/enabled", "always [" },
	{ "/sys/kernel/mm/transparent_hugepage/defrag", "[" },
	{ "/verbs/ibv_devinfo", "hca_id:\tmlx5_0\n\tgeneral_odp_caps:\n\tODP_SUPPORT\n\trc_odp_caps:\n" },
	{ "/dmesg", "mlx5_core failed to assign" },
	{ "/environ", "UCX_IB_REG_METHODS=\nUNPIN_PROFIL=" },
};

static void a_record_of_garbage_does_no_harm(void **state)
{
	uint64_t dice = 1;
	char data[4096];
	long printed;

	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < sizeof(garbage_files) / sizeof(garbage_files[0]); i++) {
			size_t n = strlen(garbage_files[i].begin), length = n + (size_t)(dice >> 40) % 2000;

			memcpy(data, garbage_files[i].begin, n);
			for (size_t k = n; k < length; k++) {
				dice = dice * 6364136223846793005ull + 1442695040888963407ull;
				/* Mostly digits, letters and what separates them, so that lines and fields
				 * are there. */
				data[k] = dice >> 62 ? "0123456789abcxf:,/= \n\t[]-"[(dice >> 33) % 25]
						     : (char)(dice >> 50);
			}
			put(garbage_files[i].path, data, length);
		}
		assert_in_range(run(round % 2, &printed), 0, 1);
		assert_true(printed > 1000);
	}
}

/* From here on mlock(2) is refused in this process, as in a container whose limits promise more than its host
 * gives. */
static bool refuse_mlock(void)
{
	struct sock_filter rows[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlock, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(rows) / sizeof(rows[0]), .filter = rows };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static const struct doctor_check *memlock_check(void)
{
	for (size_t i = 0; i < doctor_memory_group.count; i++)
		if (strcmp(doctor_memory_group.checks[i].id, "memory.memlock") == 0)
			return &doctor_memory_group.checks[i];
	return NULL;
}

#define SKIP_STATUS 77

/* The verdict of a process in which locking works, or not; SKIP_STATUS where locking cannot be refused. */
static int memlock_verdict(bool refused)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct doctor live = { .root_fd = -1 };
		struct doctor_result r = { .verdict = DOCTOR_NA };

		/* The runtimes of the sanitizers make mlock(3) a function that does nothing. */
		if (refused && (!refuse_mlock() || mlock(root, 1) == 0))
			_exit(SKIP_STATUS);
		memlock_check()->run(&live, &r);
		_exit((int)r.verdict);
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_limit_that_is_not_kept_is_found_by_trying(void **state)
{
	int refused = memlock_verdict(true);

	assert_int_not_equal(memlock_verdict(false), DOCTOR_FAIL);
	if (refused == SKIP_STATUS) {
		print_message("mlock cannot be refused here: no seccomp filter, or a sanitizer stands in "
			      "front of it\n");
		skip();
	}
	assert_int_equal(refused, DOCTOR_FAIL);
}

static void wrong_words_on_the_command_line_are_refused(void **state)
{
	char name[] = "doctor", word[] = "unpin0", option[] = "--root", nowhere[] = "/nonexistent",
	     colour[] = "--color=sometimes", device[] = "-d", slashes[] = "../x";
	char *one[] = { name, word, NULL }, *two[] = { name, option, nowhere, NULL },
	     *three[] = { name, colour, NULL }, *four[] = { name, device, slashes, NULL };

	assert_int_equal(cmd_doctor(2, one), EXIT_USAGE);
	assert_int_equal(cmd_doctor(3, two), EXIT_USAGE);
	assert_int_equal(cmd_doctor(2, three), EXIT_USAGE);
	assert_int_equal(cmd_doctor(3, four), EXIT_USAGE);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_root, drop_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_first_line_comes_without_blanks),
		T(a_number_is_decimal_or_hexadecimal_and_a_word_is_none),
		T(a_link_does_not_lead_out_of_the_record),
		T(a_fifo_in_a_record_does_not_hold_the_doctor_up),
		T(control_characters_do_not_reach_the_terminal),
		T(names_come_sorted_and_without_hidden_ones),
		T(a_setting_of_the_kernel_is_found_by_its_whole_name),
		T(without_a_configuration_nothing_is_claimed),
		T(a_damaged_packed_configuration_is_none),
		T(a_field_is_that_of_its_line_in_bytes),
		T(an_atomic_write_is_not_taken_for_atomics),
		T(a_card_whose_number_is_not_known_is_told_by_its_driver),
		T(only_host_memory_counts_as_ordinary_memory_of_ucx),
		T(a_value_that_cannot_work_is_worth_a_warning),
		T(queue_pairs_past_the_kernel_are_worth_a_warning_on_a_card_with_the_old_scheme),
		T(a_record_of_ibv_devinfo_alone_names_the_device),
		T(ucx_that_may_pin_instead_is_told_until_it_may_not),
		T(an_empty_record_is_not_usable_and_is_reported_whole),
		T(a_record_of_garbage_does_no_harm),
		T(a_limit_that_is_not_kept_is_found_by_trying),
		T(wrong_words_on_the_command_line_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
