//! GIDs and address handles.

use super::{ibv_context, ibv_pd};

/// A global identifier: in RoCEv2 an IPv6 address or an IPv4-mapped one.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the name of infiniband/verbs.h")]
pub struct ibv_gid {
    /// In network byte order.
    pub raw: [u8; 16],
}

/// `IBV_GID_TYPE_IB`, also of RNICs.
pub const IBV_GID_TYPE_IB: u32 = 0;
/// `IBV_GID_TYPE_ROCE_V2`.
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;

super::abi! {
    /// An entry of the GID table.
    struct ibv_gid_entry { gid: ibv_gid, gid_index: u32, port_num: u32, gid_type: u32, ndev_ifindex: u32 }

    /// The fields of a global routing header.
    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// The global routing header before the payload of a UD receive.
    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    /// The attributes of an address handle.
    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// An address handle.
    struct ibv_ah { context: *mut ibv_context, pd: *mut ibv_pd, handle: u32 }
}
