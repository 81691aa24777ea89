//! Connecting, accepting, rejecting, disconnecting.

use std::net::{IpAddr, SocketAddr};

use nichrome_rdma::QpType;
use nichrome_wire::Instant;
use nichrome_wire::cm::{
    CommId, Ece, IpHeader, PrivateData, PrivateDataError, RejectReason, ServiceId, TimeExponent,
    TransportService,
};
use nichrome_wire::rdma::{QKey, QpNumber};

use super::{DEFAULT_QKEY, Manager};
use crate::config::Bearer;
use crate::error::CommandError;
use crate::event::{ConnectionParameters, EventKind};
use crate::exchange::{Output, Route};
use crate::host::Host;
use crate::ib::{Accept, Connect, SidrAnswer, SidrConnect, State};
use crate::identifier::{IdState, Identifier, Link};
use crate::name::IdName;

impl<H> Manager<H> {
    /// Returns true if the driver sets connections up.
    pub(super) fn is_stream(&self) -> bool {
        self.config.bearer != Bearer::Roce
    }

    /// The identifier's connection by InfiniBand's messages, unless it has ended.
    pub(super) fn connection_of(&self, id: IdName) -> Option<CommId> {
        let Link::Ib(connection) = self.identifiers.get(&id)?.link else { return None };
        (self.ib.get(connection)?.owner == Some(id)).then_some(connection)
    }
}

impl<H: Host> Manager<H> {
    /// Connects to the resolved destination, or requests the queue pair of its datagram service.
    ///
    /// # Errors
    /// [`CommandError`]; the state stays `RouteResolved`.
    pub fn connect(
        &mut self,
        id: IdName,
        parameters: &ConnectionParameters,
        ece: Ece,
        now: Instant,
    ) -> Result<(), CommandError> {
        self.check_queue(id)?;
        let identifier = self.identifier(id)?;
        let ready = identifier
            .destination
            .zip(identifier.route)
            .filter(|_| identifier.state == IdState::RouteResolved);
        let (destination, route) = ready.ok_or(CommandError::State)?;
        let link = if self.is_stream() {
            self.connect_stream(id, destination, parameters)?
        } else if identifier.is_datagram() {
            let connect = identifier.sidr_connect(destination, &parameters.private_data)?;
            Link::Ib(self.ib.resolve_service(id, &connect, now))
        } else {
            let ack_timeout = TimeExponent::new(
                identifier.options.ack_timeout.unwrap_or(self.config.ack_timeout.exponent()),
            );
            let connect =
                Connect { ack_timeout, ece, ..identifier.ib_connect(destination, route, parameters)? };
            Link::Ib(self.ib.connect(id, &connect, now))
        };
        let identifier = self.identifier_mut(id)?;
        identifier.state = IdState::Connect;
        identifier.link = link;
        identifier.qp = parameters.qp;
        Ok(())
    }

