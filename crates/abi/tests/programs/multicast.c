/* Multicast between processes: multicast.rs runs it. Two receivers and a sender, each with a device of its own. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define QKEY 0x11111111
#define MULTICAST_QP 0xFFFFFF
#define GRH 40
#define SLOT 128

static char memory[16 * SLOT];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static void open_device(void)
{
	context = opened();
	struct ibv_device_attr can;
	CHECK(!ibv_query_device(context, &can) && can.max_mcast_grp > 0 && can.max_mcast_qp_attach > 0);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
}

static struct ibv_qp *datagrams(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	start_datagrams(qp, QKEY);
	return qp;
}

static union ibv_gid group(const char *text)
{
	union ibv_gid gid;
	CHECK(inet_pton(AF_INET6, text, &gid) == 1);
	return gid;
}

static void receive(struct ibv_qp *qp, int slot)
{
	struct ibv_sge sge = { (uintptr_t)&memory[slot * SLOT], SLOT, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void send_to(struct ibv_qp *qp, const char *to, const char *text)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = group(to), .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	strcpy(memory, text);
	struct ibv_sge sge = { (uintptr_t)memory, 32, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 7,
		.wr.ud = { .ah = ah, .remote_qpn = MULTICAST_QP, .remote_qkey = QKEY } };
	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(succeeded(cq).opcode == IBV_WC_SEND);
	CHECK(!ibv_destroy_ah(ah));
}

/* The pipes by which processes wait for each other. */
static int to_parent[2], to_child[2][2];

static void notify(int fd) { CHECK(write(fd, "x", 1) == 1); }
static void wait_for(int fd) { char c; CHECK(read(fd, &c, 1) == 1); }

/* Receives datagrams on two queue pairs, then detaches one and receives the others on the other queue pair. */
static void receiver(int nth, const char *first, const char *second)
{
	open_device();
	struct ibv_qp *one = datagrams(), *two = datagrams();
	union ibv_gid a = group(first), b = group(second);
	CHECK(!ibv_attach_mcast(one, &a, 0) && !ibv_attach_mcast(two, &a, 0) && !ibv_attach_mcast(two, &b, 0));
	for (int slot = 0; slot < 3; slot++) {
		receive(one, 2 * slot);
		receive(two, 2 * slot + 1);
	}
	notify(to_parent[1]);
	uint64_t seen = 0;
	for (int count = 0; count < 3; count++) {
		struct ibv_wc wc = succeeded(cq);
		CHECK(wc.opcode == IBV_WC_RECV && wc.wc_flags & IBV_WC_GRH && wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 7);
		CHECK(wc.byte_len == GRH + 32);
		char *text = &memory[wc.wr_id * SLOT + GRH];
		CHECK(!strcmp(text, wc.wr_id == 3 ? "the second" : "the first"));
		seen |= 1 << wc.wr_id;
	}
	CHECK(seen == 0xB);
	CHECK(!ibv_detach_mcast(two, &a, 0) && ibv_detach_mcast(two, &a, 0) == EINVAL);
	notify(to_parent[1]);
	wait_for(to_child[nth][0]);
	struct ibv_wc wc = succeeded(cq);
	CHECK(wc.wr_id == 2 && !strcmp(&memory[2 * SLOT + GRH], "the third"));
	CHECK(!ibv_destroy_qp(one));
	notify(to_parent[1]);
	wait_for(to_child[nth][0]);
	/* The fourth datagram arrived before the parent's signal: no queue pair is in its group any more. */
	usleep(20000);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(!ibv_destroy_qp(two) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
}

static void wait_for_both(void) { wait_for(to_parent[0]); wait_for(to_parent[0]); }
static void notify_both(void) { notify(to_child[0][1]); notify(to_child[1][1]); }

/* Arguments: the two groups. */
int main(int count, char **arguments)
{
	CHECK(count == 3 && !pipe(to_parent) && !pipe(to_child[0]) && !pipe(to_child[1]));
	const char *first = arguments[1], *second = arguments[2];
	pid_t children[2];
	for (int nth = 0; nth < 2; nth++) {
		children[nth] = fork();
		if (!children[nth]) {
			receiver(nth, first, second);
			return 0;
		}
	}
	open_device();
	struct ibv_qp *qp = datagrams();
	union ibv_gid a = group(first), unicast = group("::ffff:127.0.0.1");
	CHECK(ibv_attach_mcast(qp, &unicast, 0) == EINVAL);
	wait_for_both();
	/* The sender's own queue pair is a member too: slot 8. */
	CHECK(!ibv_attach_mcast(qp, &a, 0));
	receive(qp, 8);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = a, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	strcpy(memory, "the first");
	struct ibv_sge sge = { (uintptr_t)memory, 32, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 7,
		.wr.ud = { .ah = ah, .remote_qpn = MULTICAST_QP, .remote_qkey = QKEY } };
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc[2] = { succeeded(cq), succeeded(cq) };
	CHECK((wc[0].opcode == IBV_WC_RECV) != (wc[1].opcode == IBV_WC_RECV));
	CHECK(!strcmp(&memory[8 * SLOT + GRH], "the first"));
	CHECK(!ibv_detach_mcast(qp, &a, 0));
	send_to(qp, second, "the second");
	wait_for_both();
	send_to(qp, first, "the third");
	notify_both();
	wait_for_both();
	send_to(qp, first, "the fourth");
	notify_both();
	for (int nth = 0; nth < 2; nth++) {
		int status;
		CHECK(waitpid(children[nth], &status, 0) == children[nth] && status == 0);
	}
	return 0;
}
