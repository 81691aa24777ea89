/* XRC domains, their shared receive queues, and targets opened twice: xrc.rs runs it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char memory[4096];

static struct ibv_xrcd *domain(int fd, int flags)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd, .oflags = flags };
	return ibv_open_xrcd(context, &init);
}

static struct ibv_srq *queue(struct ibv_xrcd *xrcd, uint32_t *number)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 8, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.pd = pd, .xrcd = xrcd, .cq = cq };
	struct ibv_srq *srq = ibv_create_srq_ex(context, &init);
	CHECK(srq && !ibv_get_srq_num(srq, number));
	return srq;
}

static struct ibv_qp *open_target(struct ibv_xrcd *xrcd, uint32_t number)
{
	struct ibv_qp_open_attr attr = { .qp_num = number, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE };
	return ibv_open_qp(context, &attr);
}

/* The queue pair of the next asynchronous event, which is an access error. */
static struct ibv_qp *failed(void)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	CHECK(poll(&fd, 1, 10000) == 1);
	CHECK(!ibv_get_async_event(context, &event) && event.event_type == IBV_EVENT_QP_ACCESS_ERR);
	uint32_t before = event.element.qp->events_completed;
	ibv_ack_async_event(&event);
	CHECK(event.element.qp->events_completed == before + 1);
	return event.element.qp;
}

/* A forked child has a device of its own, which has none of its parent's domains. Handles name objects of that device,
   although objects of its parent's device have the same handles. */
static void in_child(int fd)
{
	pid_t child = fork();
	if (!child) {
		uint32_t number;
		context = opened();
		pd = ibv_alloc_pd(context);
		cq = ibv_create_cq(context, 16, NULL, NULL, 0);
		CHECK(pd && cq && !domain(fd, 0) && errno == EAGAIN);
		struct ibv_xrcd *xrcd = domain(fd, O_CREAT);
		CHECK(xrcd);
		struct ibv_srq *srq = queue(xrcd, &number);
		CHECK(!ibv_destroy_srq(srq) && !ibv_close_xrcd(xrcd));
		struct ibv_context *other = ibv_import_device(context->cmd_fd);
		CHECK(other);
		struct ibv_pd *imported = ibv_import_pd(other, pd->handle);
		struct ibv_mr *mr = ibv_reg_mr(imported, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		CHECK(imported && mr);
		CHECK(!ibv_dereg_mr(mr));
		ibv_unimport_pd(imported);
		CHECK(!ibv_close_device(other));
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static struct ibv_xrcd *common;
static uint32_t last_target;
static int has_ended;

/* Opens the last target and destroys the structure, if the target is there. */
static void *opens_and_destroys(void *unused)
{
	while (!__atomic_load_n(&has_ended, __ATOMIC_SEQ_CST)) {
		struct ibv_qp *qp = open_target(common, __atomic_load_n(&last_target, __ATOMIC_SEQ_CST));
		CHECK(qp ? !ibv_destroy_qp(qp) : errno == EINVAL);
	}
	return unused;
}

/* Threads open a target and destroy its structures at the same time: it ends with the last, and leaves its domain. */
static void at_once(void)
{
	pthread_t threads[3];
	CHECK(common = domain(-1, O_CREAT));
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&threads[i], NULL, opens_and_destroys, NULL));
	for (int i = 0; i < 300; i++) {
		struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = common };
		struct ibv_qp *target = ibv_create_qp_ex(context, &init);
		CHECK(target);
		__atomic_store_n(&last_target, target->qp_num, __ATOMIC_SEQ_CST);
		if (i % 3)
			sched_yield();
		CHECK(!ibv_destroy_qp(target));
	}
	__atomic_store_n(&has_ended, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!ibv_close_xrcd(common));
}