    /// Accepts a request, and names its identifier `uid`.
    ///
    /// # Errors
    /// [`CommandError`]; the request is rejected, as Linux does.
    pub fn accept(
        &mut self,
        id: IdName,
        uid: u64,
        parameters: &ConnectionParameters,
        ece: Ece,
        now: Instant,
    ) -> Result<(), CommandError> {
        let identifier = self.identifier(id)?;
        if identifier.state != IdState::Connect {
            return Err(CommandError::State);
        }
        let accepted = match (identifier.link, self.connection_of(id)) {
            (Link::Stream(stream), _) => self.accept_stream(stream, parameters),
            (_, Some(connection)) if identifier.is_datagram() => {
                self.answer_service(id, connection, parameters, now)
            }
            (_, Some(connection)) => {
                let accept = identifier.ib_accept(parameters, ece);
                match self.ib.accept(connection, &accept, now) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(CommandError::State),
                    Err(error) => Err(error.into()),
                }
            }
            (_, None) => Err(CommandError::State),
        };
        if accepted.is_err() {
            // There may be nothing to reject: the caller gets the error of the command.
            let _ = self.reject(id, RejectReason::CONSUMER, &[], now);
            return accepted;
        }
        let identifier = self.identifier_mut(id)?;
        identifier.uid = uid;
        identifier.qp = parameters.qp;
        Ok(())
    }

    /// Sends the RTU: follows `ConnectResponse`, once the queue pair is ready.
    ///
    /// # Errors
    /// [`CommandError`]; the connection is rejected, as Linux does.
    pub fn establish(&mut self, id: IdName, now: Instant) -> Result<(), CommandError> {
        let identifier = self.identifier(id)?;
        if identifier.state != IdState::Connect {
            return Err(CommandError::State);
        }
        let connection = self.connection_of(id).ok_or(CommandError::State)?;
        if identifier.is_datagram() {
            let parameters = ConnectionParameters { qp: identifier.qp, ..ConnectionParameters::default() };
            return self.answer_service(id, connection, &parameters, now);
        }
        if self.ib.establish(connection) {
            return Ok(());
        }
        // There may be nothing to reject: the caller gets the error of the command.
        let _ = self.reject(id, RejectReason::CONSUMER, &[], now);
        Err(CommandError::State)
    }

    /// Offers the queue pair of a datagram service.
    fn answer_service(
        &mut self,
        id: IdName,
        connection: CommId,
        parameters: &ConnectionParameters,
        now: Instant,
    ) -> Result<(), CommandError> {
        let identifier = self.identifier_mut(id)?;
        let qkey = match parameters.qkey {
            QKey(0) => QKey(DEFAULT_QKEY),
            chosen => chosen,
        };
        identifier.qkey = Some(qkey);
        let service = ServiceId::of_port(identifier.space, identifier.source.port());
        let private_data = PrivateData::new(&parameters.private_data)?;
        let answer = SidrAnswer { qp: parameters.qp, qkey, private_data };
        match self.ib.answer_sidr(connection, service, &answer, now) {
            true => Ok(()),
            false => Err(CommandError::State),
        }
    }

    /// Rejects a request, or a connection during its set-up.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn reject(
        &mut self,
        id: IdName,
        reason: RejectReason,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), CommandError> {
        let identifier = self.identifier(id)?;
        if let Link::Stream(stream) = identifier.link {
            self.outputs.push_back(Output::Reject { stream, private_data: private_data.to_vec() });
            return Ok(());
        }
        let connection = self.connection_of(id).ok_or(CommandError::State)?;
        if identifier.is_datagram() {
            self.ib.reject_sidr(connection, private_data, now);
            return Ok(());
        }
        match self.ib.reject(connection, reason, PrivateData::new(private_data)?, now) {
            true => Ok(()),
            false => Err(CommandError::State),
        }
    }

    /// Ends a connection: `Disconnected` follows. No effect on one that is not established.
    ///
    /// # Errors
    /// The identifier has no connection.
    pub fn disconnect(&mut self, id: IdName, now: Instant) -> Result<(), CommandError> {
        match (self.identifier(id)?.link, self.connection_of(id)) {
            (Link::None, _) => return Err(CommandError::State),
            (Link::Stream(stream), _) => self.outputs.push_back(Output::Disconnect(stream)),
            (Link::Ib(_), Some(connection)) => self.ib.disconnect(connection, now),
            (Link::Ib(_), None) => {}
        }
        Ok(())
    }

    /// The queue pair whose connection a peer's datagram ends; `None` if it ends none. For a driver that
    /// reports the end later.
    pub fn ended_by(&self, source: IpAddr, destination: IpAddr, payload: &[u8]) -> Option<QpNumber> {
        self.ib.ended_by(destination, source, payload)
    }

    /// Returns true while a peer has not acknowledged the end of a connection.
    pub fn awaits_disconnection(&self) -> bool {
        self.ib.unanswered_dreqs().next().is_some()
    }

    /// Retransmits the end of the connection to every peer that has not acknowledged it: for a driver that
    /// closes, and cannot wait for the retransmissions.
    pub fn repeat_disconnections(&mut self) {
        self.ib.repeat_dreqs();
    }

    /// Handles the arrival of the peer's first packet at the queue pair before its RTU
    /// (`IBV_EVENT_COMM_EST`): `Established` follows.
    ///
    /// # Errors
    /// The identifier has no connection, or it does not wait for the peer.
    pub fn communication_established(&mut self, id: IdName) -> Result<(), CommandError> {
        if let Link::Stream(_) = self.identifier(id)?.link {
            return Ok(());
        }
        let connection = self.connection_of(id).ok_or(CommandError::State)?;
        if self.ib.communication_established(connection) {
            self.raise(id, EventKind::Established, 0);
            return Ok(());
        }
        let is_established = self.ib.get(connection).is_some_and(|known| known.state == State::Established);
        if is_established { Ok(()) } else { Err(CommandError::State) }
    }
}

impl Identifier {
    /// The transport service that a REQ requests.
    const fn transport(&self) -> TransportService {
        match self.kind {
            QpType::Uc => TransportService::Uc,
            QpType::XrcSend | QpType::XrcReceive => TransportService::Xrc,
            QpType::Rc | QpType::Ud => TransportService::Rc,
        }
    }

    fn private_data<const N: usize>(
        &self,
        destination: SocketAddr,
        data: &[u8],
    ) -> Result<PrivateData<N>, PrivateDataError> {
        IpHeader { source: self.source, destination: destination.ip() }.join(data)
    }

    fn sidr_connect(&self, destination: SocketAddr, data: &[u8]) -> Result<SidrConnect, PrivateDataError> {
        Ok(SidrConnect {
            own_address: self.source.ip(),
            peer_address: destination.ip(),
            service: ServiceId::of_port(self.space, destination.port()),
            private_data: self.private_data(destination, data)?,
        })
    }

    fn ib_connect(
        &self,
        destination: SocketAddr,
        route: Route,
        parameters: &ConnectionParameters,
    ) -> Result<Connect, PrivateDataError> {
        Ok(Connect {
            own_address: self.source.ip(),
            peer_address: destination.ip(),
            service: ServiceId::of_port(self.space, destination.port()),
            transport: self.transport(),
            qp: parameters.qp,
            srq: parameters.srq,
            psn: self.psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            flow_control: parameters.flow_control,
            retry_count: parameters.retry_count,
            rnr_retry: parameters.rnr_retry,
            ack_timeout: TimeExponent::default(),
            path_mtu: route.path_mtu,
            traffic_class: self.options.traffic_class,
            hop_limit: route.hop_limit,
            flow_label: 0,
            ece: Ece::default(),
            private_data: self.private_data(destination, &parameters.private_data)?,
        })
    }

    fn ib_accept<'a>(&self, parameters: &'a ConnectionParameters, ece: Ece) -> Accept<'a> {
        Accept {
            qp: parameters.qp,
            srq: parameters.srq,
            psn: self.psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            flow_control: parameters.flow_control,
            rnr_retry: parameters.rnr_retry,
            ece,
            private_data: &parameters.private_data,
        }
    }
}
