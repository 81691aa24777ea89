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
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct objects o = { .context = ibv_open_device(list[0]) };
	ibv_free_device_list(list);
	CHECK(o.context);
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
	union ibv_gid gid;
	CHECK(!ibv_query_gid(o.context, 1, 0, &gid));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE };
		CHECK(!ibv_modify_qp(o.qp[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = o.qp[1 - i]->qp_num,
			.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } } };
		CHECK(!ibv_modify_qp(o.qp[i], &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 7,
			.max_rd_atomic = 1 };
		CHECK(!ibv_modify_qp(o.qp[i], &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	}
}
