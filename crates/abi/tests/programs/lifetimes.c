/* Opens and closes contexts, unmaps registered memory, and forks; run by lifetimes.rs. Exits with 0, or prints the failed
   check. */
#include <dirent.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
#define PAGE 4096
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
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(o.cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc.status;
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
   not grow. */
static void contexts(int many)
{
	static struct objects open[100];
	int fds = 0, threads = 0;
	long memory = 0;
	for (int i = 0; i < many; i++) {
		if (i == many / 2)
			fds = count("/proc/self/fd"), threads = count("/proc/self/task"), memory = resident_kb();
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
	CHECK(count("/proc/self/task") == threads);
	CHECK(resident_kb() < memory + 1024);
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

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "contexts"))
		contexts(atoi(argv[2]));
	else if (argc == 2 && !strcmp(argv[1], "unmapped"))
		unmapped();
	else if (argc == 2 && !strcmp(argv[1], "forked"))
		forked();
	else
		return 2;
	return 0;
}
