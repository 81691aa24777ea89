//! Encodes events and answers.

use std::net::SocketAddr;

use nichrome_rdma::{AddressVector, QpChange, QpState, RnrTimer};
use nichrome_wire::cm::{Gid, Guid, ServiceId};

use super::address;
use super::fields::Structure;
use super::layout::{
    ib_path_rec_data as path_data, ib_user_path_rec as path_rec, ib_uverbs_ah_attr as ah_attr,
    ib_uverbs_global_route as route, ib_uverbs_qp_attr as qp_attr, rdma_ucm_conn_param as conn_param,
    rdma_ucm_ece as ece, rdma_ucm_event_resp as event_resp, rdma_ucm_query_addr_resp as addr_resp,
    rdma_ucm_query_path_resp as path_resp, rdma_ucm_query_route_resp as route_resp,
    rdma_ucm_ud_param as ud_param,
};
use crate::event::{ConnectionParameters, DatagramParameters, Event, Parameters};
use crate::manager::IdReport;

/// The adapter's index if unknown: librdmacm finds the adapter by its GUID.
const NO_INDEX: u32 = u32::MAX;

/// "Equal to" in a path record.
const SELECT_EXACTLY: u8 = 2;

/// The packet lifetime that Linux assumes for RoCE: 1.07 s.
const PACKET_LIFETIME: u8 = 18;

/// The flags of the only path: for management datagrams, primary, in both directions.
const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

const AF_IB: u16 = 27;

/// `struct rdma_ucm_event_resp`.
pub(super) fn event(event: &Event) -> Structure {
    let mut s = Structure::new(event_resp::SIZE);
    s.u64(event_resp::uid, event.uid);
    s.u32(event_resp::id, event.id);
    s.u32(event_resp::event, event.kind as u32);
    s.u32(event_resp::status, event.status.cast_unsigned());
    match &event.parameters {
        Parameters::Connection(parameters) => put_connection(&mut s, event_resp::param, parameters),
        Parameters::Datagram(parameters) => put_datagram(&mut s, event_resp::param, parameters),
        Parameters::Argument(argument) => s.u64(event_resp::param, *argument),
    }
    s.u32(event_resp::ece + ece::vendor_id, event.ece.vendor);
    s.u32(event_resp::ece + ece::attr_mod, event.ece.options);
    s
}

fn put_connection(s: &mut Structure, at: usize, parameters: &ConnectionParameters) {
    s.u32(at + conn_param::qp_num, parameters.qp.value());
    s.put(at + conn_param::private_data, &parameters.private_data);
    s.u8(at + conn_param::private_data_len, parameters.private_data.len() as u8);
    s.u8(at + conn_param::srq, u8::from(parameters.srq));
    s.u8(at + conn_param::responder_resources, parameters.responder_resources);
    s.u8(at + conn_param::initiator_depth, parameters.initiator_depth);
    s.u8(at + conn_param::flow_control, u8::from(parameters.flow_control));
    s.u8(at + conn_param::retry_count, parameters.retry_count);
    s.u8(at + conn_param::rnr_retry_count, parameters.rnr_retry);
}

fn put_datagram(s: &mut Structure, at: usize, parameters: &DatagramParameters) {
    s.u32(at + ud_param::qp_num, parameters.qp.value());
    s.u32(at + ud_param::qkey, parameters.qkey.0);
    if let Some(path) = &parameters.path {
        put_path(s, at + ud_param::ah_attr, path);
    }
    s.put(at + ud_param::private_data, &parameters.private_data);
    s.u8(at + ud_param::private_data_len, parameters.private_data.len() as u8);
}

/// `struct ib_uverbs_ah_attr`.
fn put_path(s: &mut Structure, at: usize, path: &AddressVector) {
    s.put(at + ah_attr::grh + route::dgid, &Gid::from(path.destination).0);
    s.u32(at + ah_attr::grh + route::flow_label, path.flow_label);
    s.u8(at + ah_attr::grh + route::sgid_index, path.source_index);
    s.u8(at + ah_attr::grh + route::hop_limit, path.hop_limit);
    s.u8(at + ah_attr::grh + route::traffic_class, path.traffic_class.0);
    s.u8(at + ah_attr::is_global, 1);
    s.u8(at + ah_attr::port_num, 1);
}

