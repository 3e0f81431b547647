/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Who may reach whom: processes of one user, on one device name, in one network namespace. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "pair.h"

enum stranger { OTHER_USER, OTHER_NAMESPACE, OTHER_DEVICE, FRIEND };

/* Tries one SEND to the other side and says what became of it. */
static void reach(int sock, void *arg)
{
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 1, .timeout = 10 };
	enum ibv_wc_status status;
	struct address mine, theirs;
	struct end e;

	switch (*(enum stranger *)arg) {
	case OTHER_USER:
		check_sys(setgid(65534) == 0 && setuid(65534) == 0);
		check_sys(prctl(PR_SET_DUMPABLE, 1) == 0);
		break;
	case OTHER_NAMESPACE:
		check_sys(unshare(CLONE_NEWNET) == 0);
		break;
	case OTHER_DEVICE:
		setenv("UNPIN_DEVICE", "elsewhere", 1);
		break;
	default:
		break;
	}
	end_open(&e, &opt);
	mine = end_address(&e);
	tell(sock, &mine, sizeof(mine));
	hear(sock, &theirs, sizeof(theirs));
	end_connect(&e, &theirs);
	meet(sock);
	post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	status = wait_any(&e).status;
	tell(sock, &status, sizeof(status));
	end_close(&e);
}

static void check_reach(enum stranger who, enum ibv_wc_status want)
{
	struct peer peer;
	struct address mine, theirs;
	enum ibv_wc_status status;
	struct ibv_wc wc;
	struct end e;

	if (geteuid() && (who == OTHER_USER || who == OTHER_NAMESPACE))
		check_skip("needs root");
	peer = peer_start(reach, &who);
	end_open(&e, NULL);
	post_recv(&e, NULL, NULL, 0);
	mine = end_address(&e);
	hear(peer.sock, &theirs, sizeof(theirs));
	tell(peer.sock, &mine, sizeof(mine));
	end_connect(&e, &theirs);
	meet(peer.sock);
	hear(peer.sock, &status, sizeof(status));
	if (status != want)
		check_failed(
			__FILE__, __LINE__, "%s, not %s", ibv_wc_status_str(status), ibv_wc_status_str(want));
	check_int(poll_for(&e, &wc, want == IBV_WC_SUCCESS ? 1000 : 50), want == IBV_WC_SUCCESS);
	peer_done(&peer);
	end_close(&e);
}

static void a_process_of_the_same_user_reaches_it(void)
{
	check_reach(FRIEND, IBV_WC_SUCCESS);
}

static void another_user_does_not(void)
{
	check_reach(OTHER_USER, IBV_WC_RETRY_EXC_ERR);
}

static void another_network_namespace_does_not(void)
{
	check_reach(OTHER_NAMESPACE, IBV_WC_RETRY_EXC_ERR);
}

static void another_device_does_not(void)
{
	check_reach(OTHER_DEVICE, IBV_WC_RETRY_EXC_ERR);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_process_of_the_same_user_reaches_it),
		CASE(another_user_does_not),
		CASE(another_network_namespace_does_not),
		CASE(another_device_does_not),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
