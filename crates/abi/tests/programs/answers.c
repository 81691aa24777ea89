/* Results of verbs that large programs depend on: answers.rs runs it. Ends with 0, or prints the failed check. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_comp_channel *channel;
static struct ibv_cq *queue;
static struct ibv_mr *region;
static char memory[4096];

static void port(void)
{
	union ibv_gid first, other;
	struct ibv_gid_entry entry;
	struct ibv_port_attr attributes;
	int (*query_speed)(struct ibv_context *, uint32_t, uint64_t *) = dlsym(RTLD_DEFAULT, "ibv_query_port_speed");
	uint64_t speed = 0;

	CHECK(ibv_query_port(context, 1, &attributes) == 0 && attributes.gid_tbl_len == 1);
	CHECK(ibv_query_gid(context, 1, 0, &first) == 0);
	for (int index = 0; index < 4; index++) {
		CHECK(ibv_query_gid(context, 1, index, &other) == 0 && memcmp(&first, &other, sizeof(first)) == 0);
		CHECK(ibv_query_gid_ex(context, 1, index, &entry, 0) == 0 && entry.gid_index == (uint32_t)index);
		CHECK(memcmp(&first, &entry.gid, sizeof(first)) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
		CHECK(entry.ndev_ifindex == if_nametoindex("lo"));
	}
	CHECK(ibv_query_gid(context, 1, 4, &other) == -1);
	CHECK(ibv_query_gid_ex(context, 1, 4, &entry, 0) == ENODATA);
	CHECK(ibv_query_gid_table(context, &entry, 1, 0) == 1 && entry.ndev_ifindex == if_nametoindex("lo"));
	CHECK(query_speed && query_speed(context, 1, &speed) == 0 && speed == 250);
}

static struct ibv_qp *connect_to_itself(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = queue, .recv_cq = queue, .qp_type = type, .sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(domain, &wanted);
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
	int is_datagram = type == IBV_QPT_UD;

	CHECK(qp != NULL);
	CHECK(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
					      (is_datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
	attributes.qp_state = IBV_QPS_RTR;
	attributes.path_mtu = IBV_MTU_1024;
	attributes.dest_qp_num = qp->qp_num;
	attributes.max_dest_rd_atomic = 1;
	attributes.ah_attr.is_global = 1;
	attributes.ah_attr.port_num = 1;
	attributes.ah_attr.grh.sgid_index = 3;
	CHECK(ibv_query_gid(context, 1, 3, &attributes.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attributes, IBV_QP_STATE |
					      (is_datagram ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
							     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
							     IBV_QP_MIN_RNR_TIMER)) == 0);
	attributes.qp_state = IBV_QPS_RTS;
	attributes.max_rd_atomic = 1;
	CHECK(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN |
					      (is_datagram ? 0 : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							     IBV_QP_MAX_QP_RD_ATOMIC)) == 0);
	return qp;
}

/* Waits for the next completion. */
static struct ibv_wc completed(void)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};

	for (int tries = 0; ibv_poll_cq(queue, 1, &wc) == 0 && tries < 1000; tries++)
		usleep(1000);
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void datagram(void)
{
	struct ibv_qp *qp = connect_to_itself(IBV_QPT_UD);
	struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 2}};
	struct ibv_sge room = {(uintptr_t)memory, 2048, region->lkey};
	struct ibv_sge text = {(uintptr_t)memory + 2048, 16, region->lkey};
	struct ibv_recv_wr receive = {.sg_list = &room, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.sg_list = &text, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_cq *notified;
	void *ours;

	CHECK(ibv_query_gid(context, 1, 0, &address.grh.dgid) == 0);
	send.wr.ud.ah = ibv_create_ah(domain, &address);
	send.wr.ud.remote_qpn = qp->qp_num;
	send.wr.ud.remote_qkey = 0x11111111;
	CHECK(send.wr.ud.ah != NULL);
	CHECK(ibv_req_notify_cq(queue, 0) == 0);
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) == 0 && ibv_post_send(qp, &send, &bad_send) == 0);
	CHECK(ibv_get_cq_event(channel, &notified, &ours) == 0 && notified == queue);
	CHECK(queue->comp_events_completed == 0);
	ibv_ack_cq_events(queue, 1);
	CHECK(queue->comp_events_completed == 1);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completed();
		/* UCX reads the type of the network header here: 2 is IPv4. */
		CHECK(wc.sl == (wc.opcode == IBV_WC_RECV ? 2 : 0));
	}
}

