//! Parses commands.

use std::net::SocketAddr;

use nichrome_rdma::{QpState, QpType};
use nichrome_wire::cm::{Ece, PortSpace, RejectReason};
use nichrome_wire::rdma::{QKey, QpNumber};

use super::address::{self, IN6_LEN, STORAGE_LEN};
use super::fields::Fields;
use super::layout::{
    rdma_ucm_accept as accept, rdma_ucm_bind as bind, rdma_ucm_bind_ip as bind_ip,
    rdma_ucm_cmd_hdr as header, rdma_ucm_conn_param as conn_param, rdma_ucm_connect as connect,
    rdma_ucm_create_id as create_id, rdma_ucm_destroy_id as destroy_id, rdma_ucm_disconnect as disconnect,
    rdma_ucm_ece as ece, rdma_ucm_get_event as get_event, rdma_ucm_init_qp_attr as init_qp_attr,
    rdma_ucm_join_ip_mcast as join_ip_mcast, rdma_ucm_join_mcast as join_mcast, rdma_ucm_listen as listen,
    rdma_ucm_migrate_id as migrate_id, rdma_ucm_notify as notify, rdma_ucm_query as query,
    rdma_ucm_reject as reject, rdma_ucm_resolve_addr as resolve_addr, rdma_ucm_resolve_ip as resolve_ip,
    rdma_ucm_resolve_route as resolve_route, rdma_ucm_set_option as set_option,
    rdma_ucm_write_cm_event as write_cm_event,
};
use crate::error::Errno;
use crate::event::{ConnectionParameters, EventKind};
use crate::exchange::Reception;
use crate::name::{IdName, MembershipName};

/// The header of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandHeader {
    /// The number of the command.
    pub number: u32,
    /// Bytes of the body.
    pub body_len: u16,
    /// Bytes that the program has for the answer.
    pub answer_len: u16,
}

/// A command. `response` is the address of the memory for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Names and meanings are those of rdma_user_cm.h.
pub enum Command {
    CreateId { uid: u64, response: u64, space: PortSpace, kind: QpType },
    DestroyId { id: IdName, response: u64 },
    Bind { id: IdName, source: SocketAddr },
    ResolveAddress { id: IdName, source: Option<SocketAddr>, destination: SocketAddr, timeout_ms: u32 },
    ResolveRoute { id: IdName, timeout_ms: u32 },
    QueryRoute { id: IdName, response: u64 },
    Query { id: IdName, option: u32, response: u64 },
    Connect { id: IdName, parameters: ConnectionParameters, ece: Ece },
    Listen { id: IdName, backlog: u32 },
    Accept { id: IdName, uid: u64, parameters: Option<ConnectionParameters>, ece: Ece },
    Reject { id: IdName, reason: RejectReason, private_data: Vec<u8> },
    Disconnect { id: IdName },
    InitQpAttr { id: IdName, state: QpState, response: u64 },
    GetEvent { response: u64 },
    SetOption { id: IdName, level: u32, name: u32, value: u64, len: u32 },
    Notify { id: IdName, event: u32 },
    WriteEvent { id: IdName, kind: EventKind, status: i32, argument: u64 },
    JoinMulticast { id: IdName, uid: u64, group: SocketAddr, reception: Reception, response: u64 },
    LeaveMulticast { membership: MembershipName, response: u64 },
    MigrateId { id: IdName, fd: u32, response: u64 },
}

impl CommandHeader {
    /// Splits what a program wrote into header and body.
    ///
    /// # Errors
    /// EINVAL: fewer bytes than the header states.
    pub fn split(written: &[u8]) -> Result<(Self, &[u8]), Errno> {
        let body = written.get(header::SIZE..).ok_or(Errno::EINVAL)?;
        let fields = Fields(written);
        let (number, body_len, answer_len) =
            (fields.u32(header::cmd), fields.u16(header::in_), fields.u16(header::out));
        let body = body.get(..usize::from(body_len)).ok_or(Errno::EINVAL)?;
        Ok((Self { number, body_len, answer_len }, body))
    }
}

