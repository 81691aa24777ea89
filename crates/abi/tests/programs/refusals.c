/* Objects that verbs refuse: refusals.rs runs it. Ends with 0, or says what is wrong. */
#include <errno.h>
#include <string.h>

#include "check.h"

/* Checks a call with the object's handle overwritten, then restores the handle. */
#define GARBLED(object, what) do { (object)->handle ^= 0xDEADBEEF; errno = 0; CHECK(what); CHECK(errno == ENOENT); \
	(object)->handle ^= 0xDEADBEEF; } while (0)
/* Checks that a verb returns no object and sets errno to this error. */
#define NONE(error, what) do { errno = 0; CHECK(!(what)); CHECK(errno == (error)); } while (0)

static char memory[4096];

struct objects {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
};

static struct ibv_srq_init_attr of_srq = { .attr = { .max_wr = 4, .max_sge = 1 } };

static struct ibv_qp *make_qp(struct objects o, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = o.cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	return ibv_create_qp(pd, &init);
}

static struct ibv_ah *make_ah(struct objects o)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	CHECK(!ibv_query_gid(o.context, 1, 0, &attr.grh.dgid));
	return ibv_create_ah(o.pd, &attr);
}

static struct objects make(void)
{
	struct objects o = { .context = opened() };
	CHECK(o.channel = ibv_create_comp_channel(o.context));
	CHECK(o.pd = ibv_alloc_pd(o.context));
	CHECK(o.mr = ibv_reg_mr(o.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	CHECK(o.mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_1));
	CHECK(o.cq = ibv_create_cq(o.context, 16, NULL, o.channel, 0));
	CHECK(o.srq = ibv_create_srq(o.pd, &of_srq));
	CHECK(o.qp = make_qp(o, o.pd, o.cq, NULL));
	CHECK(o.ah = make_ah(o));
	return o;
}

static void destroy(struct objects o)
{
	CHECK(!ibv_destroy_ah(o.ah));
	CHECK(!ibv_destroy_qp(o.qp));
	CHECK(!ibv_destroy_srq(o.srq));
	CHECK(!ibv_destroy_cq(o.cq));
	CHECK(!ibv_dealloc_mw(o.mw));
	CHECK(!ibv_dereg_mr(o.mr));
	CHECK(!ibv_dealloc_pd(o.pd));
	CHECK(!ibv_destroy_comp_channel(o.channel));
	CHECK(!ibv_close_device(o.context));
}

/* The program overwrites a queue's pointer to its channel: the queue still leaves the channel that it was created with. */
static void overwritten_channel(void)
{
	struct objects o = make();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(o.context);
	struct ibv_cq *cq = ibv_create_cq(o.context, 16, NULL, channel, 0);
	CHECK(channel && cq);
	cq->channel = NULL;
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	destroy(o);
}

/* The program overwrites the handles of objects. */
static void handles(void)
{
	struct objects o = make();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr of = { .srq_limit = 1 };
	struct ibv_sge sge = { (uintptr_t)memory, 64, o.mr->lkey };
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_mw_bind bind = { .bind_info = { .mr = o.mr, .addr = (uintptr_t)memory, .length = 64 } };

	GARBLED(o.pd, ibv_dealloc_pd(o.pd) == ENOENT);
	GARBLED(o.pd, !ibv_reg_mr(o.pd, memory, 64, 0));
	GARBLED(o.pd, !ibv_alloc_mw(o.pd, IBV_MW_TYPE_1));
	GARBLED(o.pd, !ibv_create_srq(o.pd, &of_srq));
	GARBLED(o.pd, !make_ah(o));
	GARBLED(o.pd, !make_qp(o, o.pd, o.cq, NULL));
	GARBLED(o.pd, ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_PD, o.pd, NULL, 0, 0));
	GARBLED(o.mr, ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_PD, o.pd, NULL, 0, 0));
	GARBLED(o.mr, ibv_dereg_mr(o.mr) == ENOENT);
	GARBLED(o.mw, ibv_dealloc_mw(o.mw) == ENOENT);
	GARBLED(o.cq, ibv_destroy_cq(o.cq) == ENOENT);
	GARBLED(o.cq, ibv_resize_cq(o.cq, 8) == ENOENT);
	GARBLED(o.cq, ibv_req_notify_cq(o.cq, 0) == ENOENT);
	GARBLED(o.cq, !make_qp(o, o.pd, o.cq, NULL));
	GARBLED(o.srq, !make_qp(o, o.pd, o.cq, o.srq));
	GARBLED(o.srq, ibv_modify_srq(o.srq, &of, IBV_SRQ_LIMIT) == ENOENT);
	GARBLED(o.srq, ibv_query_srq(o.srq, &of) == ENOENT);
	GARBLED(o.srq, ibv_post_srq_recv(o.srq, &receive, &bad_receive) == ENOENT && bad_receive == &receive);
	GARBLED(o.srq, ibv_destroy_srq(o.srq) == ENOENT);
	GARBLED(o.qp, ibv_modify_qp(o.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS) == ENOENT);
	GARBLED(o.qp, ibv_query_qp(o.qp, &attr, IBV_QP_STATE, &init) == ENOENT);
	GARBLED(o.qp, ibv_post_send(o.qp, &send, &bad_send) == ENOENT && bad_send == &send);
	GARBLED(o.qp, ibv_post_recv(o.qp, &receive, &bad_receive) == ENOENT && bad_receive == &receive);
	GARBLED(o.qp, ibv_bind_mw(o.qp, o.mw, &bind) == ENOENT);
	GARBLED(o.qp, ibv_destroy_qp(o.qp) == ENOENT);
	GARBLED(o.ah, ibv_destroy_ah(o.ah) == ENOENT);
	destroy(o);
}

