/* Two connected queue pairs of one process, for the C programs of this folder. */
#include "check.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct objects {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

static struct objects make(void)
{
	struct objects o = { .context = opened() };
	CHECK(o.channel = ibv_create_comp_channel(o.context));
	CHECK(o.pd = ibv_alloc_pd(o.context));
	CHECK(o.cq = ibv_create_cq(o.context, 16, NULL, o.channel, 0));
	struct ibv_qp_init_attr init = { .send_cq = o.cq, .recv_cq = o.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	for (int i = 0; i < 2; i++)
		CHECK(o.qp[i] = ibv_create_qp(o.pd, &init));
	return o;
}

static void destroy(struct objects o)
{
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(o.qp[i]));
	CHECK(!ibv_destroy_cq(o.cq));
	CHECK(!ibv_dealloc_pd(o.pd));
	CHECK(!ibv_destroy_comp_channel(o.channel));
	CHECK(!ibv_close_device(o.context));
}

/* Connects the two queue pairs to each other. */
static void connect_pair(struct objects o)
{
	for (int i = 0; i < 2; i++)
		connect_qp(o.qp[i], o.qp[1 - i]->qp_num, REMOTE);
}
