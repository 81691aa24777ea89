/* FLUSH and ATOMIC WRITE, as programs built with newer headers of rdma-core use them: flush.rs runs it. */
#include <errno.h>
#include <string.h>

#include "check.h"

/* Constants and types that the headers of rdma-core 44 lack. */
enum { ACCESS_FLUSH_GLOBAL = 1 << 8, ACCESS_FLUSH_PERSISTENT = 1 << 9, WC_FLUSH = 8, WC_WRITE_AT_ONCE = 9 };
enum { WITH_FLUSH = 1 << 11, WITH_WRITE_AT_ONCE = 1 << 12, WR_WRITE_AT_ONCE = 15 };
enum { FLUSH_GLOBAL = 1, FLUSH_PERSISTENT = 2, FLUSH_RANGE = 0, FLUSH_REGION = 1 };
#define DEVICE_FLUSH_GLOBAL (1ULL << 38)
#define DEVICE_FLUSH_PERSISTENT (1ULL << 39)
#define DEVICE_ATOMIC_WRITE (1ULL << 40)
typedef void flush(struct ibv_qp_ex *, uint32_t rkey, uint64_t address, size_t len, uint8_t type, uint8_t level);

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL)

static uint64_t memory[64];

/* A queue pair that is connected to itself. */
static struct ibv_qp_ex *loop(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | WITH_FLUSH | WITH_WRITE_AT_ONCE,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &init);
	CHECK(qp);
	connect_qp(qp, qp->qp_num, RIGHTS | ACCESS_FLUSH_PERSISTENT);
	return ibv_qp_to_qp_ex(qp);
}

/* Posts one FLUSH by the function pointer behind the structure of rdma-core 44. */
static int post_flush(struct ibv_qp_ex *qp, uint32_t rkey, void *at, size_t len, uint8_t type, uint8_t level)
{
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	(*(flush **)(qp + 1))(qp, rkey, (uintptr_t)at, len, type, level);
	return ibv_wr_complete(qp);
}

int main(void)
{
	struct ibv_context *context = opened();
	struct ibv_device_attr_ex can;
	CHECK(!ibv_query_device_ex(context, NULL, &can));
	CHECK(can.device_cap_flags_ex & DEVICE_FLUSH_GLOBAL && can.device_cap_flags_ex & DEVICE_ATOMIC_WRITE);
	CHECK(!(can.device_cap_flags_ex & DEVICE_FLUSH_PERSISTENT));
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(!ibv_reg_mr(pd, memory, sizeof memory, RIGHTS | ACCESS_FLUSH_PERSISTENT) && errno == EINVAL);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, RIGHTS);
	CHECK(mr);
	struct ibv_qp_ex *qp = loop(pd, cq);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(&qp->qp_base, &attr, IBV_QP_ACCESS_FLAGS, &init));
	CHECK(attr.qp_access_flags == (RIGHTS | ACCESS_FLUSH_PERSISTENT));

	/* An ATOMIC WRITE whose bytes are copied when it is posted, and another from registered memory. */
	uint64_t value = 0x0102030405060708;
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, mr->rkey, (uintptr_t)&memory[8], &value);
	value = 0;
	CHECK(!ibv_wr_complete(qp));
	struct ibv_wc wc = polled(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.opcode == WC_WRITE_AT_ONCE);
	CHECK(memory[8] == 0x0102030405060708);
	memory[0] = 42;
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = (enum ibv_wr_opcode)WR_WRITE_AT_ONCE,
		.wr.rdma = { (uintptr_t)&memory[9], mr->rkey } };
	CHECK(!ibv_post_send(&qp->qp_base, &wr, &bad));
	wc = polled(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.opcode == WC_WRITE_AT_ONCE && memory[9] == 42);

	CHECK(!post_flush(qp, mr->rkey, memory, sizeof memory, FLUSH_GLOBAL, FLUSH_RANGE));
	wc = polled(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.opcode == WC_FLUSH && wc.wr_id == 7);
	CHECK(!post_flush(qp, mr->rkey, NULL, 12345, FLUSH_GLOBAL, FLUSH_REGION));
	CHECK(polled(cq).status == IBV_WC_SUCCESS);
	CHECK(post_flush(qp, mr->rkey, memory, 8, FLUSH_GLOBAL, 2) == EINVAL);
	CHECK(post_flush(qp, mr->rkey, memory, 8, 4, FLUSH_RANGE) == EINVAL);
	/* The queue pair allows FLUSH_PERSISTENT; the region, whose memory is volatile, does not. */
	CHECK(!post_flush(qp, mr->rkey, memory, 8, FLUSH_PERSISTENT, FLUSH_RANGE));
	/* The queue pair is its own peer: as responder it fails before it receives its NAK. */
	CHECK(polled(cq).status == IBV_WC_WR_FLUSH_ERR);
	return 0;
}