impl Command {
    /// Reads the body of the command of this number.
    ///
    /// # Errors
    /// EINVAL, ENOSYS: an unknown command; EINVAL: an argument that no object can have.
    pub fn parse(number: u32, body: &[u8]) -> Result<Self, Errno> {
        let f = Fields(body);
        let id = |at| IdName(f.u32(at));
        Ok(match number {
            0 => parse_create_id(f)?,
            1 => Self::DestroyId { id: id(destroy_id::id), response: f.u64(destroy_id::response) },
            2 => Self::Bind { id: id(bind_ip::id), source: in6(f, bind_ip::addr).ok_or(Errno::EINVAL)? },
            3 => parse_resolve_ip(f)?,
            4 => {
                Self::ResolveRoute { id: id(resolve_route::id), timeout_ms: f.u32(resolve_route::timeout_ms) }
            }
            5 => Self::QueryRoute { id: id(query::id), response: f.u64(query::response) },
            6 => parse_connect(f)?,
            7 => Self::Listen { id: id(listen::id), backlog: f.u32(listen::backlog) },
            8 => parse_accept(f)?,
            9 => parse_reject(f)?,
            10 => Self::Disconnect { id: id(disconnect::id) },
            11 => parse_init_qp_attr(f)?,
            12 => Self::GetEvent { response: f.u64(get_event::response) },
            // GET_OPTION.
            13 => return Err(Errno::ENOSYS),
            14 => parse_set_option(f),
            15 => Self::Notify { id: id(notify::id), event: f.u32(notify::event) },
            16 => parse_join_ip(f)?,
            17 => {
                let membership = MembershipName(f.u32(destroy_id::id));
                Self::LeaveMulticast { membership, response: f.u64(destroy_id::response) }
            }
            18 => {
                let (fd, response) = (f.u32(migrate_id::fd), f.u64(migrate_id::response));
                Self::MigrateId { id: id(migrate_id::id), fd, response }
            }
            19 => {
                let (option, response) = (f.u32(query::option), f.u64(query::response));
                Self::Query { id: id(query::id), option, response }
            }
            20 => parse_bind(f)?,
            21 => parse_resolve_addr(f)?,
            22 => parse_join(f)?,
            24 => parse_write_event(f)?,
            _ => return Err(Errno::EINVAL),
        })
    }
}

/// The address in a `struct sockaddr_in6`.
fn in6(f: Fields<'_>, at: usize) -> Option<SocketAddr> {
    address::read(&f.bytes::<IN6_LEN>(at))
}

/// The address in a `struct sockaddr_storage`, if its length is that of its family.
fn storage(f: Fields<'_>, at: usize, len: u16) -> Option<SocketAddr> {
    let address = address::read(&f.bytes::<STORAGE_LEN>(at))?;
    (address::write(address).len() == usize::from(len)).then_some(address)
}

fn parse_create_id(f: Fields<'_>) -> Result<Command, Errno> {
    let space = PortSpace::from_number(f.u16(create_id::ps)).ok_or(Errno::EINVAL)?;
    let kind = match (space, f.u8(create_id::qp_type)) {
        (PortSpace::Tcp, _) => QpType::Rc,
        (PortSpace::Udp | PortSpace::Ipoib, _) => QpType::Ud,
        (PortSpace::Ib, 2) => QpType::Rc,
        (PortSpace::Ib, 3) => QpType::Uc,
        (PortSpace::Ib, 4) => QpType::Ud,
        (PortSpace::Ib, 9) => QpType::XrcSend,
        (PortSpace::Ib, 10) => QpType::XrcReceive,
        (PortSpace::Ib, _) => return Err(Errno::EINVAL),
    };
    Ok(Command::CreateId { uid: f.u64(create_id::uid), response: f.u64(create_id::response), space, kind })
}

fn parse_bind(f: Fields<'_>) -> Result<Command, Errno> {
    let source = storage(f, bind::addr, f.u16(bind::addr_size)).filter(|_| f.u16(bind::reserved) == 0);
    Ok(Command::Bind { id: IdName(f.u32(bind::id)), source: source.ok_or(Errno::EINVAL)? })
}

fn parse_resolve_ip(f: Fields<'_>) -> Result<Command, Errno> {
    let source = in6(f, resolve_ip::src_addr);
    if source.is_none() && !address::is_absent(&f.bytes::<IN6_LEN>(resolve_ip::src_addr)) {
        return Err(Errno::EINVAL);
    }
    let destination = in6(f, resolve_ip::dst_addr).ok_or(Errno::EINVAL)?;
    let (id, timeout_ms) = (IdName(f.u32(resolve_ip::id)), f.u32(resolve_ip::timeout_ms));
    Ok(Command::ResolveAddress { id, source, destination, timeout_ms })
}

fn parse_resolve_addr(f: Fields<'_>) -> Result<Command, Errno> {
    let (source_len, destination_len) = (f.u16(resolve_addr::src_size), f.u16(resolve_addr::dst_size));
    let source = match source_len {
        0 => None,
        len => Some(storage(f, resolve_addr::src_addr, len).ok_or(Errno::EINVAL)?),
    };
    let destination = storage(f, resolve_addr::dst_addr, destination_len);
    let destination = destination.filter(|_| f.u32(resolve_addr::reserved) == 0).ok_or(Errno::EINVAL)?;
    let (id, timeout_ms) = (IdName(f.u32(resolve_addr::id)), f.u32(resolve_addr::timeout_ms));
    Ok(Command::ResolveAddress { id, source, destination, timeout_ms })
}

