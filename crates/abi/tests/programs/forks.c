/* A forked child cleans up what it has inherited, or outlives its parent; run by forks.rs. Exits with 0, or prints the failed check. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define PAGE 4096

/* Runs `act` in a child; returns once it has ended with 0. */
static void in_child(void (*act)(void))
{
	pid_t child = fork();
	if (!child) {
		alarm(20);
		act();
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Writes from one queue pair to another of the device that it opens. */
static void use_device(void)
{
	struct objects o = make();
	connect_pair(o);
	static char memory[2 * PAGE];
	struct ibv_mr *mr = ibv_reg_mr(o.pd, memory, sizeof memory, REMOTE);
	CHECK(mr);
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)memory + PAGE, mr->rkey } };
	CHECK(!ibv_post_send(o.qp[0], &wr, &bad));
	succeeded(o.cq);
	CHECK(!ibv_dereg_mr(mr));
	destroy(o);
}

static int has_ended[2], result[2];

/* Opens the device, leaves a child that opens it once this process has ended, and ends without closing it. */
static void leave_orphan(void)
{
	struct objects o = make();
	connect_pair(o);
	if (fork())
		_exit(0);
	char byte;
	close(has_ended[1]);
	CHECK(read(has_ended[0], &byte, 1) == 0);
	use_device();
	CHECK(write(result[1], "", 1) == 1);
	_exit(0);
}

/* The address of a process that has ended is free, although its child has not. */
static void orphan(void)
{
	CHECK(!pipe(has_ended) && !pipe(result));
	in_child(leave_orphan);
	/* Closes the last write end, so that the orphan's read returns. */
	close(has_ended[1]);
	struct pollfd fd = { .fd = result[0], .events = POLLIN };
	close(result[1]);
	CHECK(poll(&fd, 1, 20000) == 1);
	char byte;
	CHECK(read(result[0], &byte, 1) == 1);
}

static struct objects inherited;
static union ibv_gid group;

static struct ibv_qp *datagrams(void)
{
	struct ibv_qp_init_attr init = { .send_cq = inherited.cq, .recv_cq = inherited.cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(inherited.pd, &init);
	CHECK(qp);
	start_datagrams(qp, 1);
	return qp;
}

static struct ibv_qp *member;

static void detach(void)
{
	CHECK(!ibv_detach_mcast(member, &group, 0));
}

static void join_again(void)
{
	union ibv_gid other = group;
	other.raw[15]++;
	CHECK(ibv_attach_mcast(member, &other, 0));
	CHECK(!ibv_destroy_qp(member));
	destroy(inherited);
}

/* Children leave a group: their parent still receives its datagrams. */
static void multicast(void)
{
	static char memory[512];
	CHECK(inet_pton(AF_INET6, "::ffff:239.255.91.7", &group) == 1);
	inherited = make();
	member = datagrams();
	struct ibv_qp *sender = datagrams();
	struct ibv_mr *mr = ibv_reg_mr(inherited.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && !ibv_attach_mcast(member, &group, 0));
	in_child(detach);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(inherited.pd, &attr);
	CHECK(ah);
	struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, mr->lkey };
	struct ibv_recv_wr *bad_receive, receive = { .sg_list = &sge, .num_sge = 1 };
	CHECK(!ibv_post_recv(member, &receive, &bad_receive));
	sge.length = 32;
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.wr.ud = { .ah = ah, .remote_qpn = 0xFFFFFF, .remote_qkey = 1 } };
	CHECK(!ibv_post_send(sender, &wr, &bad));
	alarm(20);
	CHECK(succeeded(inherited.cq).opcode != succeeded(inherited.cq).opcode);
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_ah(ah) && !ibv_destroy_qp(sender));
	in_child(join_again);
	CHECK(!ibv_detach_mcast(member, &group, 0));
}

/* librdmacm's functions, without its headers: identifiers are opaque. */
#define RDMA_PS_TCP 0x0106
#define CONNECT_REQUEST 4

struct channel { int fd; };
struct event { void *id, *listen_id; int event, status; };