/* Pointers to nothing, to other memory, to objects of another kind, and to objects that are gone. */
static void pointers(void)
{
	struct objects o = make();
	void *none[] = { NULL, memory, (void *)8, o.context, o.channel };
	for (int i = 0; i < 5; i++) {
		CHECK(ibv_dealloc_pd(none[i]) == EINVAL);
		CHECK(ibv_destroy_cq(none[i]) == EINVAL);
		CHECK(ibv_destroy_srq(none[i]) == EINVAL);
		CHECK(ibv_destroy_qp(none[i]) == EINVAL);
		CHECK(ibv_destroy_ah(none[i]) == EINVAL);
		NONE(EINVAL, ibv_reg_mr(none[i], memory, 64, 0));
		NONE(EINVAL, ibv_create_srq(none[i], &of_srq));
		NONE(EINVAL, make_qp(o, none[i], o.cq, NULL));
		NONE(EINVAL, make_qp(o, o.pd, none[i], NULL));
	}
	CHECK(ibv_dereg_mr((struct ibv_mr *)o.mw) == EINVAL);
	CHECK(ibv_dealloc_pd((struct ibv_pd *)o.mr) == EINVAL);
	CHECK(ibv_destroy_comp_channel((struct ibv_comp_channel *)o.cq) == EINVAL);
	struct objects gone = o;
	destroy(o);
	CHECK(ibv_destroy_qp(gone.qp) == EINVAL);
	CHECK(ibv_destroy_cq(gone.cq) == EINVAL);
	CHECK(ibv_dealloc_pd(gone.pd) == EINVAL);
	CHECK(ibv_destroy_comp_channel(gone.channel) == EINVAL);
	/* The context was closed. */
	CHECK(ibv_close_device(gone.context) == EINVAL);
	NONE(EINVAL, ibv_alloc_pd(gone.context));
	NONE(EINVAL, ibv_create_comp_channel(gone.context));
	NONE(EINVAL, ibv_create_cq(gone.context, 16, NULL, NULL, 0));
	union ibv_gid gid;
	CHECK(ibv_query_gid(gone.context, 1, 0, &gid) == -1 && errno == EINVAL);
	struct ibv_gid_entry entry;
	CHECK(ibv_query_gid_ex(gone.context, 1, 0, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_table(gone.context, &entry, 1, 0) == -EINVAL);
}

static struct ibv_qp *make_ud(struct objects o)
{
	struct ibv_qp_init_attr init = { .send_cq = o.cq, .recv_cq = o.cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 } };
	struct ibv_qp *qp = ibv_create_qp(o.pd, &init);
	CHECK(qp);
	start_datagrams(qp, 1);
	return qp;
}

