#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck disable=SC2016 # the inner shells expand
# usage: run_test.sh UNPIN MARKER-LIBRARY PROGRAM STATIC-PROGRAM|"" ASAN-PROGRAM|""
#
# `unpin run` from outside: what a person who types it sees. A marker library stands in for the device.

unpin=$(realpath "$1")
marker=$(realpath "$2")
program=$(realpath "$3")
static=${4:+$(realpath "$4")}
asan=${5:+$(realpath "$5")}
unset LD_PRELOAD UNPIN_TEST_MARK
for variable in $(env | sed -n 's/^\(UNPIN_[A-Z_]*\)=.*/\1/p'); do unset "$variable"; done
export UNPIN_LIBRARY="$marker"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

ok() {
	printf '[       OK ] %s\n' "$1"
}
bad() {
	printf '[  FAILED  ] %s\n' "$1" >&2
	printf '  %s\n' "$2" >&2
	[ ! -s "$dir/err" ] || sed 's/^/  | /' "$dir/err" >&2
	failed=1
}
skipped() {
	printf '[  SKIPPED ] %s\n' "$1"
}
# check NAME STATUS COMMAND...: the command ends with the status.
check() {
	name=$1 want=$2
	shift 2
	"$@" >"$dir/out" 2>"$dir/err"
	got=$?
	if [ "$got" -eq "$want" ]; then ok "$name"; else bad "$name" "status $got, not $want: $*"; fi
}
# refused NAME STATUS WORD COMMAND...: it ends with the status and its message has the word.
refused() {
	name=$1 want=$2 word=$3
	shift 3
	"$@" >"$dir/out" 2>"$dir/err"
	got=$?
	if [ "$got" -ne "$want" ]; then
		bad "$name" "status $got, not $want: $*"
	elif ! grep -q -- "$word" "$dir/err"; then
		bad "$name" "the message does not say '$word'"
	else
		ok "$name"
	fi
}
# prints NAME PATTERN COMMAND...: it succeeds and its output has the pattern.
prints() {
	name=$1 pattern=$2
	shift 2
	if ! "$@" >"$dir/out" 2>"$dir/err"; then
		bad "$name" "failed: $*"
	elif ! grep -q -- "$pattern" "$dir/out"; then
		bad "$name" "no '$pattern' in: $(cat "$dir/out")"
	else
		ok "$name"
	fi
}

check the_library_is_loaded_into_the_program 0 "$unpin" run -- "$program"
check the_separator_is_optional 0 "$unpin" run "$program"
check a_program_that_is_run_without_is_not_changed 1 "$program"
check the_exit_status_is_the_programs 37 "$unpin" run -- sh -c 'exit 37'
check a_program_is_looked_up_on_path 0 env PATH="$(dirname "$program"):$PATH" "$unpin" run -- "$(basename "$program")"

# A shell tells a signal by a status above 128.
check a_signal_that_ends_the_program_is_seen 143 sh -c '"$0" run -- sh -c "kill -TERM \$\$"; exit $?' "$unpin"
check children_inherit_the_library 0 "$unpin" run -- sh -c '"$0"; exit $?' "$program"

refused a_missing_program_is_127 127 'no such program' "$unpin" run -- no-such-program-here
refused a_program_that_cannot_be_executed_is_126 126 'not allowed' "$unpin" run -- /etc/passwd
refused a_directory_is_126 126 directory "$unpin" run -- /tmp

printf '#!/bin/sh\n"%s"\n' "$program" >"$dir/script"
printf '"%s"\n' "$program" >"$dir/text"
chmod +x "$dir/script" "$dir/text"
check a_script_is_run 0 "$unpin" run -- "$dir/script"
check a_script_without_an_interpreter_line_is_run 0 "$unpin" run -- "$dir/text"
printf '#!/no/such/interpreter\n' >"$dir/lost"
chmod +x "$dir/lost"
refused a_script_whose_interpreter_is_missing_is_127 127 /no/such/interpreter "$unpin" run -- "$dir/lost"

