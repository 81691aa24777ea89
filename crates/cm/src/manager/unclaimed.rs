//! Requests for ports without a listener: held if a listener is likely soon, else refused.

use nichrome_wire::Instant;
use nichrome_wire::cm::RejectReason;

use super::Manager;
use crate::held::{Service, Unclaimed};
use crate::host::{Host, PortUse};
use crate::identifier::IdState;

impl<H: Host> Manager<H> {
    /// Passes a peer's request to its listener. Without one, holds the request if a listener is likely soon,
    /// else refuses it.
    pub(super) fn requested(&mut self, request: Unclaimed, now: Instant) {
        let Err(unclaimed) = self.offer(request) else { return };
        if !unclaimed.service().is_some_and(|service| self.expects_listener(service)) {
            return self.refuse(&unclaimed);
        }
        let refused = match self.held.hold(unclaimed, now) {
            Ok(displaced) => {
                self.ib.counters.held += 1;
                displaced
            }
            Err(refused) => Some(refused),
        };
        if let Some(refused) = refused {
            self.refuse(&refused);
        }
    }

    /// Returns true if a program has listened at the port or may be about to: one of this process or of
    /// another.
    fn expects_listener(&mut self, service: Service) -> bool {
        let (space, port) = service;
        self.held.was_closed(service)
            || self.has_owner(service, IdState::AddressBound)
            || self.host.use_by_others(space, port) != PortUse::Free
    }

    /// Returns true if an identifier in this state is bound to the port.
    fn has_owner(&self, (space, port): Service, state: IdState) -> bool {
        let is_in = |id| self.identifiers.get(&id).is_some_and(|owner| owner.state == state);
        self.ports.owners(space, port).any(is_in)
    }

    fn refuse(&mut self, request: &Unclaimed) {
        match request {
            Unclaimed::Connection(request) => {
                self.ib.refuse_request(request, RejectReason::INVALID_SERVICE_ID);
            }
            Unclaimed::Service(request) => self.ib.refuse_sidr(request),
        }
    }

    /// Passes the requests held for a port to its new listener.
    pub(super) fn listener_opened(&mut self, service: Service) {
        for request in self.held.reopen(service) {
            if let Err(refused) = self.offer(request) {
                self.refuse(&refused);
            }
        }
    }

    /// Handles the end of listening at a port.
    pub(super) fn listener_closed(&mut self, service: Service, now: Instant) {
        if let Some(oldest) = self.held.close(service, now) {
            self.stop_listening(oldest);
        }
    }

    /// Refuses requests that were held for the maximum time, and removes ports.
    pub(super) fn stop_holding(&mut self, now: Instant) {
        while let Some(request) = self.held.expired_request(now) {
            // Another process may have taken the peer's retransmission.
            let is_elsewhere = request
                .service()
                .is_some_and(|(space, port)| self.host.use_by_others(space, port) == PortUse::Listening);
            if !is_elsewhere {
                self.refuse(&request);
            }
        }
        while let Some(service) = self.held.expired_port(now) {
            self.stop_listening(service);
        }
    }

    /// Stops the delivery of requests for a port, unless another identifier listens there.
    fn stop_listening(&mut self, service: Service) {
        if !self.has_owner(service, IdState::Listen) {
            let (space, port) = service;
            self.host.stop_listening(space, port);
        }
    }
}
