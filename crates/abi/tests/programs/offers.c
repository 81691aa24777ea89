/* What a device announces: offers.rs runs it with the expected operations of RC (enum ibv_qp_create_send_ops_flags), whether there are XRC,
   FLUSH and ATOMIC WRITE, and the number of multicast groups. Ends with 0, or prints the failed check. */
#include <errno.h>
#include <string.h>

#include "check.h"

#define DEVICE_FLUSH_GLOBAL (1ULL << 38)
#define DEVICE_ATOMIC_WRITE (1ULL << 40)

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	unsigned long operations = strtoul(argv[1], NULL, 16), has_all = atoi(argv[2]);
	struct ibv_context *context = opened();
	struct ibv_device_attr_ex can;
	CHECK(!ibv_query_device_ex(context, NULL, &can));
	CHECK(!!(can.orig_attr.device_cap_flags & IBV_DEVICE_XRC) == has_all);
	CHECK(!!(can.device_cap_flags_ex & DEVICE_FLUSH_GLOBAL) == has_all);
	CHECK(!!(can.device_cap_flags_ex & DEVICE_ATOMIC_WRITE) == has_all);
	CHECK(can.orig_attr.max_mcast_grp == atoi(argv[3]));
	struct ibv_xrcd_init_attr shared = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100 };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &shared);
	CHECK(has_all ? !!xrcd : !xrcd && errno == EOPNOTSUPP);

	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	for (int bit = 0; bit < 16; bit++) {
		struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = 1ULL << bit,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
		struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
		CHECK(operations >> bit & 1 ? !!qp : !qp && errno == EOPNOTSUPP);
	}
	return 0;
}