if [ -n "$static" ]; then
	refused a_static_program_is_refused 126 'statically linked' "$unpin" run -- "$static"
	printf '#!%s\n' "$static" >"$dir/static-script"
	chmod +x "$dir/static-script"
	refused a_script_for_a_static_interpreter_is_refused 126 'statically linked' "$unpin" run -- "$dir/static-script"
else
	skipped a_static_program_is_refused
fi
if [ "$(id -u)" -eq 0 ]; then
	cp "$program" "$dir/setuid"
	chown 65534 "$dir/setuid"
	chmod 4755 "$dir/setuid"
	refused a_setuid_program_is_refused 126 set-user-ID "$unpin" run -- "$dir/setuid"
else
	skipped a_setuid_program_is_refused
fi
if [ -n "$asan" ]; then
	check a_sanitized_program_starts_with_its_runtime_first 0 "$unpin" run -- "$asan"
else
	skipped a_sanitized_program_starts_with_its_runtime_first
fi

prints what_was_preloaded_before_stays 'LD_PRELOAD=.*libc\.so\.6' env LD_PRELOAD=libc.so.6 "$unpin" run --print-env
prints the_library_is_named_by_its_absolute_path "LD_PRELOAD='\\(/\$LIB[./]*\\)\\?$marker'" "$unpin" run --print-env
if command -v musl-gcc >/dev/null; then
	printf 'int main(void) { return 7; }\n' >"$dir/musl.c"
	musl-gcc -o "$dir/musl" "$dir/musl.c"
	check a_program_of_musl_runs_below_one_of_glibc 7 "$unpin" run -- sh -c "$dir/musl"
	refused a_program_of_musl_is_named 126 musl "$unpin" run -- "$dir/musl"
else
	skipped 'a_program_of_musl_runs_below_one_of_glibc: there is no musl-gcc'
fi
prints options_become_variables "UNPIN_DEVICE='mine'" "$unpin" run --device mine --print-env
prints the_device_of_the_environment_is_kept theirs env UNPIN_DEVICE=theirs "$unpin" run -- printenv UNPIN_DEVICE
prints facilities_are_passed_on "UNPIN_DISABLE='io_uring,populate'" "$unpin" run --disable io_uring,populate --print-env
prints nccl_is_told_where_the_library_is "NCCL_IBVERBS_LIB='$marker'" "$unpin" run --nccl --print-env
prints a_log_level_is_passed_on debug "$unpin" run --log=debug -- printenv UNPIN_LOG
refused an_unknown_facility_is_refused 125 'did you mean io_uring' "$unpin" run --disable iouring -- true
refused an_empty_facility_is_refused 125 'no facility' "$unpin" run --disable io_uring,,populate -- true
refused an_impossible_device_name_is_refused 125 letters "$unpin" run --device 'a b' -- true
refused a_device_name_that_is_too_long_is_refused 125 letters "$unpin" run -d aaaaaaaaaabbbbbbbbbbccccccccccdd -- true
refused an_unknown_log_level_is_refused 125 'not one of' "$unpin" run --log loud -- true
refused an_unknown_option_is_refused 125 'did you mean --device' "$unpin" run --devise x -- true
refused a_wrong_log_level_of_the_environment_is_named 0 'not one of' env UNPIN_LOG=foo "$unpin" run -- true
refused run_needs_a_program 125 'which program' "$unpin" run
refused a_library_that_is_not_there_is_named 125 /no/such env UNPIN_LIBRARY=/no/such/libunpin.so "$unpin" run -- true
refused a_library_that_is_another_one_is_refused 125 'not unpin' env UNPIN_LIBRARY="$program" "$unpin" run -- true
cp "$marker" "$dir/a library.so"
refused a_library_whose_path_has_a_blank_is_refused 125 blank env UNPIN_LIBRARY="$dir/a library.so" "$unpin" run -- true

