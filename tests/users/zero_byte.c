/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Requests without bytes. Seen elsewhere: a zero-byte SEND was dropped (deepseek-ai/3FS#320). They complete,
 * and need no key or address. */
#include <arpa/inet.h>
#include <string.h>

#include "pair.h"

static void a_zero_byte_send_arrives(void)
{
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, NULL);
	post_recv(&p.b, NULL, NULL, 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	check_int(wait_for(&p.a, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
	wc = wait_for(&p.b, IBV_WC_SUCCESS);
	check_int(wc.opcode, IBV_WC_RECV);
	check_int(wc.byte_len, 0);
	pair_close(&p);
}

/* Nothing but an immediate is sent; what the responder's receive says. */
static struct ibv_wc send_immediate(enum ibv_wr_opcode op, uint32_t immediate)
{
	struct ibv_send_wr wr = { .opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(immediate) },
			   *bad;
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, NULL);
	post_recv(&p.b, NULL, NULL, 0);
	check_int(ibv_post_send(p.a.qp, &wr, &bad), 0);
	wait_for(&p.a, IBV_WC_SUCCESS);
	wc = wait_for(&p.b, IBV_WC_SUCCESS);
	pair_close(&p);
	check(wc.wc_flags & IBV_WC_WITH_IMM);
	check_int(ntohl(wc.imm_data), immediate);
	check_int(wc.byte_len, 0);
	return wc;
}

static void a_zero_byte_send_with_immediate_brings_the_immediate(void)
{
	check_int(send_immediate(IBV_WR_SEND_WITH_IMM, 0xdecaf).opcode, IBV_WC_RECV);
}

static void a_zero_byte_write_with_immediate_takes_a_receive(void)
{
	check_int(send_immediate(IBV_WR_RDMA_WRITE_WITH_IMM, 7).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

static void zero_byte_writes_and_reads_need_neither_key_nor_address(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 50; i++) {
		post(&p.a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, NULL, NULL, 0, (void *)0x12345,
			0x99);
		check_int(
			wait_for(&p.a, IBV_WC_SUCCESS).opcode, i % 2 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
	}
	pair_close(&p);
}

static void pieces_of_zero_length_count_for_nothing(void)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL | ODP);
	there = reg(&p.b, memory, PAGE, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 0, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	post(&p.a, IBV_WR_RDMA_READ, here, mine, 0, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	post_recv(&p.b, there, memory, 0);
	post(&p.a, IBV_WR_SEND, here, mine, 0, NULL, 0);
	wait_for(&p.b, IBV_WC_SUCCESS);
	wait_for(&p.a, IBV_WC_SUCCESS);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void a_byte_more_than_the_receive_holds_is_an_error(void)
{
	char *mine = fresh(PAGE);
	struct ibv_mr *here;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	post_recv(&p.b, NULL, NULL, 0);
	post(&p.a, IBV_WR_SEND, here, mine, 1, NULL, 0);
	wait_for(&p.a, IBV_WC_REM_INV_REQ_ERR);
	wait_for(&p.b, IBV_WC_LOC_LEN_ERR);
	dereg(here);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_zero_byte_send_arrives),
		CASE(a_zero_byte_send_with_immediate_brings_the_immediate),
		CASE(a_zero_byte_write_with_immediate_takes_a_receive),
		CASE(zero_byte_writes_and_reads_need_neither_key_nor_address),
		CASE(pieces_of_zero_length_count_for_nothing),
		CASE(a_byte_more_than_the_receive_holds_is_an_error),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