int main(void)
{
	context = opened();
	struct ibv_device_attr can;
	CHECK(!ibv_query_device(context, &can) && can.device_cap_flags & IBV_DEVICE_XRC);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, REMOTE);
	CHECK(pd && cq && mr);

	char name[] = "/tmp/xrc-XXXXXX";
	int fd = mkstemp(name), same = open(name, O_RDONLY);
	CHECK(fd >= 0 && same >= 0 && !unlink(name));
	CHECK(!domain(fd, 0) && errno == EAGAIN);
	CHECK(!domain(1000, O_CREAT) && errno == EBADF);
	struct ibv_xrcd *xrcd = domain(fd, O_CREAT), *second = domain(same, 0), *own = domain(-1, O_CREAT);
	CHECK(xrcd && second && own && xrcd != second);
	CHECK(!domain(same, O_CREAT | O_EXCL) && errno == EINVAL);
	in_child(fd);
	/* File systems give the inode of a deleted file to the next one. */
	CHECK(!close(fd) && !close(same));
	strcpy(name, "/tmp/xrc-XXXXXX");
	CHECK((fd = mkstemp(name)) >= 0 && !unlink(name));
	CHECK(!domain(fd, 0) && errno == EAGAIN);
	at_once();

	/* The shared receive queue is created by one structure of the domain, the target by the other. */
	uint32_t number, other;
	struct ibv_srq *srq = queue(xrcd, &number), *stranger = queue(own, &other);
	CHECK(number != other && number < 1 << 24);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = second };
	struct ibv_qp *target = ibv_create_qp_ex(context, &init);
	CHECK(target);
	init = (struct ibv_qp_init_attr_ex){ .qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
		.send_cq = cq, .sq_sig_all = 1, .cap = { .max_send_wr = 8, .max_send_sge = 1 } };
	struct ibv_qp *initiator = ibv_create_qp_ex(context, &init);
	CHECK(initiator);
	CHECK(!open_target(own, target->qp_num) && errno == EINVAL);
	CHECK(!open_target(xrcd, initiator->qp_num) && errno == EINVAL);
	struct ibv_qp *again = open_target(xrcd, target->qp_num);
	CHECK(again && again != target && again->qp_num == target->qp_num);

	/* The target exists as long as one of its structures. */
	connect_qp(again, initiator->qp_num, REMOTE);
	connect_qp(initiator, target->qp_num, REMOTE);
	CHECK(!ibv_destroy_qp(target));
	struct ibv_sge from = { (uintptr_t)memory, 32, mr->lkey }, to = { (uintptr_t)memory + 2048, 32, mr->lkey };
	struct ibv_recv_wr *bad_receive, receive = { .wr_id = 5, .sg_list = &to, .num_sge = 1 };
	CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
	strcpy(memory, "by its number");
	struct ibv_send_wr *bad, wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .qp_type.xrc.remote_srqn = number };
	CHECK(!ibv_post_send(initiator, &wr, &bad));
	struct ibv_wc wc[2] = { succeeded(cq), succeeded(cq) };
	int received = wc[0].opcode == IBV_WC_RECV ? 0 : 1;
	CHECK(wc[received].opcode == IBV_WC_RECV && wc[received].wr_id == 5 && wc[received].qp_num == again->qp_num);
	CHECK(!strcmp(memory + 2048, "by its number"));

	/* Each structure of the target receives its events. */
	struct ibv_qp *third = open_target(xrcd, again->qp_num);
	CHECK(third);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = ~mr->rkey;
	CHECK(!ibv_post_send(initiator, &wr, &bad) && polled(cq).status == IBV_WC_REM_ACCESS_ERR);
	struct ibv_qp *of[2] = { failed(), failed() };
	CHECK((of[0] == again && of[1] == third) || (of[0] == third && of[1] == again));
	CHECK(!ibv_destroy_qp(third));

	CHECK(!ibv_close_xrcd(second) && ibv_close_xrcd(xrcd) == EBUSY);
	CHECK(!ibv_destroy_qp(again) && ibv_close_xrcd(xrcd) == EBUSY);
	CHECK(!ibv_destroy_qp(initiator) && !ibv_destroy_srq(srq) && !ibv_close_xrcd(xrcd));
	CHECK(!ibv_destroy_srq(stranger) && !ibv_close_xrcd(own));
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