prints settings_become_variables "UNPIN_FAULT_REPLY='rnr'" "$unpin" run --fault-reply rnr --print-env
prints a_switch_takes_no_argument 0 "$unpin" run --no-implicit -- printenv UNPIN_IMPLICIT
prints settings_of_the_environment_are_printed "UNPIN_SEED='7'" env UNPIN_SEED=7 "$unpin" run --print-env
refused a_wrong_choice_is_refused_with_the_right_ones 125 'one of .*mlx5' "$unpin" run --profile mlx6 -- true
refused a_time_without_a_unit_is_refused 125 'delay.*unit' "$unpin" run --delay 5 -- true
refused a_wrong_setting_of_the_environment_is_refused 125 UNPIN_LOSS env UNPIN_LOSS=most "$unpin" run -- true
refused a_timeline_in_no_directory_is_refused 125 'directory must exist' "$unpin" run --trace /no/such/f -- true
refused a_timeline_over_a_directory_is_refused 125 'regular file' "$unpin" run --trace / -- true
prints a_timeline_has_an_absolute_path "^$dir/f\$" sh -c 'cd "$1" && "$0" run --trace f -- printenv UNPIN_TRACE' "$unpin" "$dir"
# A disk without room: whatever a command says, it says that it was lost.
if [ -w /dev/full ]; then
	for command in --help --version 'run --help' 'run --print-env' stat 'stat --json' 'doctor --json' 'advise --help' \
		'bench --help' 'top --help' 'trace --help'; do
		# shellcheck disable=SC2086 # words of a command line
		refused "output_that_is_lost_is_reported: $command" "$([ "$command" = 'run --print-env' ] && echo 125 || echo 1)" \
			'cannot write the output: No space left' sh -c '"$0" "$@" >/dev/full' "$unpin" $command
	done
else
	skipped 'output_that_is_lost_is_reported: there is no /dev/full'
fi
if command -v ibv_srq_pingpong >/dev/null; then
	refused a_verb_that_is_refused_is_named 1 'ibv_create_srq is refused' \
		env -u UNPIN_LIBRARY UNPIN_DEVICE="rt$$" "$unpin" run --log info -- ibv_srq_pingpong -d "rt$$"
else
	skipped 'a_verb_that_is_refused_is_named: ibv_srq_pingpong is not installed'
fi
prints help_groups_the_options 'Page faults:' "$unpin" run --help
prints help_fits_80_columns '^0$' sh -c '"$0" run --help | grep -c "^.\{81\}" || true' "$unpin"

prints rdma_lists_the_device '"ifname":"unpin0","port":1,"state":"ACTIVE"' "$unpin" run -- rdma link show -j
prints rdma_lists_the_device_for_people 'link mine/1 state ACTIVE' "$unpin" run --device mine -- rdma link
prints rdma_keeps_the_rows_of_the_systems_own '\[{"ifname":"mlx5_0"},{"ifname":"unpin0"' \
	env PATH="$dir/fake:$PATH" sh -c 'mkdir -p "$2/fake"
		printf "#!/bin/sh\necho \"[{\\\"ifname\\\":\\\"mlx5_0\\\"}]\"\n" >"$2/fake/rdma"; chmod +x "$2/fake/rdma"
		exec "$1" run -- rdma link show -j' - "$unpin" "$dir"
prints nested_runs_add_nothing 1 "$unpin" run -- "$unpin" run -- sh -c 'echo "$LD_PRELOAD" | tr ":" "\n" | grep -c .'

prints help_is_printed 'Usage: unpin run' "$unpin" run --help
prints the_version_is_printed '^unpin [0-9]' "$unpin" --version
refused an_unknown_command_is_refused_with_a_suggestion 2 "did you mean 'run'" "$unpin" rnu
refused no_command_is_refused 2 Usage "$unpin"
refused stat_of_no_number_is_refused 2 'not the number' "$unpin" stat abc
refused stat_of_a_process_without_a_device_says_so 1 'no unpin device open' "$unpin" stat $$
refused stat_of_no_process_says_so 1 'no such process' "$unpin" stat 1073741823
refused stat_of_two_processes_is_refused 2 'one process at a time' "$unpin" stat 1 2

exit $failed
