//! Queue pair attributes that the program chooses and that override those of the connection manager's
//! messages; and the change of a queue pair to ERROR.

use nichrome_rdma::{Access, Device, Memory, PathMtu, QpChange, QpHandle, QpState};
use nichrome_wire::Ecn;

/// Attributes that the program chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The largest path MTU of a connection that this end initiates.
    pub(crate) mtu: PathMtu,
    pub(crate) access: Access,
    /// The ACK timeout of a connection that this end initiates: 4.096 µs · 2ⁿ.
    pub(crate) timeout: u8,
    pub(crate) rd_atomic: u8,
    pub(crate) ecn: Ecn,
}

impl Attributes {
    /// Applies the attributes to a change that the connection manager asks for.
    pub(crate) fn apply(&self, change: QpChange) -> QpChange {
        let Self { access, rd_atomic, ecn, .. } = *self;
        let path = change.path.map(|mut path| {
            path.traffic_class = path.traffic_class.with_ecn(ecn);
            path
        });
        QpChange {
            path,
            access: change.access.map(|_| access),
            max_rd_atomic: change.max_rd_atomic.map(|depth| depth.min(rd_atomic)),
            max_dest_rd_atomic: change.max_dest_rd_atomic.map(|depth| depth.min(rd_atomic)),
            ..change
        }
    }
}

/// Moves a queue pair to ERROR, which flushes its requests, unless the program has reset or destroyed it.
pub(super) fn stop<M: Memory>(device: &mut Device<M>, qp: QpHandle) {
    let is_connected = |state| !matches!(state, QpState::Reset | QpState::Init);
    if device.query_qp(qp).is_ok_and(|report| is_connected(report.state)) {
        // Each of these states has this transition.
        let _ = device.modify_qp(qp, &QpChange::to(QpState::Err));
    }
}
