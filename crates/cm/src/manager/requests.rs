//! Connection requests of peers: finds the listener, and creates the identifier.

use std::net::{IpAddr, SocketAddr};

use nichrome_rdma::QpType;
use nichrome_wire::cm::{Ece, IpHeader, RejectReason, ServiceId, TransportService};
use nichrome_wire::rdma::{Psn, QKey, QpNumber};

use super::Manager;
use crate::backlog::Room;
use crate::channel::{QueuedEvent, Requested};
use crate::event::{ConnectionParameters, DatagramParameters, Event, EventKind, Parameters};
use crate::exchange::Route;
use crate::held::Unclaimed;
use crate::host::Host;
use crate::ib::{Request, SidrRequest};
use crate::identifier::{IdState, Identifier, Link};
use crate::name::IdName;

/// A request, from a message or a stream.
pub(super) struct Arrival {
    pub(super) listener: IdName,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) route: Option<Route>,
    pub(super) ece: Ece,
    pub(super) parameters: Parameters,
}

/// Why a request creates no identifier: it is dropped, and the peer retransmits it.
pub(super) enum Dropped {
    Backlog,
    Exhausted,
}

impl<H: Host> Manager<H> {
    /// Finds the listener at a service of the addressed host.
    fn listener(&self, service: ServiceId, destination: IpAddr) -> Option<IdName> {
        let (space, port) = service.port()?;
        let is_listening = |id: &IdName| {
            self.identifiers.get(id).is_some_and(|identifier| identifier.state == IdState::Listen)
        };
        self.ports.bound(space, port, destination).find(is_listening)
    }

    /// Passes a request to the listener at its port.
    ///
    /// # Errors
    /// The port has no listener.
    pub(super) fn offer(&mut self, request: Unclaimed) -> Result<(), Unclaimed> {
        let (service, destination) = request.destination();
        let Some(listener) = self.listener(service, destination) else { return Err(request) };
        match request {
            Unclaimed::Connection(request) => self.connection_requested(listener, &request),
            Unclaimed::Service(request) => self.service_requested(listener, &request),
        }
        Ok(())
    }

    /// Handles a peer's request for a connection.
    fn connection_requested(&mut self, listener: IdName, request: &Request) {
        let req = &request.req;
        let Ok(split) = IpHeader::split(&req.private_data) else {
            return self.ib.refuse_request(request, RejectReason::UNSUPPORTED);
        };
        let header = split.header;
        // The addresses that programs see must be those of the datagram.
        if (header.source.ip(), header.destination) != (request.peer_address, request.own_address) {
            return self.ib.refuse_request(request, RejectReason::INVALID_GID);
        }
        let takes = self
            .identifiers
            .get(&listener)
            .is_some_and(|listener| accepts_transport(listener.kind, req.transport));
        if !takes {
            return self.ib.refuse_request(request, RejectReason::INVALID_TRANSPORT);
        }
        let parameters = ConnectionParameters {
            qp: req.qp,
            qkey: QKey(0),
            private_data: split.data.to_vec(),
            srq: req.srq,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry,
        };
        let arrival = Arrival {
            listener,
            local: SocketAddr::new(request.own_address, req.service.port().map_or(0, |(_, port)| port)),
            peer: header.source,
            route: Some(Route { path_mtu: req.path_mtu, hop_limit: req.primary.hop_limit }),
            ece: req.ece,
            parameters: Parameters::Connection(parameters),
        };
        match self.admit(arrival) {
            Ok(id) => {
                let connection = self.ib.admit(request, id);
                self.link(id, Link::Ib(connection));
            }
            Err(dropped) => self.count_dropped(&dropped),
        }
    }

