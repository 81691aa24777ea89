//! Requests held until their port has a listener.
//!
//! A program may send its peer a port before it listens there. perftest listens again after each connection,
//! while its client requests the next one already; qperf 0.4.11 sends the number of its port before it
//! listens. Requests for ports at which a listener was closed recently, or which a program has bound, are
//! therefore held for a limited time instead of being refused at once. Both the ports and the requests are
//! bounded, the requests shared fairly between peers; a request that the peer retransmits is held once.

use std::collections::VecDeque;
use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{PortSpace, Req, ServiceId};

use crate::config::HoldLimits;
use crate::ib::{Request, SidrRequest};

/// A port of a space.
pub(crate) type Service = (PortSpace, u16);

/// A request for a port without a listener.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    Connection(Box<Request>),
    Service(Box<SidrRequest>),
}

impl Unclaimed {
    /// The service, and the address at which it is requested.
    pub(crate) fn destination(&self) -> (ServiceId, IpAddr) {
        match self {
            Self::Connection(request) => (request.req.service, request.own_address),
            Self::Service(request) => (request.req.service, request.own_address),
        }
    }

    /// The port; `None` for a service that has none.
    pub(crate) fn service(&self) -> Option<Service> {
        self.destination().0.port()
    }

    /// Nanoseconds until the peer gives up its request, as far as the request states it. A late rejection
    /// should still reach a waiting peer.
    fn peer_timeout(&self) -> u64 {
        match self {
            Self::Connection(request) => {
                let Req { remote_timeout, max_cm_retries, .. } = request.req;
                remote_timeout.nanos().saturating_mul(u64::from(max_cm_retries) + 1)
            }
            Self::Service(_) => u64::MAX,
        }
    }

    fn peer(&self) -> IpAddr {
        match self {
            Self::Connection(request) => request.peer_address,
            Self::Service(request) => request.peer_address,
        }
    }

    /// Identifies the request: true for a connection, the peer, and the peer's number. Requests for
    /// connections and for services have unrelated numbers.
    fn name(&self) -> (bool, IpAddr, u32) {
        match self {
            Self::Connection(request) => (true, self.peer(), request.req.local.0),
            Self::Service(request) => (false, self.peer(), request.req.request),
        }
    }
}

/// The ports at which a listener was closed, and the requests for them.
pub(crate) struct HeldRequests {
    limits: HoldLimits,
    /// In the order of time.
    closed: VecDeque<(Instant, Service)>,
    /// In the order of arrival, with the time until which each is held.
    requests: Vec<(Instant, Unclaimed)>,
}

impl HeldRequests {
    pub(crate) const fn new(limits: HoldLimits) -> Self {
        Self { limits, closed: VecDeque::new(), requests: Vec::new() }
    }

    /// Records that a listener at the port was closed. Returns the oldest port if it is removed because there
    /// are too many.
    pub(crate) fn close(&mut self, service: Service, now: Instant) -> Option<Service> {
        self.closed.retain(|(_, known)| *known != service);
        self.closed.push_back((now.plus_nanos(self.limits.port_time), service));
        let most = self.limits.max_ports;
        if self.closed.len() > most { self.closed.pop_front().map(|(_, oldest)| oldest) } else { None }
    }

    /// Returns true if a listener was closed at the port recently.
    pub(crate) fn was_closed(&self, service: Service) -> bool {
        self.closed.iter().any(|(_, known)| *known == service)
    }

    /// Records that a program listens at the port; returns the requests for it, in the order of their
    /// arrival.
    pub(crate) fn reopen(&mut self, service: Service) -> Vec<Unclaimed> {
        self.closed.retain(|(_, known)| *known != service);
        let is_for = |(_, request): &mut (Instant, Unclaimed)| request.service() == Some(service);
        self.requests.extract_if(.., is_for).map(|(_, request)| request).collect()
    }

    /// Holds a request, unless it is held already: for the configured time, or for half the time until the
    /// peer gives up if that is shorter. Returns the request that gives way to it if too many are held: the
    /// newest of the peer that has most.
    ///
    /// # Errors
    /// Too many requests are held, and no peer has more than this one would have.
    pub(crate) fn hold(&mut self, request: Unclaimed, now: Instant) -> Result<Option<Unclaimed>, Unclaimed> {
        if self.requests.iter().any(|(_, held)| held.name() == request.name()) {
            return Ok(None);
        }
        let mut displaced = None;
        if self.requests.len() >= self.limits.max_requests {
            let Some(place) = self.gives_way_to(request.peer()) else { return Err(request) };
            displaced = Some(self.requests.remove(place).1);
        }
        let time = self.limits.request_time.min(request.peer_timeout() / 2);
        self.requests.push((now.plus_nanos(time), request));
        Ok(displaced)
    }

    /// The place of the newest request of the peer that has most, if that is more than `peer` would have with
    /// another one.
    fn gives_way_to(&self, peer: IpAddr) -> Option<usize> {
        let share = |peer: IpAddr| self.requests.iter().filter(|(_, held)| held.peer() == peer).count();
        let most = self.requests.iter().map(|(_, held)| held.peer()).max_by_key(|peer| share(*peer))?;
        let place = self.requests.iter().rposition(|(_, held)| held.peer() == most);
        place.filter(|_| share(most) > share(peer) + 1)
    }

    /// Takes a request that was held for long enough.
    pub(crate) fn expired_request(&mut self, now: Instant) -> Option<Unclaimed> {
        let due = self.requests.iter().position(|(due, _)| *due <= now)?;
        Some(self.requests.remove(due).1)
    }

    /// Removes a port whose listener was closed long enough ago.
    pub(crate) fn expired_port(&mut self, now: Instant) -> Option<Service> {
        self.closed.pop_front_if(|(due, _)| *due <= now).map(|(_, service)| service)
    }

    /// The earliest deadline.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let requests = self.requests.iter().map(|(due, _)| *due);
        requests.chain(self.closed.front().map(|(due, _)| *due)).min()
    }
}
