//! Devices, ports and their capabilities.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Node type: channel adapter.
pub const IBV_NODE_CA: c_int = 1;
/// Node type: iWARP adapter.
pub const IBV_NODE_RNIC: c_int = 4;
/// Transport type: InfiniBand, also of RoCE.
pub const IBV_TRANSPORT_IB: c_int = 0;
/// Transport type: iWARP.
pub const IBV_TRANSPORT_IWARP: c_int = 1;
/// Port state: active.
pub const IBV_PORT_ACTIVE: c_int = 4;
/// Link layer: Ethernet.
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

super::abi! {
    /// Unused.
    struct _ibv_device_ops { _dummy1: *mut c_void, _dummy2: *mut c_void }

    /// A device.
    struct ibv_device {
        _ops: _ibv_device_ops,
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    /// Device capabilities.
    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// On-demand paging.
    struct ibv_odp_caps { general_caps: u64, per_transport_caps: [u32; 3] }

    /// Segmentation of raw packets: none.
    struct ibv_tso_caps { max_tso: u32, supported_qpts: u32 }

    /// Receive-side scaling of raw packets: none.
    struct ibv_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    /// Packet pacing: none.
    struct ibv_packet_pacing_caps { qp_rate_limit_min: u32, qp_rate_limit_max: u32, supported_qpts: u32 }

    /// Tag matching: none.
    struct ibv_tm_caps { max_rndv_hdr_size: u32, max_num_tags: u32, flags: u32, max_ops: u32, max_sge: u32 }

    /// Moderation of completion events.
    struct ibv_cq_moderation_caps { max_cq_count: u16, max_cq_period: u16 }

    /// PCI atomic operations: none.
    struct ibv_pci_atomic_caps { fetch_add: u16, swap: u16, compare_swap: u16 }

    /// Extended device capabilities.
    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    /// Port attributes.
    struct ibv_port_attr {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }
}