/// `struct ib_uverbs_qp_attr`.
pub(super) fn qp_attributes(change: &QpChange, state: QpState) -> Structure {
    let mut s = Structure::new(qp_attr::SIZE);
    let mut mask = 0;
    s.u32(qp_attr::qp_state, state as u32);
    let mut set = |bit: u32, is_set: bool| mask |= u32::from(is_set) << bit;
    set(0, change.state.is_some());
    set(3, change.access.is_some());
    set(4, change.pkey_index.is_some());
    set(5, change.port.is_some());
    set(6, change.qkey.is_some());
    set(7, change.path.is_some());
    set(8, change.path_mtu.is_some());
    set(9, change.timeout.is_some());
    set(10, change.retry_count.is_some());
    set(11, change.rnr_retry.is_some());
    set(12, change.rq_psn.is_some());
    set(13, change.max_rd_atomic.is_some());
    set(15, change.min_rnr_timer.is_some());
    set(16, change.sq_psn.is_some());
    set(17, change.max_dest_rd_atomic.is_some());
    set(20, change.destination.is_some());
    s.u32(qp_attr::qp_attr_mask, mask);
    s.u32(qp_attr::path_mtu, change.path_mtu.map_or(0, |mtu| mtu as u32 + 1));
    s.u32(qp_attr::qkey, change.qkey.unwrap_or_default().0);
    s.u32(qp_attr::rq_psn, change.rq_psn.unwrap_or_default().value());
    s.u32(qp_attr::sq_psn, change.sq_psn.unwrap_or_default().value());
    s.u32(qp_attr::dest_qp_num, change.destination.unwrap_or_default().value());
    s.u32(qp_attr::qp_access_flags, change.access.map_or(0, |access| u32::from(access.bits())));
    if let Some(path) = &change.path {
        put_path(&mut s, qp_attr::ah_attr, path);
    }
    s.u16(qp_attr::pkey_index, change.pkey_index.unwrap_or_default());
    s.u8(qp_attr::max_rd_atomic, change.max_rd_atomic.unwrap_or_default());
    s.u8(qp_attr::max_dest_rd_atomic, change.max_dest_rd_atomic.unwrap_or_default());
    s.u8(qp_attr::min_rnr_timer, change.min_rnr_timer.map_or(0, RnrTimer::code));
    s.u8(qp_attr::port_num, change.port.unwrap_or_default());
    s.u8(qp_attr::timeout, change.timeout.unwrap_or_default());
    s.u8(qp_attr::retry_cnt, change.retry_count.unwrap_or_default());
    s.u8(qp_attr::rnr_retry, change.rnr_retry.unwrap_or_default());
    s
}

/// The peer's address; if none is known yet, the own family's unspecified address, as in the kernel.
fn destination(report: &IdReport) -> SocketAddr {
    let unspecified = match report.source {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    };
    report.destination.unwrap_or(unspecified)
}

