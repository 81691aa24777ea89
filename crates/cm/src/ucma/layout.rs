//! Sizes and offsets of the structures, by their names in `rdma/rdma_user_cm.h` and the headers that it
//! includes.

/// The offset of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in C.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
}

/// The layout of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name in C.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Its fields.
    pub fields: &'static [Field],
}

/// Defines a module of offsets for each structure, and the table of all.
macro_rules! layouts {
    ($($name:ident $size:literal { $($field:ident $offset:literal)* })*) => {
        $(
            #[allow(non_upper_case_globals, dead_code, reason = "names in C; the size of all, and the fields of some, are for the test only")]
            pub(super) mod $name {
                pub(crate) const SIZE: usize = $size;
                $(pub(crate) const $field: usize = $offset;)*
            }
        )*

        /// Every structure whose layout programs depend on.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: $size,
            fields: &[$(Field { name: stringify!($field), offset: $offset }),*],
        }),*];
    };
}

/// `struct rdma_ucm_write_cm_event`. Not among [`LAYOUTS`]: headers before Linux 6.17 lack it.
#[allow(non_upper_case_globals, reason = "names in C")]
pub(super) mod rdma_ucm_write_cm_event {
    pub(crate) const id: usize = 0;
    pub(crate) const event: usize = 8;
    pub(crate) const status: usize = 12;
    pub(crate) const param: usize = 16;
}

layouts! {
    rdma_ucm_cmd_hdr 8 { cmd 0 in_ 4 out 6 }
    rdma_ucm_create_id 24 { uid 0 response 8 ps 16 qp_type 18 }
    rdma_ucm_create_id_resp 4 { id 0 }
    rdma_ucm_destroy_id 16 { response 0 id 8 }
    rdma_ucm_destroy_id_resp 4 { events_reported 0 }
    rdma_ucm_bind_ip 40 { response 0 addr 8 id 36 }
    rdma_ucm_bind 136 { id 0 addr_size 4 reserved 6 addr 8 }
    rdma_ucm_resolve_ip 64 { src_addr 0 dst_addr 28 id 56 timeout_ms 60 }
    rdma_ucm_resolve_addr 272 { id 0 timeout_ms 4 src_size 8 dst_size 10 reserved 12 src_addr 16 dst_addr 144 }
    rdma_ucm_resolve_route 8 { id 0 timeout_ms 4 }
    rdma_ucm_query 16 { response 0 id 8 option 12 }
    rdma_ucm_query_route_resp 208 { node_guid 0 ib_route 8 src_addr 136 dst_addr 164 num_paths 192 port_num 196 ibdev_index 200 }
    rdma_ucm_query_addr_resp 280 { node_guid 0 port_num 8 pkey 10 src_size 12 dst_size 14 src_addr 16 dst_addr 144 ibdev_index 272 }
    rdma_ucm_query_path_resp 8 { num_paths 0 path_data 8 }
    rdma_ucm_conn_param 272 {
        qp_num 0 qkey 4 private_data 8 private_data_len 264 srq 265 responder_resources 266 initiator_depth 267
        flow_control 268 retry_count 269 rnr_retry_count 270 valid 271
    }
    rdma_ucm_ud_param 304 { qp_num 0 qkey 4 ah_attr 8 private_data 40 private_data_len 296 }
    rdma_ucm_ece 8 { vendor_id 0 attr_mod 4 }
    rdma_ucm_connect 288 { conn_param 0 id 272 ece 280 }
    rdma_ucm_listen 8 { id 0 backlog 4 }
    rdma_ucm_accept 296 { uid 0 conn_param 8 id 280 ece 288 }
    rdma_ucm_reject 264 { id 0 private_data_len 4 reason 5 private_data 8 }
    rdma_ucm_disconnect 4 { id 0 }
    rdma_ucm_init_qp_attr 16 { response 0 id 8 qp_state 12 }
    rdma_ucm_notify 8 { id 0 event 4 }
    rdma_ucm_join_ip_mcast 48 { response 0 uid 8 addr 16 id 44 }
    rdma_ucm_join_mcast 152 { response 0 uid 8 id 16 addr_size 20 join_flags 22 addr 24 }
    rdma_ucm_get_event 8 { response 0 }
    rdma_ucm_event_resp 336 { uid 0 id 8 event 12 status 16 param 20 reserved 324 ece 328 }
    rdma_ucm_set_option 24 { optval 0 id 8 level 12 optname 16 optlen 20 }
    rdma_ucm_migrate_id 16 { response 0 id 8 fd 12 }
    rdma_ucm_migrate_resp 4 { events_reported 0 }
    ib_user_path_rec 64 {
        dgid 0 sgid 16 dlid 32 slid 34 raw_traffic 36 flow_label 40 reversible 44 mtu 48 pkey 52 hop_limit 54
        traffic_class 55 numb_path 56 sl 57 mtu_selector 58 rate_selector 59 rate 60 packet_life_time_selector 61
        packet_life_time 62 preference 63
    }
    ib_path_rec_data 72 { flags 0 path_rec 8 }
    ib_uverbs_global_route 24 { dgid 0 flow_label 16 sgid_index 20 hop_limit 21 traffic_class 22 }
    ib_uverbs_ah_attr 32 { grh 0 dlid 24 sl 26 src_path_bits 27 static_rate 28 is_global 29 port_num 30 }
    ib_uverbs_qp_attr 144 {
        qp_attr_mask 0 qp_state 4 cur_qp_state 8 path_mtu 12 path_mig_state 16 qkey 20 rq_psn 24 sq_psn 28
        dest_qp_num 32 qp_access_flags 36 ah_attr 40 alt_ah_attr 72 max_send_wr 104 pkey_index 124 max_rd_atomic 130
        max_dest_rd_atomic 131 min_rnr_timer 132 port_num 133 timeout 134 retry_cnt 135 rnr_retry 136
    }
}
