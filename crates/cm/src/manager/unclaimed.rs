//! Requests for ports that nobody listens at: held if a listener was closed there a moment ago, else refused.

use nichrome_wire::Instant;
use nichrome_wire::cm::RejectReason;

use super::Manager;
use crate::held::{Service, Unclaimed};
use crate::host::Host;
use crate::identifier::IdState;

impl<H: Host> Manager<H> {
    /// A request of a peer.
    pub(super) fn requested(&mut self, request: Unclaimed, now: Instant) {
        let Err(unclaimed) = self.offer(request) else { return };
        match self.held.hold(unclaimed, now) {
            Ok(()) => self.ib.counters.held += 1,
            Err(refused) => self.refuse(&refused),
        }
    }

    fn refuse(&mut self, request: &Unclaimed) {
        match request {
            Unclaimed::Connection(request) => {
                self.ib.refuse_request(request, RejectReason::INVALID_SERVICE_ID);
            }
            Unclaimed::Service(request) => self.ib.refuse_sidr(request),
        }
    }

    /// A program listens at a port: it takes the requests that were held for it.
    pub(super) fn listener_opened(&mut self, service: Service) {
        for request in self.held.reopen(service) {
            if let Err(refused) = self.offer(request) {
                self.refuse(&refused);
            }
        }
    }

    /// A program listens at a port no longer.
    pub(super) fn listener_closed(&mut self, service: Service, now: Instant) {
        if let Some(oldest) = self.held.close(service, now) {
            self.stop_listening(oldest);
        }
    }

    /// Refuses requests and forgets ports that were held for long enough.
    pub(super) fn stop_holding(&mut self, now: Instant) {
        while let Some(request) = self.held.expired_request(now) {
            self.refuse(&request);
        }
        while let Some(service) = self.held.expired_port(now) {
            self.stop_listening(service);
        }
    }

    /// Requests for a port need not reach this manager any more, unless another identifier listens there.
    fn stop_listening(&mut self, (space, port): Service) {
        let listens = |id| self.identifiers.get(&id).is_some_and(|other| other.state == IdState::Listen);
        if !self.ports.owners(space, port).any(listens) {
            self.host.stop_listening(space, port);
        }
    }
}
