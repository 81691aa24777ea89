/* Parent domains, imported objects, memory paged on demand: domains.rs runs it. Ends with 0, or says what is wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ODP (REMOTE | IBV_ACCESS_ON_DEMAND)
#define PAGE 4096

static char memory[2 * PAGE];

/* A queue pair of a domain, connected to itself. */
static struct ibv_qp *loop(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->pd == pd);
	connect_qp(qp, qp->qp_num, REMOTE);
	return qp;
}

/* Writes a page from one place to another. */
static enum ibv_wc_status write_page(struct ibv_qp *qp, void *from, uint32_t lkey, void *to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)from, PAGE, lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)to, rkey } };
	CHECK(!ibv_post_send(qp, &wr, &bad));
	return polled(qp->send_cq).status;
}

static void parents(void)
{
	struct ibv_context *context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &none);
	CHECK(pd && td && td->context == context);
	struct ibv_parent_domain_init_attr init = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &init);
	CHECK(parent && parent != pd && parent->context == context);
	init.comp_mask = 1 << 5;
	CHECK(!ibv_alloc_parent_domain(context, &init) && errno == EINVAL);
	init = (struct ibv_parent_domain_init_attr){ .td = td };
	CHECK(!ibv_alloc_parent_domain(context, &init) && errno == EINVAL);
	init = (struct ibv_parent_domain_init_attr){ .pd = pd };
	struct ibv_pd *second = ibv_alloc_parent_domain(context, &init);
	CHECK(second);
	init.pd = second;
	struct ibv_pd *third = ibv_alloc_parent_domain(context, &init);
	CHECK(third && ibv_dealloc_pd(second) == EBUSY && !ibv_dealloc_pd(third));

	/* A queue pair of the parent domain accesses a region of its protection domain. */
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, REMOTE);
	CHECK(cq && mr);
	struct ibv_qp *qp = loop(parent, cq);
	memset(memory, 7, PAGE);
	CHECK(write_page(qp, memory, mr->lkey, memory + PAGE, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, memory + PAGE, PAGE));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));

	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_td(td) == EBUSY);
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td) && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dealloc_pd(second) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
}

static void imports(void)
{
	struct ibv_context *context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, REMOTE);
	CHECK(pd && mr);
	CHECK(!ibv_import_device(-1) && !ibv_import_device(STDERR_FILENO));
	int fd = dup(context->cmd_fd);
	CHECK(fd >= 0);
	struct ibv_context *other = ibv_import_device(fd);
	CHECK(other && other != context && other->device == context->device);
	CHECK(!ibv_import_pd(other, pd->handle + 77) && errno == ENOENT);
	struct ibv_pd *same = ibv_import_pd(other, pd->handle);
	CHECK(same && same != pd && same->context == other && same->handle == pd->handle);
	CHECK(!ibv_import_mr(same, mr->handle + 77) && errno == ENOENT);
	struct ibv_mr *also = ibv_import_mr(same, mr->handle);
	CHECK(also && also != mr && also->pd == same && also->lkey == mr->lkey && also->rkey == mr->rkey &&
		also->length == mr->length);

	struct ibv_cq *cq = ibv_create_cq(other, 16, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp *qp = loop(same, cq);
	memset(memory, 9, PAGE);
	CHECK(write_page(qp, memory, also->lkey, memory + PAGE, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, memory + PAGE, PAGE));
	ibv_unimport_mr(also);
	CHECK(write_page(qp, memory, mr->lkey, memory + PAGE, mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	ibv_unimport_pd(same);
	CHECK(!ibv_close_device(other) && !close(fd));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static void paging(void)
{
	struct ibv_context *context = opened();
	struct ibv_device_attr_ex attr;
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC);
	CHECK(!(attr.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_WRITE));
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp *qp = loop(pd, cq);

	/* The memory is mapped after it is registered. */
	char *place = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(place != MAP_FAILED && !munmap(place, 2 * PAGE));
	CHECK(!ibv_reg_mr(pd, place, 2 * PAGE, REMOTE));
	struct ibv_mr *late = ibv_reg_mr(pd, place, 2 * PAGE, ODP);
	CHECK(late);
	CHECK(mmap(place, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
	struct ibv_sge sge = { (uintptr_t)place, PAGE, late->lkey };
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(ibv_advise_mr(pd, 99, 0, &sge, 1) == EINVAL && ibv_advise_mr(pd, 0, 1 << 7, &sge, 1) == EINVAL);
	memset(place, 3, PAGE);
	CHECK(write_page(qp, place, late->lkey, place + PAGE, late->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(place, place + PAGE, PAGE));

	/* One region for every address of the process. */
	CHECK(!ibv_reg_mr(pd, NULL, SIZE_MAX, REMOTE));
	struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, ODP);
	CHECK(all);
	memset(memory, 5, PAGE);
	CHECK(write_page(qp, memory, all->lkey, place, all->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, place, PAGE));
	CHECK(!munmap(place, 2 * PAGE));
	CHECK(write_page(qp, memory, all->lkey, place, all->rkey) != IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(all) && !ibv_dereg_mr(late));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "parents"))
		parents();
	else if (!strcmp(argv[1], "imports"))
		imports();
	else if (!strcmp(argv[1], "paging"))
		paging();
	else
		return 2;
	return 0;
}