fn parse_conn_param(f: Fields<'_>, at: usize) -> ConnectionParameters {
    let len = usize::from(f.u8(at + conn_param::private_data_len));
    let data = f.bytes::<256>(at + conn_param::private_data);
    ConnectionParameters {
        qp: QpNumber::new(f.u32(at + conn_param::qp_num) & 0xFF_FFFF).unwrap_or_default(),
        // As Linux: the program's key counts for addresses of InfiniBand only.
        qkey: QKey(0),
        private_data: data[..len].to_vec(),
        srq: f.u8(at + conn_param::srq) != 0,
        responder_resources: f.u8(at + conn_param::responder_resources),
        initiator_depth: f.u8(at + conn_param::initiator_depth),
        flow_control: f.u8(at + conn_param::flow_control) != 0,
        retry_count: f.u8(at + conn_param::retry_count),
        rnr_retry: f.u8(at + conn_param::rnr_retry_count),
    }
}

fn parse_ece(f: Fields<'_>, at: usize) -> Ece {
    Ece { vendor: f.u32(at + ece::vendor_id), options: f.u32(at + ece::attr_mod) }
}

fn parse_connect(f: Fields<'_>) -> Result<Command, Errno> {
    if f.0.len() < connect::ece || f.u8(connect::conn_param + conn_param::valid) == 0 {
        return Err(Errno::EINVAL);
    }
    let parameters = parse_conn_param(f, connect::conn_param);
    Ok(Command::Connect { id: IdName(f.u32(connect::id)), parameters, ece: parse_ece(f, connect::ece) })
}

fn parse_accept(f: Fields<'_>) -> Result<Command, Errno> {
    if f.0.len() < accept::ece {
        return Err(Errno::EINVAL);
    }
    let is_valid = f.u8(accept::conn_param + conn_param::valid) != 0;
    let parameters = is_valid.then(|| parse_conn_param(f, accept::conn_param));
    let (id, uid) = (IdName(f.u32(accept::id)), f.u64(accept::uid));
    Ok(Command::Accept { id, uid, parameters, ece: parse_ece(f, accept::ece) })
}

fn parse_reject(f: Fields<'_>) -> Result<Command, Errno> {
    let reason = match f.u8(reject::reason) {
        0 => RejectReason::CONSUMER,
        reason => RejectReason(u16::from(reason)),
    };
    if ![RejectReason::CONSUMER, RejectReason::VENDOR_OPTION].contains(&reason) {
        return Err(Errno::EINVAL);
    }
    let len = usize::from(f.u8(reject::private_data_len));
    let private_data = f.bytes::<256>(reject::private_data)[..len].to_vec();
    Ok(Command::Reject { id: IdName(f.u32(reject::id)), reason, private_data })
}

fn parse_init_qp_attr(f: Fields<'_>) -> Result<Command, Errno> {
    let state = match f.u32(init_qp_attr::qp_state) {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::Sqd,
        5 => QpState::Sqe,
        6 => QpState::Err,
        _ => return Err(Errno::EINVAL),
    };
    let (id, response) = (IdName(f.u32(init_qp_attr::id)), f.u64(init_qp_attr::response));
    Ok(Command::InitQpAttr { id, state, response })
}

fn parse_set_option(f: Fields<'_>) -> Command {
    Command::SetOption {
        id: IdName(f.u32(set_option::id)),
        level: f.u32(set_option::level),
        name: f.u32(set_option::optname),
        value: f.u64(set_option::optval),
        len: f.u32(set_option::optlen),
    }
}

fn parse_write_event(f: Fields<'_>) -> Result<Command, Errno> {
    let kind = match f.u32(write_cm_event::event) {
        18 => EventKind::User,
        19 => EventKind::Internal,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Command::WriteEvent {
        id: IdName(f.u32(write_cm_event::id)),
        kind,
        status: f.u32(write_cm_event::status).cast_signed(),
        argument: f.u64(write_cm_event::param),
    })
}

fn parse_join_ip(f: Fields<'_>) -> Result<Command, Errno> {
    Ok(Command::JoinMulticast {
        id: IdName(f.u32(join_ip_mcast::id)),
        uid: f.u64(join_ip_mcast::uid),
        group: in6(f, join_ip_mcast::addr).ok_or(Errno::EINVAL)?,
        reception: Reception::Full,
        response: f.u64(join_ip_mcast::response),
    })
}

fn parse_join(f: Fields<'_>) -> Result<Command, Errno> {
    let reception = match f.u16(join_mcast::join_flags) {
        0 => Reception::Full,
        1 => Reception::SendOnly,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Command::JoinMulticast {
        id: IdName(f.u32(join_mcast::id)),
        uid: f.u64(join_mcast::uid),
        group: storage(f, join_mcast::addr, f.u16(join_mcast::addr_size)).ok_or(Errno::EINVAL)?,
        reception,
        response: f.u64(join_mcast::response),
    })
}
