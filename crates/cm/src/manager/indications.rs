//! Applies messages and timeouts to identifiers.

use nichrome_rdma::AddressVector;
use nichrome_wire::cm::{Rej, Rep, SidrRep, SidrStatus};
use nichrome_wire::rdma::{QKey, QpNumber};
use nichrome_wire::{Instant, TrafficClass};

use super::Manager;
use crate::error::Errno;
use crate::event::{ConnectionParameters, DatagramParameters, EventKind, Parameters};
use crate::held::Unclaimed;
use crate::host::Host;
use crate::ib::Indication;
use crate::identifier::{IdState, Identifier};
use crate::name::IdName;

impl<H: Host> Manager<H> {
    pub(super) fn indicate(&mut self, indication: Indication, now: Instant) {
        match indication {
            Indication::Request(request) => self.requested(Unclaimed::Connection(request), now),
            Indication::SidrRequest(request) => self.requested(Unclaimed::Service(request), now),
            Indication::Reply(id, rep) => self.replied(id, &rep),
            Indication::SidrReply(id, rep) => self.service_replied(id, &rep),
            Indication::Established(id) => self.raise(id, EventKind::Established, 0),
            Indication::Rejected(id, rej) => self.rejected(id, &rej),
            Indication::Disconnected(id) => self.disconnected(id, 0),
            Indication::DisconnectTimedOut(id) => self.disconnected(id, Errno::ETIMEDOUT.status()),
            Indication::Unreachable(id) => self.raise_error(id, EventKind::Unreachable, Errno::ETIMEDOUT),
            Indication::TimeWaitOver(id) => self.time_wait_over(id),
        }
    }

    fn replied(&mut self, id: IdName, rep: &Rep) {
        if let Some(identifier) = self.identifiers.get_mut(&id) {
            identifier.ece = rep.ece;
        }
        let parameters = ConnectionParameters {
            qp: rep.qp,
            qkey: QKey(0),
            private_data: rep.private_data.0.to_vec(),
            srq: rep.srq,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: 0,
            rnr_retry: rep.rnr_retry,
        };
        self.raise_with(id, EventKind::ConnectResponse, 0, Parameters::Connection(parameters));
    }

    fn service_replied(&mut self, id: IdName, rep: &SidrRep) {
        let Some(identifier) = self.identifiers.get_mut(&id) else { return };
        let private_data = rep.private_data.0.to_vec();
        if rep.status != SidrStatus::VALID {
            let (qp, qkey) = (QpNumber::default(), QKey::default());
            let parameters = DatagramParameters { private_data, qp, qkey, path: None };
            let status = i32::from(rep.status.0);
            return self.raise_with(id, EventKind::Unreachable, status, Parameters::Datagram(parameters));
        }
        identifier.qkey = Some(rep.qkey);
        identifier.ece = rep.ece;
        let path = identifier.path();
        let parameters = DatagramParameters { private_data, qp: rep.qp, qkey: rep.qkey, path };
        self.raise_with(id, EventKind::Established, 0, Parameters::Datagram(parameters));
    }

    fn rejected(&mut self, id: IdName, rej: &Rej) {
        let private_data = rej.private_data.0.to_vec();
        let parameters = ConnectionParameters { private_data, ..ConnectionParameters::default() };
        let status = i32::from(rej.reason.0);
        self.raise_with(id, EventKind::Rejected, status, Parameters::Connection(parameters));
    }

    /// Handles the end of a connection. Ignores the second report if both ends disconnect.
    pub(super) fn disconnected(&mut self, id: IdName, status: i32) {
        let Some(identifier) = self.identifiers.get_mut(&id) else { return };
        if identifier.state == IdState::Connect {
            identifier.state = IdState::Disconnect;
            self.raise(id, EventKind::Disconnected, status);
        }
    }

    fn time_wait_over(&mut self, id: IdName) {
        let Some(identifier) = self.identifiers.get(&id) else { return };
        if identifier.state == IdState::Disconnect {
            self.raise(id, EventKind::TimewaitExit, 0);
        }
    }
}

impl Identifier {
    /// The path to the destination, once both ends are known.
    pub(super) fn path(&self) -> Option<AddressVector> {
        Some(AddressVector {
            source_index: self.source_index?,
            destination: self.destination?.ip(),
            traffic_class: TrafficClass(self.options.traffic_class),
            flow_label: 0,
            hop_limit: self.route.map_or(64, |route| route.hop_limit),
        })
    }
}