/* libiscsi's scatter-gather lists are in packed structures. */
static void misaligned_list(void)
{
	struct ibv_qp *qp = connect_to_itself(IBV_QPT_RC);
	struct __attribute__((packed)) {
		char odd;
		struct ibv_sge sge;
	} room = {0, {(uintptr_t)memory, 16, region->lkey}}, text = {0, {(uintptr_t)memory + 2048, 16, region->lkey}};
	struct ibv_recv_wr receive = {.num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;

	receive.sg_list = (void *)((char *)&room + 1);
	send.sg_list = (void *)((char *)&text + 1);
	memcpy(memory + 2048, "misaligned lists", 16);
	CHECK(ibv_post_recv(qp, &receive, &bad_receive) == 0 && ibv_post_send(qp, &send, &bad_send) == 0);
	for (int i = 0; i < 2; i++)
		completed();
	CHECK(memcmp(memory, "misaligned lists", 16) == 0);
}

static void window(void)
{
	struct ibv_qp *qp = connect_to_itself(IBV_QPT_RC);
	struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
	struct ibv_send_wr *bad;

	for (int i = 0; i < 3; i++) {
		struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
		struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV};

		bind.bind_mw.mw = mw;
		bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){region, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ};
		CHECK(ibv_post_send(qp, &bind, &bad) == 0);
		CHECK(mw->rkey == bind.bind_mw.rkey);
		CHECK(completed().opcode == IBV_WC_BIND_MW);
		invalidate.invalidate_rkey = mw->rkey;
		CHECK(ibv_post_send(qp, &invalidate, &bad) == 0 && completed().opcode == IBV_WC_LOCAL_INV);
	}
}

static void timestamps(void)
{
	struct ibv_cq_init_attr_ex wanted = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	struct ibv_poll_cq_attr none = {0};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &wanted);
	struct ibv_cq *plain = queue;
	struct ibv_qp *qp;
	uint64_t last = 0;

	queue = ibv_cq_ex_to_cq(extended);
	qp = connect_to_itself(IBV_QPT_RC);
	queue = plain;
	for (int i = 0; i < 1000; i++) {
		struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
		struct ibv_sge text = {(uintptr_t)memory, 8, region->lkey};

		write.sg_list = &text;
		write.num_sge = 0;
		write.wr.rdma.remote_addr = (uintptr_t)memory;
		write.wr.rdma.rkey = region->rkey;
		CHECK(ibv_post_send(qp, &write, &bad) == 0);
		while (ibv_start_poll(extended, &none) == ENOENT)
			;
		CHECK(ibv_wc_read_completion_wallclock_ns(extended) >= last);
		last = ibv_wc_read_completion_wallclock_ns(extended);
		/* Repeated reads return the same timestamp. */
		for (int again = 0; again < 10; again++)
			CHECK(ibv_wc_read_completion_wallclock_ns(extended) == last);
		ibv_end_poll(extended);
	}
}

/* A window keeps its key if the request to bind it is not posted. */
static void abandoned_bind(void)
{
	struct ibv_qp_init_attr_ex wanted = {.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = domain,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *plain = ibv_create_qp_ex(context, &wanted);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(plain);
	struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {region, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ};
	uint32_t key = mw->rkey;

	CHECK(qp && mw);
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(key), &info);
	ibv_wr_abort(qp);
	CHECK(mw->rkey == key);
	/* In RESET the queue pair takes no requests. */
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(key), &info);
	CHECK(ibv_wr_complete(qp) == EINVAL && mw->rkey == key);
	connect_qp(plain, plain->qp_num, IBV_ACCESS_LOCAL_WRITE);
	/* The second bind of a list is of the window that the first has bound. */
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(key), &info);
	ibv_wr_local_inv(qp, ibv_inc_rkey(key));
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(ibv_inc_rkey(key)), &info);
	CHECK(ibv_wr_complete(qp) == 0 && mw->rkey == ibv_inc_rkey(ibv_inc_rkey(key)));
	for (int i = 0; i < 3; i++)
		completed();
}

/* A window that is bound is not bound again before it is invalidated. */
static void bound_window(void)
{
	struct ibv_qp *qp = connect_to_itself(IBV_QPT_RC);
	struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW}, *bad;
	struct ibv_wc wc;

	bind.bind_mw.mw = mw;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){region, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ};
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	CHECK(ibv_post_send(qp, &bind, &bad) == 0 && completed().opcode == IBV_WC_BIND_MW);
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	CHECK(ibv_post_send(qp, &bind, &bad) == 0);
	while (ibv_poll_cq(queue, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_MW_BIND_ERR);
}

