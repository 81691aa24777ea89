/* Opens and closes contexts, unmaps registered memory, and forks; run by lifetimes.rs. Exits with 0, or prints the failed
   check. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define PAGE 4096

/* Posts an operation to the first queue pair and returns the status of its completion. */
static enum ibv_wc_status status_of(struct objects o, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to,
	unsigned length)
{
	struct ibv_sge sge = { (uintptr_t)from->addr, length, from->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.remote_addr = (uintptr_t)to->addr, wr.wr.atomic.rkey = to->rkey, wr.wr.atomic.compare_add = 1;
	else
		wr.wr.rdma.remote_addr = (uintptr_t)to->addr, wr.wr.rdma.rkey = to->rkey;
	CHECK(!ibv_post_send(o.qp[0], &wr, &bad));
	return polled(o.cq).status;
}

static struct ibv_mr *region(struct objects o)
{
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(o.pd, memory, PAGE, REMOTE);
	CHECK(mr);
	return mr;
}

static int count(const char *folder)
{
	DIR *dir = opendir(folder);
	int entries = 0;
	while (readdir(dir))
		entries++;
	closedir(dir);
	return entries;
}

/* Counts the threads until there are so many, for a second at most: a thread that was joined is in /proc until the kernel is done
   with it. */
static int threads_down_to(int expected)
{
	int threads = count("/proc/self/task");
	for (int i = 0; i < 1000 && threads > expected; i++) {
		usleep(1000);
		threads = count("/proc/self/task");
	}
	return threads;
}

static long resident_kb(void)
{
	char line[256];
	long kb = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		sscanf(line, "VmRSS: %ld", &kb);
	fclose(status);
	return kb;
}

/* Opens and closes contexts, one after another and 100 at once: the numbers of descriptors and threads and the memory must
   not grow any more after the first half, in which the C library's arenas fill. */
static void contexts(int many)
{
	static struct objects open[100];
	int fds = 0, threads = count("/proc/self/task");
	long memory = 0;
	for (int i = 0; i < many; i++) {
		if (i == many / 2)
			fds = count("/proc/self/fd"), threads = threads_down_to(threads), memory = resident_kb();
		if (i % 100)
			destroy(make());
		else {
			for (int nth = 0; nth < 100; nth++)
				open[nth] = make();
			for (int nth = 0; nth < 100; nth++)
				destroy(open[nth]);
		}
	}
	CHECK(count("/proc/self/fd") == fds);
	CHECK(threads_down_to(threads) == threads);
	CHECK(resident_kb() < memory + 1024);
}

/* Closes a context that has a connected queue pair, a region and a window: a peer's WRITE fails and leaves the memory as it
   was. The program may still pass the context's objects to verbs; they keep no descriptors or threads. */
static void left(void)
{
	struct objects near = make();
	struct ibv_mr *from = region(near);
	memset(from->addr, 1, PAGE);
	/* An imported context shares the objects of the contexts that are open at that time, not of later ones. */
	int fds = count("/proc/self/fd"), threads = 0;
	for (int i = 0; i < 100; i++) {
		struct ibv_context *imported = ibv_import_device(near.context->cmd_fd);
		CHECK(imported && !ibv_close_device(imported));
	}
	CHECK(count("/proc/self/fd") == fds);
	for (int i = 0; i < 100; i++) {
		struct objects far = make();
		connect_qp(near.qp[0], far.qp[0]->qp_num, REMOTE);
		connect_qp(far.qp[0], near.qp[0]->qp_num, REMOTE);
		struct ibv_mr *to = region(far);
		struct ibv_mw *window = ibv_alloc_mw(far.pd, IBV_MW_TYPE_1);
		CHECK(window && ibv_create_cq(far.context, 1, NULL, NULL, 0));
		if (i % 10 == 0)
			CHECK(status_of(near, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
		char *memory = to->addr;
		memset(memory, 0, PAGE);
		CHECK(!ibv_close_device(far.context));
		if (i % 10 == 0)
			CHECK(status_of(near, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_RETRY_EXC_ERR && !memory[0]);

		struct ibv_recv_wr *bad, receive = { .wr_id = 1 };
		struct ibv_wc wc;
		CHECK(ibv_post_recv(far.qp[0], &receive, &bad) == EINVAL && bad == &receive);
		CHECK(!ibv_poll_cq(far.cq, 1, &wc));
		CHECK(ibv_destroy_qp(far.qp[0]) == EINVAL && ibv_dereg_mr(to) == EINVAL && ibv_dealloc_mw(window) == EINVAL);
		CHECK(!ibv_destroy_cq(far.cq) && !ibv_dealloc_pd(far.pd) && !ibv_destroy_comp_channel(far.channel));
		CHECK(!munmap(memory, PAGE));
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
		CHECK(!ibv_modify_qp(near.qp[0], &reset, IBV_QP_STATE));
		if (i == 0)
			fds = count("/proc/self/fd"), threads = count("/proc/self/task");
	}
	CHECK(count("/proc/self/fd") == fds);
	CHECK(threads_down_to(threads) == threads);
	CHECK(!ibv_dereg_mr(from));
	destroy(near);
}

/* Unmaps memory while it is registered: the next access completes in error. */
static void unmapped(void)
{
	static const enum ibv_wr_opcode all[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	for (int there = 0; there < 2; there++)
		for (int i = 0; i < 3; i++) {
			struct objects o = make();
			connect_pair(o);
			struct ibv_mr *from = region(o), *to = region(o);
			unsigned length = all[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 64;
			CHECK(status_of(o, all[i], from, to, length) == IBV_WC_SUCCESS);
			munmap(there ? to->addr : from->addr, PAGE);
			CHECK(status_of(o, all[i], from, to, length) != IBV_WC_SUCCESS);
			CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
			destroy(o);
		}
}

/* A forked child uses its parent's objects: its requests complete in error, and the parent's connections still work. */
static void forked(void)
{
	struct objects o = make();
	connect_pair(o);
	struct ibv_mr *from = region(o), *to = region(o);
	for (int i = 0; i < 20; i++) {
		CHECK(status_of(o, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
		pid_t child = fork();
		if (!child) {
			memset(from->addr, 1, 64);
			if (i % 2)
				CHECK(status_of(o, IBV_WR_RDMA_WRITE, from, to, 64) != IBV_WC_SUCCESS);
			CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
			destroy(o);
			struct objects own = make();
			connect_pair(own);
			from = region(own), to = region(own);
			CHECK(status_of(own, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
			exit(0);
		}
		CHECK(status_of(o, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(*(char *)to->addr == 0);
	}
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
	destroy(o);
}

static void *asks(void *qp)
{
	for (;;)
		CHECK(!ibv_qp_to_qp_ex(qp));
	return NULL;
}

/* Opens and closes a domain, and takes an event of a channel that has none. */
static void renew(struct objects *o)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(o->context, &init);
	struct ibv_cq *event, *cq = ibv_create_cq(o->context, 1, NULL, o->channel, 0);
	void *context;
	CHECK(xrcd && cq && ibv_get_cq_event(o->channel, &event, &context));
	CHECK(!ibv_destroy_cq(cq) && !ibv_close_xrcd(xrcd));
}

static void *renews(void *o)
{
	for (;;)
		renew(o);
	return NULL;
}

/* Forks while other threads call verbs: the child can use them. */
static void forked_amid_verbs(void)
{
	struct objects o = make();
	pthread_t thread;
	CHECK(!fcntl(o.channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(!pthread_create(&thread, NULL, asks, o.qp[0]) && !pthread_create(&thread, NULL, renews, &o));
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		if (!child) {
			alarm(20);
			renew(&o);
			struct objects own = make();
			CHECK(!fcntl(own.channel->fd, F_SETFL, O_NONBLOCK));
			renew(&own);
			destroy(own);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	exit(0);
}

/* A forked child destroys queues that have events, and takes one: its parent still finds its own. */
static void events(void)
{
	struct objects o = make();
	connect_pair(o);
	struct ibv_mr *from = region(o), *to = region(o);
	CHECK(!ibv_req_notify_cq(o.cq, 0));
	CHECK(status_of(o, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
	struct pollfd fd = { .fd = o.channel->fd, .events = POLLIN };
	CHECK(poll(&fd, 1, 10000) == 1);
	struct ibv_cq *cq;
	void *context;
	for (int takes = 0; takes < 2; takes++) {
		pid_t child = fork();
		if (!child) {
			if (takes) {
				CHECK(!ibv_get_cq_event(o.channel, &cq, &context) && cq == o.cq);
				ibv_ack_cq_events(cq, 1);
				CHECK(ibv_get_cq_event(o.channel, &cq, &context) && errno == ENODEV);
			}
			CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
			destroy(o);
			exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(poll(&fd, 1, 0) == 1);
	}
	CHECK(!ibv_get_cq_event(o.channel, &cq, &context) && cq == o.cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
	destroy(o);
}

/* Sends a signal to a child, which opened a device and reads, until the child has read a byte or ends. Returns the child's status. */
static int status_after(int number, void (*action)(int))
{
	int bytes[2], status;
	CHECK(!pipe(bytes));
	signal(number, action);
	pid_t child = fork();
	if (!child) {
		char byte;
		struct objects o = make();
		kill(getpid(), number);
		CHECK(read(bytes[0], &byte, 1) == 1);
		destroy(o);
		exit(0);
	}
	signal(number, SIG_DFL);
	for (int i = 0; i < 100 && action == SIG_IGN; i++) {
		kill(child, number);
		usleep(1000);
	}
	CHECK(write(bytes[1], "", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child);
	close(bytes[0]);
	close(bytes[1]);
	return status;
}

/* A signal that a process sends ends the program, unless it is ignored: then it interrupts nothing. */
static void signals(void)
{
	static const int all[] = { SIGSEGV, SIGBUS };
	for (int i = 0; i < 2; i++) {
		int status = status_after(all[i], SIG_DFL);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == all[i]);
		CHECK(status_after(all[i], SIG_IGN) == 0);
	}
}

/* Counts its calls in the exit status, and sends the signal again. */
static void raises_again(int number)
{
	static int calls;
	if (++calls > 1)
		_exit(10 + calls);
	raise(number);
	_exit(calls);
}

/* Returns the status of a child with a handler and a device, whose next access faults. */
static int status_of_fault(int flags)
{
	int status;
	pid_t child = fork();
	if (!child) {
		struct sigaction action = { .sa_handler = raises_again, .sa_flags = flags };
		CHECK(!sigaction(SIGSEGV, &action, NULL));
		opened();
		*(volatile char *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

/* A handler that the program had before is called once for a fault of its own: a signal that it sends to itself is blocked, or ends the
   program where the handler was for one signal. */
static void faults(void)
{
	int blocked = status_of_fault(0), reset = status_of_fault(SA_RESETHAND | SA_NODEFER);
	CHECK(WIFEXITED(blocked) && WEXITSTATUS(blocked) == 1);
	CHECK(WIFSIGNALED(reset) && WTERMSIG(reset) == SIGSEGV);
}

static int sent;

static void *waits_for_completion(void *of)
{
	struct objects *o = of;
	struct ibv_cq *cq;
	void *context;
	ibv_get_cq_event(o->channel, &cq, &context);
	return NULL;
}

static void *waits_for_event(void *of)
{
	struct objects *o = of;
	struct ibv_async_event event;
	ibv_get_async_event(o->context, &event);
	return NULL;
}

/* Calls verbs that read files, or open and close descriptors, and sends a datagram to an unused address, to which there is
   no link through memory. An RNIC, which has no datagrams, only answers queries. */
static void use_files(struct objects o)
{
	struct ibv_device_attr device;
	struct ibv_gid_entry entry;
	CHECK(!ibv_query_device(o.context, &device) && !ibv_query_gid_ex(o.context, 1, 1, &entry, 0));
	struct ibv_qp_init_attr attributes = { .send_cq = o.cq, .recv_cq = o.cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(o.pd, &attributes);
	if (!qp)
		return;
	start_datagrams(qp, 7);
	union ibv_gid group = entry.gid;
	memcpy(&group.raw[12], (uint8_t[]){ 239, 255, 91, 3 }, 4);
	CHECK(!ibv_attach_mcast(qp, &group, 0) && !ibv_detach_mcast(qp, &group, 0) && !ibv_attach_mcast(qp, &group, 0));
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1, .grh = { .dgid = entry.gid, .hop_limit = 1 } };
	path.grh.dgid.raw[14] = sent, path.grh.dgid.raw[15] = 254;
	struct ibv_ah *ah = ibv_create_ah(o.pd, &path);
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .wr.ud = { .ah = ah, .remote_qpn = 9, .remote_qkey = 7 } };
	CHECK(ah && !ibv_post_send(qp, &wr, &bad));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah));
	struct ibv_xrcd_init_attr shared = { .comp_mask = 3, .fd = o.context->async_fd, .oflags = O_CREAT };
	for (int i = 0; i < 2; i++) {
		struct ibv_xrcd *first = ibv_open_xrcd(o.context, &shared), *second = ibv_open_xrcd(o.context, &shared);
		CHECK(first && second && !ibv_close_xrcd(first) && !ibv_close_xrcd(second));
	}
}

/* Sends to itself and polls. Only verbs that wait for events are cancellation points. */
static void *sends(void *of)
{
	struct objects *o = of;
	struct ibv_mr *from = region(*o), *to = region(*o);
	CHECK(!pthread_cancel(pthread_self()));
	CHECK(!ibv_req_notify_cq(o->cq, 0));
	CHECK(status_of(*o, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
	struct ibv_mr *again = ibv_reg_mr(o->pd, o, sizeof(*o), IBV_ACCESS_LOCAL_WRITE);
	CHECK(again && !ibv_dereg_mr(again));
	struct ibv_comp_channel *channel = ibv_create_comp_channel(o->context);
	CHECK(channel && !ibv_destroy_comp_channel(channel));
	struct objects others = make();
	connect_pair(others);
	destroy(others);
	use_files(*o);
	sent++;
	pthread_testcancel();
	return NULL;
}

/* Cancels threads that wait for events, and one that calls other verbs. The device and its events go on. */
static void cancelled(void)
{
	void *(*const threads[])(void *) = { waits_for_completion, waits_for_event, sends };
	struct objects o = make();
	connect_pair(o);
	struct ibv_mr *from = region(o), *to = region(o);
	alarm(60);
	for (int i = 0; i < 30; i++) {
		pthread_t thread;
		void *result, *context;
		struct ibv_cq *cq;
		CHECK(!pthread_create(&thread, NULL, threads[i % 3], &o));
		if (threads[i % 3] != sends) {
			usleep(20000);
			CHECK(!pthread_cancel(thread));
		}
		CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
		if (threads[i % 3] != sends) {
			CHECK(!ibv_req_notify_cq(o.cq, 0));
			CHECK(status_of(o, IBV_WR_RDMA_WRITE, from, to, 64) == IBV_WC_SUCCESS);
		}
		CHECK(!ibv_get_cq_event(o.channel, &cq, &context) && cq == o.cq);
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(sent == 10);
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));
	destroy(o);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "contexts"))
		contexts(4000);
	else if (argc == 2 && !strcmp(argv[1], "forked amid verbs"))
		forked_amid_verbs();
	else if (argc == 2 && !strcmp(argv[1], "events"))
		events();
	else if (argc == 2 && !strcmp(argv[1], "cancelled"))
		cancelled();
	else if (argc == 2 && !strcmp(argv[1], "signals"))
		signals();
	else if (argc == 2 && !strcmp(argv[1], "faults"))
		faults();
	else if (argc == 2 && !strcmp(argv[1], "left"))
		left();
	else if (argc == 2 && !strcmp(argv[1], "unmapped"))
		unmapped();
	else if (argc == 2 && !strcmp(argv[1], "forked"))
		forked();
	else
		return 2;
	return 0;
}