/* Requests with pointers to nothing, to other memory, to objects of another kind, and to objects that are gone. */
static void posted(void)
{
	struct objects o = make();
	struct ibv_qp *qp = make_ud(o);
	struct ibv_ah *gone = make_ah(o);
	CHECK(!ibv_destroy_ah(gone));
	struct ibv_mr *gone_mr = ibv_reg_mr(o.pd, memory, 64, 0);
	CHECK(gone_mr && !ibv_dereg_mr(gone_mr));
	struct ibv_mw *gone_mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_2);
	CHECK(gone_mw && !ibv_dealloc_mw(gone_mw));
	void *none[] = { NULL, memory, (void *)8, o.pd, gone };
	struct ibv_sge sge = { (uintptr_t)memory, 64, o.mr->lkey };
	struct ibv_send_wr *bad, send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr.ud.remote_qpn = qp->qp_num };
	struct ibv_recv_wr *bad_receive, receive = { .sg_list = NULL, .num_sge = 1 };

	for (int i = 0; i < 5; i++) {
		send.wr.ud.ah = none[i];
		CHECK(ibv_post_send(qp, &send, &bad) == EINVAL && bad == &send);
	}
	/* No list of buffers, and no place for the request that failed. */
	send.wr.ud.ah = o.ah;
	send.sg_list = NULL;
	CHECK(ibv_post_send(qp, &send, &bad) == EINVAL && bad == &send);
	CHECK(ibv_post_send(qp, &send, NULL) == EINVAL);
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	CHECK(ibv_post_recv(qp, &receive, NULL) == EINVAL);
	CHECK(ibv_post_srq_recv(o.srq, &receive, NULL) == EINVAL);
	/* Inline bytes at an unmapped address are an error, as other buffers are. */
	sge.addr = 8;
	send.sg_list = &sge;
	send.send_flags = IBV_SEND_INLINE;
	CHECK(ibv_post_send(qp, &send, &bad));
	/* Windows and their regions. */
	struct ibv_mw *mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW, .bind_mw = { .bind_info = { .mr = o.mr, .length = 64 } } };
	for (int i = 0; i < 5; i++) {
		bind.bind_mw.mw = i == 4 ? gone_mw : none[i];
		CHECK(ibv_post_send(o.qp, &bind, &bad) == EINVAL);
		if (bind.bind_mw.mw) {
			struct ibv_mw_bind other = { .bind_info = bind.bind_mw.bind_info };
			CHECK(o.qp->context->ops.bind_mw(o.qp, bind.bind_mw.mw, &other) == EINVAL);
		}
	}
	bind.bind_mw.mw = mw;
	for (int i = 1; i < 5; i++) {
		bind.bind_mw.bind_info.mr = i == 4 ? gone_mr : none[i];
		CHECK(ibv_post_send(o.qp, &bind, &bad) == EINVAL);
	}
	CHECK(!ibv_dealloc_mw(mw));
	CHECK(!ibv_destroy_qp(qp));
	/* Events of no channel and no queue. */
	struct ibv_cq *cq;
	void *ours;
	for (int i = 0; i < 5; i++) {
		CHECK(ibv_get_cq_event(none[i], &cq, &ours) == -1 && errno == EINVAL);
		ibv_ack_cq_events(none[i] ? none[i] : memory, 1);
	}
	destroy(o);
}

