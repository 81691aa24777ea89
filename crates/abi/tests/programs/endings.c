/* Sends 100 messages from one queue pair to another and ends in the way that the argument names. Run by endings.rs, with a
   capture. */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct objects o;
static char memory[128];
static struct ibv_mr *region;

static void send_messages(int from, int to)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, region->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 64;
	wr.wr.rdma.rkey = region->rkey;
	for (int i = from; i < to; i++) {
		snprintf(memory, 64, "message %d of the capture", i);
		CHECK(!ibv_post_send(o.qp[0], &wr, &bad));
		succeeded(o.cq);
	}
}

static void exit_3(int signal)
{
	(void)signal;
	exit(3);
}

static void exit_3_at_once(int signal)
{
	(void)signal;
	_exit(3);
}

static void die(int number)
{
	signal(number, SIG_DFL);
	raise(number);
}

/* Polls until a timer's signal interrupts it, most likely within the library. */
static void interrupted(void (*handler)(int))
{
	struct itimerval soon = { .it_value = { .tv_usec = 100000 } };
	struct ibv_wc wc;

	signal(SIGALRM, handler);
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	for (;;)
		ibv_poll_cq(o.cq, 1, &wc);
}

int main(int argc, char **argv)
{
	const char *way = argc == 2 ? argv[1] : "";

	o = make();
	connect_pair(o);
	CHECK(region = ibv_reg_mr(o.pd, memory, sizeof(memory), REMOTE));
	send_messages(0, 50);
	if (!strcmp(way, "fork")) {
		pid_t child = fork();
		int status;
		if (child == 0)
			exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	if (!strcmp(way, "truncate"))
		CHECK(!truncate(getenv("NICHROME_CAPTURE"), 0));
	send_messages(50, 100);

	if (!strcmp(way, "close")) {
		CHECK(!ibv_dereg_mr(region));
		destroy(o);
	} else if (!strcmp(way, "exit")) {
		exit(0);
	} else if (!strcmp(way, "_exit")) {
		_exit(0);
	} else if (!strcmp(way, "quick_exit")) {
		quick_exit(0);
	} else if (!strcmp(way, "exit_group")) {
		syscall(SYS_exit_group, 0);
	} else if (!strcmp(way, "exec")) {
		execl("/bin/true", "true", NULL);
	} else if (!strcmp(way, "abort")) {
		abort();
	} else if (!strcmp(way, "fault")) {
		*(volatile char *)8 = 0;
	} else if (!strcmp(way, "exit in a handler")) {
		interrupted(exit_3);
	} else if (!strcmp(way, "_exit in a handler")) {
		interrupted(exit_3_at_once);
	} else if (!strcmp(way, "default action in a handler")) {
		interrupted(die);
	} else if (!strncmp(way, "signal ", 7)) {
		signal(atoi(way + 7), SIG_DFL);
		raise(atoi(way + 7));
	}
	/* The other ways return. */
	return 0;
}
