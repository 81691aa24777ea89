/* What the C programs of this folder share. A program ends with the line and the text of a condition that does not hold. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

/* A context of the device. */
static inline struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(context);
	return context;
}

/* Connects a queue pair to one of this process. */
static inline void connect_qp(struct ibv_qp *qp, uint32_t destination, int access)
{
	int sends = qp->qp_type != IBV_QPT_XRC_RECV, receives = qp->qp_type != IBV_QPT_XRC_SEND;
	union ibv_gid gid;
	CHECK(!ibv_query_gid(qp->context, 1, 0, &gid));
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = destination,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } } };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		(receives ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
		(sends ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

/* Moves a UD queue pair to RTS. */
static inline void start_datagrams(struct ibv_qp *qp, uint32_t qkey)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

/* The next completion of a queue. */
static inline struct ibv_wc polled(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc;
}

/* The next completion of a queue, which is a success. */
static inline struct ibv_wc succeeded(struct ibv_cq *cq)
{
	struct ibv_wc wc = polled(cq);
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}