static struct channel *(*create_channel)(void);
static void (*destroy_channel)(struct channel *);
static int (*create_id)(struct channel *, void **id, void *context, int space);
static int (*destroy_id)(void *id);
static int (*bind_address)(void *id, struct sockaddr *);
static int (*listen_at)(void *id, int backlog);
static int (*get_event)(struct channel *, struct event **);
static int (*acknowledge)(struct event *);

static void load_librdmacm(void)
{
	void *library = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(library);
	CHECK(*(void **)&create_channel = dlsym(library, "rdma_create_event_channel"));
	CHECK(*(void **)&destroy_channel = dlsym(library, "rdma_destroy_event_channel"));
	CHECK(*(void **)&create_id = dlsym(library, "rdma_create_id"));
	CHECK(*(void **)&destroy_id = dlsym(library, "rdma_destroy_id"));
	CHECK(*(void **)&bind_address = dlsym(library, "rdma_bind_addr"));
	CHECK(*(void **)&listen_at = dlsym(library, "rdma_listen"));
	CHECK(*(void **)&get_event = dlsym(library, "rdma_get_cm_event"));
	CHECK(*(void **)&acknowledge = dlsym(library, "rdma_ack_cm_event"));
}

static struct channel *channel;
static void *id;
static struct sockaddr_in place = { .sin_family = AF_INET };

static int bound(void)
{
	CHECK((channel = create_channel()) && !create_id(channel, &id, NULL, RDMA_PS_TCP));
	return bind_address(id, (struct sockaddr *)&place);
}

static void destroy_inherited(void)
{
	CHECK(!destroy_id(id));
	destroy_channel(channel);
}

static int turn[2], ended[2];

static void bind_in_turn(void)
{
	char byte;
	CHECK(read(turn[0], &byte, 1) == 1);
	CHECK(bound() == -1);
	CHECK(write(ended[1], "", 1) == 1);
}

/* A child destroys an identifier: its port stays its parent's. */
static void port(void)
{
	CHECK(!pipe(turn) && !pipe(ended));
	pid_t other = fork();
	if (!other) {
		alarm(20);
		bind_in_turn();
		exit(0);
	}
	CHECK(!bound());
	in_child(destroy_inherited);
	CHECK(write(turn[1], "", 1) == 1);
	int status;
	CHECK(waitpid(other, &status, 0) == other && status == 0);
	CHECK(!destroy_id(id));
	destroy_channel(channel);
}

/* Writes an MPA Request (RFC 5044, section 7.1) to the listener. */
static int request(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(fd, (struct sockaddr *)&place, sizeof place));
	static const char frame[20] = "MPA ID Req Frame\x40\x01\0\0";
	CHECK(write(fd, frame, sizeof frame) == sizeof frame);
	return fd;
}

/* A child destroys a listener: its parent's still accepts, and rejects none of its peers. */
static void listener(void)
{
	CHECK(!bound() && !listen_at(id, 8));
	int first = request();
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&readable, 1, 20000) == 1);
	in_child(destroy_inherited);
	struct pollfd rejected = { .fd = first, .events = POLLIN };
	CHECK(poll(&rejected, 1, 100) == 0);
	alarm(20);
	for (int nth = 0; nth < 2; nth++) {
		struct event *event;
		CHECK(!get_event(channel, &event) && event->event == CONNECT_REQUEST);
		void *connection = event->id;
		CHECK(!acknowledge(event) && !destroy_id(connection));
		if (!nth)
			request();
	}
}

/* Arguments: the test, and the address and port of connections. */
int main(int count, char **arguments)
{
	CHECK(count == 4 && inet_pton(AF_INET, arguments[2], &place.sin_addr) == 1);
	place.sin_port = htons(atoi(arguments[3]));
	if (!strcmp(arguments[1], "orphan"))
		orphan();
	else if (!strcmp(arguments[1], "multicast"))
		multicast();
	else {
		load_librdmacm();
		strcmp(arguments[1], "port") ? listener() : port();
	}
	return 0;
}
