/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a person can set of the device: one row each, for the environment variable that the library reads and
 * for the option of `unpin run` that sets it. The library, the tool, its help and the man page all follow
 * this table.
 *
 * A value is a 64-bit number: the index of a choice, nanoseconds, parts per million, a count, or 0 and 1.
 * TEXT settings keep the string of the environment.
 */
#ifndef UNPIN_BASE_SETTING_H
#define UNPIN_BASE_SETTING_H

#include <stddef.h>
#include <stdint.h>

enum setting_kind {
	SETTING_CHOICE,	  /* one of choices, by name */
	SETTING_DURATION, /* a number and ns, us, ms or s; plain 0 */
	SETTING_SHARE,	  /* 0..1, or with % behind it 0..100: parts per million */
	SETTING_NUMBER,	  /* decimal, or 0x hexadecimal */
	SETTING_SWITCH, /* 0 or 1; the option takes no argument and sets the value that is not the default */
	SETTING_TEXT
};

/* X(id, variable, option, argument, kind, choices ("a|b|c"), least, most, default, help). For a choice, the
 * default is an index. */
#define SETTINGS(X)                                                                                          \
	X(PROFILE, "UNPIN_PROFILE", "profile", "NAME", CHOICE, "unpin|mlx5|rxe|none|stale-firmware", 0, 0,   \
		0, "capabilities and manners of another device")                                             \
	X(IMPLICIT, "UNPIN_IMPLICIT", "no-implicit", "", SWITCH, "", 0, 1, 1,                                \
		"do not offer implicit on-demand regions")                                                   \
	X(FAULT_MODE, "UNPIN_FAULT_MODE", "fault-mode", "MODE", CHOICE, "precise|imprecise", 0, 0, 0,        \
		"what a fault event names: address and length, or only region and queue pair")               \
	X(FAULT_REPLY, "UNPIN_FAULT_REPLY", "fault-reply", "REPLY", CHOICE, "park|rnr", 0, 0, 0,             \
		"hold a request that faults, or answer receiver-not-ready as hardware does")                 \
	X(FAULT_LATENCY, "UNPIN_FAULT_LATENCY", "fault-latency", "TIME", DURATION, "", 0, 10000000000u, 0,   \
		"the least time that a fault takes (220us is a ConnectX's)")                                 \
	X(NOTIFIER, "UNPIN_NOTIFIER", "notifier", "NAME", CHOICE, "interpose|userfaultfd|none", 0, 0, 0,     \
		"how the device learns that memory was unmapped")                                            \
	X(ENGINE_THREADS, "UNPIN_ENGINE_THREADS", "engine-threads", "N", NUMBER, "", 1, 16, 1,               \
		"threads that carry the work of programs that do not poll")                                  \
	X(DRIVER_THREADS, "UNPIN_DRIVER_THREADS", "driver-threads", "N", NUMBER, "", 1, 64, 16,              \
		"threads, at most, that resolve faults which may sleep")                                     \
	X(LOSS, "UNPIN_LOSS", "loss", "SHARE", SHARE, "", 0, 500000, 0, "lose this share of packets")        \
	X(REORDER, "UNPIN_REORDER", "reorder", "SHARE", SHARE, "", 0, 500000, 0,                             \
		"let others overtake this share of packets")                                                 \
	X(DELAY, "UNPIN_DELAY", "delay", "TIME", DURATION, "", 0, 1000000000u, 0, "delay every packet")      \
	X(SEED, "UNPIN_SEED", "seed", "N", NUMBER, "", 0, UINT64_MAX, 1, "of the impaired fabric's dice")    \
	X(STORM_MAJORS, "UNPIN_STORM_MAJORS", "storm-majors", "N", NUMBER, "", 0, 1000000000u, 2000,         \
		"major faults per second that make a storm; 0: never")                                       \
	X(STORM_STALL, "UNPIN_STORM_STALL", "storm-stall", "SHARE", SHARE, "", 0, 1000000, 200000,           \
		"share of time stalled for memory (PSI) that makes a storm; 0: never")                       \
	X(TRACE, "UNPIN_TRACE", "trace", "FILE", TEXT, "", 0, 0, 0,                                          \
		"write a timeline for Perfetto (Chrome trace format)")

enum setting_id {
#define X(id, ...) SETTING_##id##_ID,
	SETTINGS(X)
#undef X
		SETTING_COUNT
};

enum setting_profile { PROFILE_UNPIN, PROFILE_MLX5, PROFILE_RXE, PROFILE_NONE, PROFILE_STALE_FIRMWARE };
enum setting_fault_mode { FAULT_MODE_PRECISE, FAULT_MODE_IMPRECISE };
enum setting_fault_reply { FAULT_REPLY_PARK, FAULT_REPLY_RNR };
enum setting_notifier { NOTIFIER_INTERPOSE, NOTIFIER_USERFAULTFD, NOTIFIER_NONE };

struct setting {
	const char *variable, *option, *argument;
	enum setting_kind kind;
	const char *choices;
	uint64_t least, most, preset;
	const char *help;
};

extern const struct setting settings_table[SETTING_COUNT];

struct settings {
	uint64_t value[SETTING_COUNT];
	const char *text[SETTING_COUNT]; /* TEXT: as in the environment, or NULL */
};

#define SETTING_WHY 160

/*
 * Reads a value. 0, or -EINVAL with a sentence in why[] that says what is wrong and what would be right. An
 * empty text is wrong. Any thread.
 */
int setting_parse(const struct setting *s, const char *text, uint64_t *value, char why[SETTING_WHY]);
/* The choice's name. */
void setting_choice(const struct setting *s, uint64_t index, char *name, size_t size);
/* All from the environment; unset variables have their defaults. 0, or -EINVAL with why[] naming the
 * variable. */
int settings_load(struct settings *out, char why[SETTING_WHY]);

#endif