/* Each static rate is converted to its speed and its multiple of 2.5 Gb/s, and back. */
static void rates(void)
{
	static const struct {
		enum ibv_rate rate;
		int multiple, mbps;
	} all[] = {
		{IBV_RATE_2_5_GBPS, 1, 2500}, {IBV_RATE_120_GBPS, 48, 120000}, {IBV_RATE_28_GBPS, 11, 28125},
		{IBV_RATE_50_GBPS, 20, 53125}, {IBV_RATE_400_GBPS, 160, 425000}, {IBV_RATE_600_GBPS, 240, 637500},
		{IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
		CHECK(ibv_rate_to_mbps(all[i].rate) == all[i].mbps && mbps_to_ibv_rate(all[i].mbps) == all[i].rate);
		CHECK(ibv_rate_to_mult(all[i].rate) == all[i].multiple && mult_to_ibv_rate(all[i].multiple) == all[i].rate);
	}
	CHECK(ibv_rate_to_mult(IBV_RATE_100_GBPS) == -1 && ibv_rate_to_mbps(25) == -1);
}

/* A queue pair returns the path that it was given, with the fields that RoCE ignores. */
static void path(void)
{
	struct ibv_qp *qp = connect_to_itself(IBV_QPT_RC);
	struct ibv_qp_attr given = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num}, got;
	struct ibv_qp_init_attr init;

	CHECK(ibv_query_qp(qp, &got, IBV_QP_AV, &init) == 0 && got.ah_attr.grh.sgid_index == 3);
	for (int state = IBV_QPS_RESET; state <= IBV_QPS_INIT; state++) {
		struct ibv_qp_attr next = {.qp_state = state, .port_num = 1};
		CHECK(ibv_modify_qp(qp, &next, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT | IBV_QP_PKEY_INDEX |
									 IBV_QP_ACCESS_FLAGS : 0)) == 0);
	}
	given.ah_attr = (struct ibv_ah_attr){.sl = 5, .static_rate = IBV_RATE_10_GBPS, .is_global = 1, .port_num = 1,
		.grh = {.sgid_index = 2, .flow_label = 0x12345, .traffic_class = 96}};
	CHECK(ibv_query_gid(context, 1, 0, &given.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &given, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	CHECK(ibv_query_qp(qp, &got, IBV_QP_AV, &init) == 0);
	CHECK(got.ah_attr.sl == 5 && got.ah_attr.static_rate == IBV_RATE_10_GBPS && got.ah_attr.is_global);
	CHECK(got.ah_attr.grh.sgid_index == 2 && got.ah_attr.grh.hop_limit == 0 && got.ah_attr.grh.flow_label == 0x12345);
	CHECK(memcmp(&got.ah_attr.grh.dgid, &given.ah_attr.grh.dgid, sizeof(union ibv_gid)) == 0);
}

/* Creating a queue pair updates the capacities that the program asked for. */
static void capacities(void)
{
	struct ibv_srq_init_attr queued = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(domain, &queued);
	struct ibv_qp_cap asked = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1};
	struct ibv_qp_init_attr wanted = {.send_cq = queue, .recv_cq = queue, .srq = srq, .qp_type = IBV_QPT_RC, .cap = asked}, got;
	struct ibv_qp_init_attr_ex more = {.send_cq = queue, .recv_cq = queue, .srq = srq, .qp_type = IBV_QPT_RC, .cap = asked,
					   .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = domain};
	struct ibv_qp_attr attr;

	CHECK(srq);
	struct ibv_qp *qps[] = {ibv_create_qp(domain, &wanted), ibv_create_qp_ex(context, &more)};
	for (int i = 0; i < 2; i++) {
		CHECK(qps[i] && !ibv_query_qp(qps[i], &attr, IBV_QP_CAP, &got));
		CHECK(got.cap.max_recv_wr == 0 && got.cap.max_inline_data == 32 && got.cap.max_send_wr == 8);
		CHECK(!memcmp(i ? &more.cap : &wanted.cap, &got.cap, sizeof(got.cap)));
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 2);
	/* A hang ends after a minute. */
	alarm(60);
	context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context);
	domain = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	queue = ibv_create_cq(context, 64, NULL, channel, 0);
	region = ibv_reg_mr(domain, memory, sizeof(memory),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
	if (!strcmp(argv[1], "port"))
		port();
	else if (!strcmp(argv[1], "misaligned list"))
		misaligned_list();
	else if (!strcmp(argv[1], "datagram"))
		datagram();
	else if (!strcmp(argv[1], "window"))
		window();
	else if (!strcmp(argv[1], "abandoned bind"))
		abandoned_bind();
	else if (!strcmp(argv[1], "bound window"))
		bound_window();
	else if (!strcmp(argv[1], "rates"))
		rates();
	else if (!strcmp(argv[1], "path"))
		path();
	else if (!strcmp(argv[1], "capacities"))
		capacities();
	else if (!strcmp(argv[1], "timestamps"))
		timestamps();
	else
		return 2;
	return 0;
}
