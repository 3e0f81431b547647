/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The right bytes at the right place: a public driver passed public suites while it moved data to the wrong
 * offset, because they use whole pages from their start. Here every kind of request runs at odd offsets and
 * lengths, across pages, on memory that was never touched and memory that was, pinned and on demand, and the
 * bytes around the target are compared too.
 */
#include <string.h>
#include <sys/mman.h>

#include "pair.h"

#define AREA (160 * 4096ul)

static const size_t offsets[] = { 0, 1, 7, 8, 63, 4088, 4093, 4096, 8191 };
static const size_t lengths[] = { 1, 2, 3, 7, 8, 9, 15, 64, 100, 1023, 1024, 1025, 4095, 4096, 4097, 10000,
	65536, 262144 + 3 };

struct side {
	unsigned char *memory;
	struct ibv_mr *mr;
};

static void side_open(struct side *s, struct end *e, int odp)
{
	s->memory = fresh(AREA);
	s->mr = reg(e, s->memory, AREA, REMOTE | odp);
}

/* Zeroes the area; on demand its pages are given back, so that the next access is a fault. */
static void clear(struct side *s, int odp)
{
	if (odp)
		check_sys(madvise(s->memory, AREA, MADV_DONTNEED) == 0);
	else
		memset(s->memory, 0, AREA);
}

static void check_only(const struct side *s, size_t offset, size_t length, unsigned seed)
{
	check_filled(s->memory + offset, length, seed);
	check_zero(s->memory, offset);
	check_zero(s->memory + offset + length, AREA - offset - length);
}

static void transfer(struct pair *p, struct side *src, struct side *dst, enum ibv_wr_opcode op, size_t from,
	size_t to, size_t length, int odp)
{
	static unsigned seed;

	clear(src, odp);
	clear(dst, odp);
	fill(src->memory + from, length, ++seed);
	switch (op) {
	case IBV_WR_RDMA_READ:
		post(&p->a, op, dst->mr, dst->memory + to, length, src->memory + from, src->mr->rkey);
		break;
	case IBV_WR_SEND:
		post_recv(&p->b, dst->mr, dst->memory + to, length);
		post(&p->a, op, src->mr, src->memory + from, length, NULL, 0);
		check_int(wait_for(&p->b, IBV_WC_SUCCESS).byte_len, length);
		break;
	default:
		post(&p->a, op, src->mr, src->memory + from, length, dst->memory + to, dst->mr->rkey);
	}
	wait_for(&p->a, IBV_WC_SUCCESS);
	check_only(dst, to, length, seed);
}

static void every_shape(enum ibv_wr_opcode op, int odp)
{
	struct side at_a, at_b;
	struct pair p;

	pair_open(&p, NULL);
	side_open(&at_a, &p.a, odp);
	side_open(&at_b, &p.b, odp);
	for (size_t l = 0; l < COUNT(lengths); l++)
		for (size_t o = 0; o < COUNT(offsets); o++) {
			size_t other = offsets[(o * 5 + l) % COUNT(offsets)];

			if (op == IBV_WR_RDMA_READ)
				transfer(&p, &at_b, &at_a, op, offsets[o], other, lengths[l], odp);
			else
				transfer(&p, &at_a, &at_b, op, offsets[o], other, lengths[l], odp);
		}
	dereg(at_a.mr);
	dereg(at_b.mr);
	pair_close(&p);
}

static void a_write_puts_its_bytes_where_they_belong_pinned(void)
{
	every_shape(IBV_WR_RDMA_WRITE, 0);
}

static void a_write_puts_its_bytes_where_they_belong_on_demand(void)
{
	every_shape(IBV_WR_RDMA_WRITE, ODP);
}

static void a_read_gets_its_bytes_from_where_they_are_pinned(void)
{
	every_shape(IBV_WR_RDMA_READ, 0);
}

static void a_read_gets_its_bytes_from_where_they_are_on_demand(void)
{
	every_shape(IBV_WR_RDMA_READ, ODP);
}

static void a_send_arrives_whole_pinned(void)
{
	every_shape(IBV_WR_SEND, 0);
}

static void a_send_arrives_whole_on_demand(void)
{
	every_shape(IBV_WR_SEND, ODP);
}

