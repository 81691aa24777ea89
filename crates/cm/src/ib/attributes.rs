//! The attributes that a connection gives its queue pair, as Linux's `ib_cm_init_qp_attr`.

use nichrome_rdma::{Access, AddressVector, QpChange, QpState, RnrTimer};
use nichrome_wire::TrafficClass;
use nichrome_wire::cm::TransportService;
use nichrome_wire::rdma::Psn;

use super::connection::{Connection, State};
use crate::config::RnrTimers;

/// Number of RNR retries that means no limit (IBA 9.7.5.2.8).
const UNLIMITED_RNR_RETRIES: u8 = 7;

impl Connection {
    /// The change to `state`; `None` if the connection has not progressed to it, or never enters it. `rq_psn`
    /// is the PSN that this end's REQ or REP names, which a program needs before its REP is sent.
    pub(crate) fn qp_change(
        &self,
        state: QpState,
        source_index: u8,
        rq_psn: Psn,
        rnr_timers: &RnrTimers,
    ) -> Option<QpChange> {
        match state {
            QpState::Init => self.init(),
            QpState::Rtr => self.rtr(source_index, rq_psn, rnr_timers),
            QpState::Rts => self.rts(),
            _ => None,
        }
    }

    /// Returns true if the peer's queue pair is known.
    fn knows_peer(&self) -> bool {
        matches!(self.state, State::ReqReceived | State::RepReceived | State::RepSent | State::Established)
    }

    fn init(&self) -> Option<QpChange> {
        let reads = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        // Linux grants both to devices that have either.
        let flushes = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        let access = match self.responder_resources {
            0 => Access::REMOTE_WRITE,
            _ => Access::REMOTE_WRITE | reads | flushes,
        };
        let change = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(access),
            ..QpChange::to(QpState::Init)
        };
        (self.knows_peer() || self.state == State::ReqSent).then_some(change)
    }

    fn rtr(&self, source_index: u8, rq_psn: Psn, rnr_timers: &RnrTimers) -> Option<QpChange> {
        let path = AddressVector {
            source_index,
            destination: self.peer_address,
            traffic_class: TrafficClass(self.traffic_class),
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
        };
        let has_limit = self.asked_rnr_retry < UNLIMITED_RNR_RETRIES;
        let min_rnr_timer = if has_limit { rnr_timers.limited } else { rnr_timers.unlimited };
        let is_reliable = self.transport != TransportService::Uc;
        let change = QpChange {
            path: Some(path),
            path_mtu: Some(self.path_mtu),
            destination: Some(self.remote_qp),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: is_reliable.then_some(self.responder_resources),
            min_rnr_timer: if is_reliable { RnrTimer::new(min_rnr_timer) } else { None },
            ..QpChange::to(QpState::Rtr)
        };
        self.knows_peer().then_some(change)
    }

    fn rts(&self) -> Option<QpChange> {
        let is_reliable = self.transport != TransportService::Uc;
        let change = QpChange {
            sq_psn: Some(self.sq_psn),
            timeout: is_reliable.then_some(self.ack_timeout.exponent()),
            retry_count: is_reliable.then_some(self.retry_count),
            rnr_retry: is_reliable.then_some(self.rnr_retry),
            max_rd_atomic: is_reliable.then_some(self.initiator_depth),
            ..QpChange::to(QpState::Rts)
        };
        self.knows_peer().then_some(change)
    }
}
