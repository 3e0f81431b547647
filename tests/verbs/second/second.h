/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the stand-in for a real libibverbs tells the test about the calls that reached it. */
#ifndef UNPIN_TESTS_VERBS_SECOND_H
#define UNPIN_TESTS_VERBS_SECOND_H

#define SECOND_NAME   "second0"
#define SECOND_RESULT 0x5a
#define SECOND_ARGS   6

struct second_log {
	int calls;	  /* since the test set it to 0 */
	const char *name; /* of the last one */
	long arg[SECOND_ARGS];
	int listed, freed; /* device lists given out and taken back */
	int wrong_free;	   /* lists taken back that were not given out here */
	int locked_calls;  /* calls that came in while the device list was locked */
};

typedef struct second_log *second_log_fn(void); /* exported as "second_log" */

#endif