/* Four pieces of odd lengths gathered here, scattered over four other pieces there. */
static void pieces_are_gathered_and_scattered_in_order(void)
{
	static const uint32_t give[4] = { 1, 5000, 0, 3095 }, take[4] = { 4097, 3, 2996, 1000 };
	struct ibv_sge from[4], to[4];
	struct ibv_send_wr wr = { .sg_list = from,
		.num_sge = 4,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr rwr = { .sg_list = to, .num_sge = 4 }, *badr;
	unsigned char whole[8096], got[8096];
	struct side src, dst;
	struct pair p;
	size_t at = 0;

	pair_open(&p, NULL);
	side_open(&src, &p.a, ODP);
	side_open(&dst, &p.b, ODP);
	fill(whole, sizeof(whole), 9);
	for (int i = 0; i < 4; i++) {
		from[i] =
			(struct ibv_sge){ (uintptr_t)src.memory + (size_t)i * 12345, give[i], src.mr->lkey };
		to[i] = (struct ibv_sge){ (uintptr_t)dst.memory + (size_t)i * 23456 + 1, take[i],
			dst.mr->lkey };
		memcpy(src.memory + (size_t)i * 12345, whole + at, give[i]);
		at += give[i];
	}
	check_int(at, sizeof(whole));
	check_int(ibv_post_recv(p.b.qp, &rwr, &badr), 0);
	check_int(ibv_post_send(p.a.qp, &wr, &bad), 0);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_int(wait_for(&p.b, IBV_WC_SUCCESS).byte_len, sizeof(whole));
	at = 0;
	for (int i = 0; i < 4; i++) {
		memcpy(got + at, dst.memory + (size_t)i * 23456 + 1, take[i]);
		at += take[i];
	}
	check(!memcmp(got, whole, sizeof(whole)));
	dereg(src.mr);
	dereg(dst.mr);
	pair_close(&p);
}

static void a_region_may_begin_and_end_anywhere(void)
{
	struct ibv_mr *src, *dst;
	unsigned char *memory = fresh(AREA);
	struct pair p;

	pair_open(&p, NULL);
	for (int odp = 0; odp <= ODP; odp += ODP) {
		memset(memory, 0, AREA);
		src = reg(&p.a, memory + 4095, 4098, REMOTE | odp);
		dst = reg(&p.b, memory + 20001, 4098, REMOTE | odp);
		fill(memory + 4095, 4098, 77);
		post(&p.a, IBV_WR_RDMA_WRITE, src, memory + 4095, 4098, memory + 20001, dst->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory + 20001, 4098, 77);
		check_zero(memory + 20001 + 4098, 4096);
		/* One byte beyond either end is outside. */
		post(&p.a, IBV_WR_RDMA_WRITE, src, memory + 4095, 1, memory + 20001 + 4098, dst->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		post(&p.a, IBV_WR_RDMA_WRITE, src, memory + 4094, 1, memory + 20001, dst->rkey);
		wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
		pair_reconnect(&p);
		dereg(src);
		dereg(dst);
	}
	pair_close(&p);
}

static void inline_data_is_taken_when_posted(void)
{
	struct options opt = { .inline_data = 256 };
	unsigned char small[200];
	struct side dst;
	struct pair p;

	pair_open(&p, &opt);
	side_open(&dst, &p.b, ODP);
	for (size_t n = 0; n <= sizeof(small); n += 25) {
		memset(dst.memory, 0, AREA);
		fill(small, n, (unsigned)n);
		/* No key: inline data needs none. */
		check_int(try_post(&p.a, IBV_WR_RDMA_WRITE, NULL, small, n, dst.memory + 4090, dst.mr->rkey,
				  IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			0);
		memset(small, 0xee, sizeof(small));
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_only(&dst, 4090, n, (unsigned)n);
	}
	dereg(dst.mr);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_write_puts_its_bytes_where_they_belong_pinned),
		CASE(a_write_puts_its_bytes_where_they_belong_on_demand),
		CASE(a_read_gets_its_bytes_from_where_they_are_pinned),
		CASE(a_read_gets_its_bytes_from_where_they_are_on_demand),
		CASE(a_send_arrives_whole_pinned),
		CASE(a_send_arrives_whole_on_demand),
		CASE(pieces_are_gathered_and_scattered_in_order),
		CASE(a_region_may_begin_and_end_anywhere),
		CASE(inline_data_is_taken_when_posted),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