/* Posts to and polls of destroyed queues fail: the library keeps the memory of the last 1,024. */
static void destroyed(void)
{
	struct objects o = make();
	struct ibv_qp_init_attr_ex init = { .send_cq = o.cq, .recv_cq = o.cq, .qp_type = IBV_QPT_RC, .pd = o.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp_ex(o.context, &init);
	CHECK(qp);
	struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(o.context, &of_cq);
	CHECK(extended && cq);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	for (int i = 0; i < 1000; i++)
		CHECK(!ibv_destroy_qp(make_qp(o, o.pd, o.cq, NULL)));
	destroy(o);

	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive = NULL;
	struct ibv_poll_cq_attr options = { .comp_mask = 0 };
	struct ibv_wc wc;
	struct ibv_qp *gone[] = { o.qp, qp };
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_post_send(gone[i], &send, &bad_send) == EINVAL && bad_send == &send);
		CHECK(ibv_post_recv(gone[i], &receive, &bad_receive) == EINVAL && bad_receive == &receive);
		CHECK(ibv_post_send(gone[i], &send, NULL) == EINVAL);
	}
	bad_receive = NULL;
	CHECK(ibv_post_srq_recv(o.srq, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	CHECK(!ibv_qp_to_qp_ex(qp));
	ibv_wr_start(extended);
	ibv_wr_send(extended);
	ibv_wr_set_sge(extended, 0, (uintptr_t)memory, 64);
	CHECK(ibv_wr_complete(extended) == EINVAL);
	CHECK(ibv_poll_cq(o.cq, 1, &wc) == -EINVAL);
	CHECK(ibv_req_notify_cq(o.cq, 0) == EINVAL);
	CHECK(ibv_start_poll(cq, &options) == EINVAL);
	CHECK(ibv_next_poll(cq) == EINVAL);
}

/* A queue without a channel has no recipient of events: arming it succeeds and has no effect. */
static void channels(void)
{
	struct objects o = make();
	struct ibv_cq *quiet = ibv_create_cq(o.context, 16, NULL, NULL, 0);
	CHECK(quiet);
	CHECK(!ibv_req_notify_cq(quiet, 0) && !ibv_req_notify_cq(quiet, 1));
	CHECK(!ibv_req_notify_cq(o.cq, 0));
	CHECK(!ibv_destroy_cq(quiet));
	destroy(o);
}

/* Attributes that libibverbs or the kernel refuses. */
static void attributes(void)
{
	struct objects o = make();

	/* A region: nothing to change, no memory, rights without their flag. */
	CHECK(ibv_rereg_mr(o.mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == EINVAL);
	errno = 0;
	CHECK(ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	errno = 0;
	CHECK(ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	errno = 0;
	CHECK(ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 64, IBV_ACCESS_LOCAL_WRITE) ==
		IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	/* Memory that wraps around the address space, and memory that is not there. */
	NONE(EINVAL, ibv_reg_mr(o.pd, (void *)-4096, 8192, IBV_ACCESS_LOCAL_WRITE));
	NONE(EFAULT, ibv_reg_mr(o.pd, (void *)8, 64, IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)8, 64, 0) == IBV_REREG_MR_ERR_CMD && errno == EFAULT);
	CHECK(o.mr->length == sizeof memory);
	CHECK(!ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 64, 0) && o.mr->length == 64);

	/* A completion queue that would discard completions on an overrun instead of moving its queue pairs to ERROR. */
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	NONE(EOPNOTSUPP, ibv_create_cq_ex(o.context, &of_cq));
	of_cq.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	struct ibv_cq_ex *cq = ibv_create_cq_ex(o.context, &of_cq);
	CHECK(cq && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));

	/* A path through a port that does not exist. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(o.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = o.qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 2 } };
	CHECK(!ibv_query_gid(o.context, 1, 0, &attr.ah_attr.grh.dgid));
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER;
	CHECK(ibv_modify_qp(o.qp, &attr, mask) == EINVAL);
	attr.ah_attr.port_num = 1;
	CHECK(!ibv_modify_qp(o.qp, &attr, mask));

	/* Options of enhanced connection establishment that no vendor defines. */
	struct ibv_ece none = { .vendor_id = 0 };
	CHECK(ibv_set_ece(o.qp, &none) == EOPNOTSUPP);
	destroy(o);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "attributes"))
		attributes();
	else if (!strcmp(argv[1], "overwritten channel"))
		overwritten_channel();
	else if (!strcmp(argv[1], "handles"))
		handles();
	else if (!strcmp(argv[1], "pointers"))
		pointers();
	else if (!strcmp(argv[1], "posted"))
		posted();
	else if (!strcmp(argv[1], "destroyed"))
		destroyed();
	else if (!strcmp(argv[1], "channels"))
		channels();
	else
		return 2;
	return 0;
}