/// `struct rdma_ucm_query_route_resp`.
pub(super) fn query_route(report: &IdReport, guid: Guid) -> Structure {
    let mut s = Structure::new(route_resp::SIZE);
    s.put(route_resp::src_addr, &address::write(report.source));
    s.put(route_resp::dst_addr, &address::write(destination(report)));
    s.u32(route_resp::ibdev_index, NO_INDEX);
    if report.source_index.is_none() {
        return s;
    }
    s.put(route_resp::node_guid, &guid.0.to_be_bytes());
    s.u8(route_resp::port_num, 1);
    let at = route_resp::ib_route;
    s.put(at + path_rec::sgid, &Gid::from(report.source.ip()).0);
    s.put(at + path_rec::dgid, &Gid::from(destination(report).ip()).0);
    s.put(at + path_rec::pkey, &[0xFF; 2]);
    let Some(route) = report.route else { return s };
    s.u32(route_resp::num_paths, 1);
    s.u32(at + path_rec::reversible, 1);
    s.u32(at + path_rec::mtu, route.path_mtu as u32 + 1);
    s.u8(at + path_rec::hop_limit, route.hop_limit);
    s.u8(at + path_rec::mtu_selector, SELECT_EXACTLY);
    s.u8(at + path_rec::rate_selector, SELECT_EXACTLY);
    s.u8(at + path_rec::packet_life_time_selector, SELECT_EXACTLY);
    s.u8(at + path_rec::packet_life_time, PACKET_LIFETIME);
    s
}

/// The common part of answers about addresses.
fn device_address(report: &IdReport, guid: Guid) -> Structure {
    let mut s = Structure::new(addr_resp::SIZE);
    s.u32(addr_resp::ibdev_index, NO_INDEX);
    if report.source_index.is_some() {
        s.put(addr_resp::node_guid, &guid.0.to_be_bytes());
        s.u8(addr_resp::port_num, 1);
        s.put(addr_resp::pkey, &[0xFF; 2]);
    }
    s
}

/// `struct rdma_ucm_query_addr_resp` with IP addresses.
pub(super) fn query_address(report: &IdReport, guid: Guid) -> Structure {
    let mut s = device_address(report, guid);
    let ends = [
        (addr_resp::src_size, addr_resp::src_addr, report.source),
        (addr_resp::dst_size, addr_resp::dst_addr, destination(report)),
    ];
    for (size, at, end) in ends {
        let bytes = address::write(end);
        s.u16(size, bytes.len() as u16);
        s.put(at, &bytes);
    }
    s
}

/// `struct rdma_ucm_query_addr_resp` with `struct sockaddr_ib`: family, P_Key, flow information, GID, service
/// and its mask, scope.
pub(super) fn query_gid(report: &IdReport, guid: Guid) -> Structure {
    let mut s = device_address(report, guid);
    let ends = [
        (addr_resp::src_size, addr_resp::src_addr, report.source),
        (addr_resp::dst_size, addr_resp::dst_addr, destination(report)),
    ];
    for (size, at, end) in ends {
        let mut bytes = AF_IB.to_ne_bytes().to_vec();
        bytes.extend([0xFF; 2]);
        bytes.extend([0; 4]);
        bytes.extend(Gid::from(end.ip()).0);
        bytes.extend(ServiceId::of_port(report.space, end.port()).0.to_be_bytes());
        bytes.extend([0; 16]);
        s.u16(size, bytes.len() as u16);
        s.put(at, &bytes);
    }
    s
}

/// `struct rdma_ucm_query_path_resp` with the only path, as a path record of the subnet administrator (IBA
/// 15.2.5.16).
pub(super) fn query_path(report: &IdReport) -> Structure {
    let Some(route) = report.route else { return Structure::new(path_resp::SIZE) };
    let mut s = Structure::new(path_resp::SIZE + path_data::SIZE);
    s.u32(path_resp::num_paths, 1);
    s.u32(path_resp::path_data + path_data::flags, PATH_FLAGS);
    let at = path_resp::path_data + path_data::path_rec;
    s.put(at + 8, &Gid::from(destination(report).ip()).0);
    s.put(at + 24, &Gid::from(report.source.ip()).0);
    s.put(at + 44, &u32::from(route.hop_limit).to_be_bytes());
    s.u8(at + 49, 1 << 7);
    s.put(at + 50, &[0xFF; 2]);
    s.u8(at + 54, SELECT_EXACTLY << 6 | (route.path_mtu as u8 + 1));
    s.u8(at + 55, SELECT_EXACTLY << 6);
    s.u8(at + 56, SELECT_EXACTLY << 6 | PACKET_LIFETIME);
    s
}
