/* rdma-core's private symbols with the version nodes after 34. Node 34 is of releases 34 to 56, 57 of 57 and 58, 59 of 59 to
   63, 64 of 64, and 65 of the next. A version script gives a symbol one version, here 34; this file adds the others. All
   nodes share one function, although rdma-core changed the arguments of some between nodes: none reads its arguments. */

#if defined(__x86_64__)
#define JUMP(name) jmp name@PLT
#else
#define JUMP(name) b name
#endif

.macro private version, name
	.globl nichrome_\version\()_\name
	.type nichrome_\version\()_\name, %function
nichrome_\version\()_\name:
	JUMP(\name)
	.symver nichrome_\version\()_\name, \name\()@IBVERBS_PRIVATE_\version
.endm

.macro from_65 names:vararg
	.irp name, \names
	private 65, \name
	.endr
.endm

.macro from_64 names:vararg
	.irp name, \names
	private 64, \name
	.endr
	from_65 \names
.endm

.macro from_59 names:vararg
	.irp name, \names
	private 59, \name
	.endr
	from_64 \names
.endm

.macro from_57 names:vararg
	.irp name, \names
	private 57, \name
	.endr
	from_59 \names
.endm

	.text

/* New in node 57. */
	from_57 __ioctl_final_num_attrs
	from_57 __verbs_log
	from_57 _verbs_init_and_alloc_context
	from_57 execute_ioctl
	from_57 ibv_cmd_advise_mr
	from_57 ibv_cmd_alloc_dm
	from_57 ibv_cmd_alloc_mw
	from_57 ibv_cmd_alloc_pd
	from_57 ibv_cmd_attach_mcast
	from_57 ibv_cmd_close_xrcd
	from_57 ibv_cmd_create_ah
	from_57 ibv_cmd_create_counters
	from_57 ibv_cmd_create_cq
	from_57 ibv_cmd_create_cq_ex
	from_57 ibv_cmd_create_cq_ex2
	from_57 ibv_cmd_create_flow
	from_57 ibv_cmd_create_flow_action_esp
	from_57 ibv_cmd_create_qp
	from_57 ibv_cmd_create_qp_ex
	from_57 ibv_cmd_create_qp_ex2
	from_57 ibv_cmd_create_rwq_ind_table
	from_57 ibv_cmd_create_srq
	from_57 ibv_cmd_create_srq_ex
	from_57 ibv_cmd_create_wq
	from_57 ibv_cmd_dealloc_mw
	from_57 ibv_cmd_dealloc_pd
	from_57 ibv_cmd_dereg_mr
	from_57 ibv_cmd_destroy_ah
	from_57 ibv_cmd_destroy_counters
	from_57 ibv_cmd_destroy_cq
	from_57 ibv_cmd_destroy_flow
	from_57 ibv_cmd_destroy_flow_action
	from_57 ibv_cmd_destroy_qp
	from_57 ibv_cmd_destroy_rwq_ind_table
	from_57 ibv_cmd_destroy_srq
	from_57 ibv_cmd_destroy_wq
	from_57 ibv_cmd_detach_mcast
	from_57 ibv_cmd_free_dm
	from_57 ibv_cmd_get_context
	from_57 ibv_cmd_modify_cq
	from_57 ibv_cmd_modify_flow_action_esp
	from_57 ibv_cmd_modify_qp
	from_57 ibv_cmd_modify_qp_ex
	from_57 ibv_cmd_modify_srq
	from_57 ibv_cmd_modify_wq
	from_57 ibv_cmd_open_qp
	from_57 ibv_cmd_open_xrcd
	from_57 ibv_cmd_poll_cq
	from_57 ibv_cmd_post_recv
	from_57 ibv_cmd_post_send
	from_57 ibv_cmd_post_srq_recv
	from_57 ibv_cmd_query_context
	from_57 ibv_cmd_query_device_any
	from_57 ibv_cmd_query_mr
	from_57 ibv_cmd_query_port
	from_57 ibv_cmd_query_qp
	from_57 ibv_cmd_query_srq
	from_57 ibv_cmd_read_counters
	from_57 ibv_cmd_reg_dm_mr
	from_57 ibv_cmd_reg_dmabuf_mr
	from_57 ibv_cmd_reg_mr
	from_57 ibv_cmd_req_notify_cq
	from_57 ibv_cmd_rereg_mr
	from_57 ibv_cmd_resize_cq
	from_57 ibv_query_gid_type
	from_57 ibv_read_ibdev_sysfs_file
	from_57 ibv_wr_opcode_str
	from_57 verbs_init_cq
	from_57 verbs_open_device
	from_57 verbs_set_ops
	from_57 verbs_uninit_context

/* New in node 59. */
	from_59 ibv_cmd_alloc_dmah
	from_59 ibv_cmd_export_dmabuf_fd
	from_59 ibv_cmd_free_dmah
	from_59 ibv_cmd_query_port_speed
	from_59 ibv_cmd_reg_mr_ex

/* New in node 64. */
	from_64 ibv_dmabuf_heap_alloc
	from_64 ibv_dmabuf_heap_cc_shared_init
	from_64 ibv_dmabuf_heap_destroy
	from_64 ibv_dmabuf_heap_free

/* New in node 65. */
	from_65 ibv_cmd_create_comp_cntr
	from_65 ibv_cmd_destroy_comp_cntr
	from_65 ibv_cmd_inc_comp_cntr
	from_65 ibv_cmd_inc_err_comp_cntr
	from_65 ibv_cmd_qp_attach_comp_cntr
	from_65 ibv_cmd_query_comp_cntr_caps
	from_65 ibv_cmd_read_comp_cntr
	from_65 ibv_cmd_read_err_comp_cntr
	from_65 ibv_cmd_set_comp_cntr
	from_65 ibv_cmd_set_err_comp_cntr

/* verbs_allow_disassociate_destroy, 0 in each node: driver libraries have no device here that could be unplugged. */
.macro private_zero version, name
	.globl nichrome_\version\()_\name
	.type nichrome_\version\()_\name, %object
	.size nichrome_\version\()_\name, 1
nichrome_\version\()_\name:
	.byte 0
	.symver nichrome_\version\()_\name, \name\()@IBVERBS_PRIVATE_\version
.endm

	.section .rodata
	.irp version, 57, 59, 64, 65
	private_zero \version, verbs_allow_disassociate_destroy
	.endr

	.section .note.GNU-stack, "", %progbits