    /// Handles a peer's request for the queue pair of a datagram service.
    fn service_requested(&mut self, listener: IdName, request: &SidrRequest) {
        let req = &request.req;
        let is_datagram = self.identifiers.get(&listener).is_some_and(Identifier::is_datagram);
        let listener = Some(listener).filter(|_| is_datagram);
        let split = IpHeader::split(&req.private_data).ok();
        let header = split.map(|split| split.header).filter(|header| {
            (header.source.ip(), header.destination) == (request.peer_address, request.own_address)
        });
        let Some(((listener, split), header)) = listener.zip(split).zip(header) else {
            return self.ib.refuse_sidr(request);
        };
        let (qp, qkey) = (QpNumber::default(), QKey::default());
        let parameters = DatagramParameters { private_data: split.data.to_vec(), qp, qkey, path: None };
        let arrival = Arrival {
            listener,
            local: SocketAddr::new(request.own_address, req.service.port().map_or(0, |(_, port)| port)),
            peer: header.source,
            route: None,
            ece: Ece::default(),
            parameters: Parameters::Datagram(parameters),
        };
        match self.admit(arrival) {
            Ok(id) => {
                let connection = self.ib.admit_sidr(request, id);
                self.link(id, Link::Ib(connection));
            }
            Err(dropped) => self.count_dropped(&dropped),
        }
    }

    fn link(&mut self, id: IdName, link: Link) {
        if let Some(identifier) = self.identifiers.get_mut(&id) {
            identifier.link = link;
        }
    }

    pub(super) fn count_dropped(&mut self, dropped: &Dropped) {
        let counters = &mut self.ib.counters;
        match dropped {
            Dropped::Backlog => counters.backlog_dropped += 1,
            Dropped::Exhausted => counters.identifiers_exhausted += 1,
        }
    }

    /// Creates an identifier for a request, and queues the event of the listener.
    pub(super) fn admit(&mut self, arrival: Arrival) -> Result<IdName, Dropped> {
        let source_index = self.host.source_index(arrival.local.ip());
        let psn = Psn::new(self.random.next_u32());
        let source = arrival.peer.ip().to_canonical();
        self.make_room(arrival.listener, source)?;
        let listener = self.identifiers.get(&arrival.listener).ok_or(Dropped::Exhausted)?;
        let (channel, space, kind, uid) = (listener.channel, listener.space, listener.kind, listener.uid);
        let identifier = Identifier {
            state: IdState::Connect,
            source: arrival.local,
            destination: Some(arrival.peer),
            source_index,
            route: arrival.route,
            ece: arrival.ece,
            ..Identifier::new(channel, 0, space, kind, psn)
        };
        let id = self.insert_identifier(identifier).map_err(|_| Dropped::Exhausted)?;
        if let Some(listener) = self.identifiers.get_mut(&arrival.listener) {
            listener.backlog.add(source);
        }
        let event = Event {
            uid,
            id: id.0,
            kind: EventKind::ConnectRequest,
            status: 0,
            parameters: arrival.parameters,
            ece: arrival.ece,
        };
        let request = Some(Requested { id, source });
        self.queue(QueuedEvent { context: arrival.listener, request, membership: None, event });
        Ok(id)
    }

    /// Removes a request of another source if the listener's backlog is full and that source has more
    /// requests: the newest, as the program is likely to fetch the older ones before their peers give up.
    fn make_room(&mut self, id: IdName, source: IpAddr) -> Result<(), Dropped> {
        let listener = self.identifiers.get_mut(&id).ok_or(Dropped::Exhausted)?;
        let holder = match listener.backlog.room_for(source) {
            Room::Free => return Ok(()),
            Room::HeldBy(holder) => holder,
            Room::None => return Err(Dropped::Backlog),
        };
        let channel = self.channels.get_mut(&listener.channel).ok_or(Dropped::Exhausted)?;
        let displaced = channel.take_newest_request(id, holder).ok_or(Dropped::Backlog)?;
        listener.backlog.remove(holder);
        listener.events_queued -= 1;
        self.forget_request(displaced.id);
        self.count_dropped(&Dropped::Backlog);
        Ok(())
    }
}

/// Returns true if a listener for queue pairs of this kind takes requests of this transport service.
fn accepts_transport(kind: QpType, transport: TransportService) -> bool {
    match kind {
        QpType::Rc => transport == TransportService::Rc,
        QpType::Uc => transport == TransportService::Uc,
        QpType::XrcSend | QpType::XrcReceive => transport == TransportService::Xrc,
        QpType::Ud => false,
    }
}
