//! Queue pairs, and the endpoints that programs exchange to connect them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use nichrome_rdma::iwarp::setup::Options;
use nichrome_rdma::{
    Access, AddressVector, DomainHandle, ModifyError, ObjectError, PathMtu, PostError, Psn, QpCapacity,
    QpChange, QpConfig, QpHandle, QpNumber, QpState, QpType, ReceiveRequest, RnrTimer, SendRequest,
    Signaling,
};
use nichrome_wire::{Ecn, TrafficClass};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::adapter::{Adapter, CompletionQueue};
use crate::iwarp::{self, EstablishError, Established, Incoming};
use crate::region::ProtectionDomain;

/// The address of a queue pair, which a peer needs to connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The adapter's address.
    pub address: IpAddr,
    /// The queue pair number.
    pub qp: QpNumber,
    /// The first PSN that the queue pair sends.
    pub psn: Psn,
}

/// Attributes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Path MTU, the same at both ends.
    pub mtu: PathMtu,
    /// Rights of the peer.
    pub access: Access,
    /// Time without an ACK before a retransmission: 4.096 µs · 2ⁿ.
    pub timeout: u8,
    /// Retransmissions without progress, 0 to 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK, 0 to 6; 7 for unlimited.
    pub rnr_retry: u8,
    /// Outstanding READs and atomics, in each direction.
    pub rd_atomic: u8,
    /// Sends ECT(0), so that a congested path can mark packets instead of dropping them. The peer must answer
    /// marks by CNPs (annex A17.9.3): Nichrome does, Linux's rxe does not.
    pub ecn: bool,
}

impl Connection {
    /// The values of ibv_rc_pingpong (timeout 67 ms, seven retries, unlimited RNR retries), with all rights.
    pub fn new(mtu: PathMtu) -> Self {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        Self { mtu, access, timeout: 14, retry_count: 7, rnr_retry: 7, rd_atomic: 16, ecn: false }
    }
}

/// RNR NAK timer code for 0.64 ms (IBA table 45).
const MIN_RNR_TIMER: u8 = 12;

/// A queue pair of a reliable connection (RC).
pub struct QueuePair {
    adapter: Adapter,
    handle: QpHandle,
    number: QpNumber,
    psn: Psn,
    /// The send and receive completion queues, kept alive.
    _queues: [CompletionQueue; 2],
    /// The protection domain, kept alive; `None` for the adapter's own.
    _domain: Option<ProtectionDomain>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("handle", &self.handle)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// Creates an RC queue pair, with `sends` and `receives` as its completion queues.
    ///
    /// # Errors
    /// The capacity is out of range, or no queue pair is free.
    pub fn queue_pair(
        &self,
        capacity: QpCapacity,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
    ) -> Result<QueuePair, ObjectError> {
        QueuePair::new(self, (self.inner.domain, None), capacity, [sends, receives])
    }
}

impl ProtectionDomain {
    /// Creates an RC queue pair in this domain, as [`Adapter::queue_pair`].
    ///
    /// # Errors
    /// The capacity is out of range, or no queue pair is free.
    pub fn queue_pair(
        &self,
        capacity: QpCapacity,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
    ) -> Result<QueuePair, ObjectError> {
        let domain = (self.shared.handle, Some(self.clone()));
        QueuePair::new(&self.shared.adapter, domain, capacity, [sends, receives])
    }
}

impl QueuePair {
    fn new(
        adapter: &Adapter,
        (domain, held): (DomainHandle, Option<ProtectionDomain>),
        capacity: QpCapacity,
        [sends, receives]: [&CompletionQueue; 2],
    ) -> Result<Self, ObjectError> {
        let config = QpConfig {
            kind: QpType::Rc,
            domain,
            send_cq: sends.shared.handle,
            receive_cq: receives.shared.handle,
            srq: None,
            capacity,
            signaling: Signaling::Requested,
        };
        let (handle, number) = adapter.inner.driver.call(|device| {
            let handle = device.create_qp(config)?;
            Ok::<_, ObjectError>((handle, device.qp_number(handle)?))
        })?;
        let (psn, queues) = (adapter.first_psn(), [sends.clone(), receives.clone()]);
        Ok(Self { adapter: adapter.clone(), handle, number, psn, _queues: queues, _domain: held })
    }

    pub(crate) fn handle(&self) -> QpHandle {
        self.handle
    }

    pub(crate) fn number(&self) -> QpNumber {
        self.number
    }

    /// Retransmits the last ACK, before the queue pair stops answering.
    pub(crate) fn repeat_last_ack(&self) {
        // Fails only for an unknown queue pair.
        let _ = self.adapter.inner.driver.repeat_last_ack(self.handle);
    }

    /// The endpoint for the peer.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.adapter.address(), qp: self.number, psn: self.psn }
    }

    /// Moves the queue pair to RTS, connected to `peer`, which must connect to this
    /// [`endpoint`](Self::endpoint).
    ///
    /// # Errors
    /// The queue pair is connected already, or the peer's address is of another family.
    pub fn connect(&self, peer: &Endpoint, connection: &Connection) -> Result<(), ModifyError> {
        let Connection { mtu, access, timeout, retry_count, rnr_retry, rd_atomic, ecn } = *connection;
        let traffic_class = TrafficClass::from(if ecn { Ecn::Ect0 } else { Ecn::NotEct });
        let init = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(access),
            ..QpChange::to(QpState::Init)
        };
        let ready_to_receive = QpChange {
            path: Some(AddressVector { traffic_class, ..AddressVector::to(peer.address) }),
            path_mtu: Some(mtu),
            destination: Some(peer.qp),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: Some(rd_atomic),
            min_rnr_timer: RnrTimer::new(MIN_RNR_TIMER),
            ..QpChange::to(QpState::Rtr)
        };
        let ready_to_send = QpChange {
            sq_psn: Some(self.psn),
            timeout: Some(timeout),
            retry_count: Some(retry_count),
            rnr_retry: Some(rnr_retry),
            max_rd_atomic: Some(rd_atomic),
            ..QpChange::to(QpState::Rts)
        };
        let steps = [init, ready_to_receive, ready_to_send];
        self.adapter.inner.driver.modify_qp_by_steps(self.handle, &steps)
    }

    /// Moves the queue pair to RTS, connected to a [`Listener`](crate::Listener) or a program of rdma_cm at
    /// this address and port; returns the peer's private data. Waits for up to 10 s.
    ///
    /// # Errors
    /// The adapter's transport is not iWARP, the connection fails, or the peer rejects it.
    pub fn connect_to(
        &self,
        peer: SocketAddr,
        private_data: &[u8],
        connection: &Connection,
    ) -> Result<Vec<u8>, EstablishError> {
        let established = iwarp::connect(peer, self.iwarp_options(connection)?, private_data)?;
        self.establish(established, connection)
    }

    /// Accepts a peer that a [`Listener`](crate::Listener) has received, and moves the queue pair to RTS.
    ///
    /// # Errors
    /// The adapter's transport is not iWARP, or the connection is lost.
    pub fn accept(
        &self,
        incoming: Incoming,
        private_data: &[u8],
        connection: &Connection,
    ) -> Result<(), EstablishError> {
        let established = incoming.accept(&self.iwarp_options(connection)?, private_data)?;
        self.establish(established, connection).map(drop)
    }

    fn iwarp_options(&self, connection: &Connection) -> Result<Options, EstablishError> {
        let options = self.adapter.inner.driver.iwarp_options().ok_or(EstablishError::Transport)?;
        Ok(options.of(connection.rd_atomic.into(), connection.rd_atomic.into()))
    }

    /// Attaches the stream to the queue pair, which may be in INIT already, and moves it to RTS; returns the
    /// peer's private data.
    fn establish(
        &self,
        established: Established,
        connection: &Connection,
    ) -> Result<Vec<u8>, EstablishError> {
        let Established { terms, private_data, stream } = established;
        let driver = &self.adapter.inner.driver;
        let (pkey_index, port, access) = (Some(0), Some(1), Some(connection.access));
        driver
            .modify_qp(self.handle, &QpChange { pkey_index, port, access, ..QpChange::to(QpState::Init) })?;
        driver.attach(self.handle, &terms, stream)?;
        driver.modify_qp_by_steps(self.handle, &[QpState::Rtr, QpState::Rts].map(QpChange::to))?;
        Ok(private_data)
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// The request is malformed, the queue is full, or the queue pair is not connected.
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.adapter.inner.driver.call(|device| device.post_send(self.handle, request))
    }

    /// Posts several requests in order, and stops at the first error.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_sends<'a>(
        &self,
        requests: impl IntoIterator<Item = SendRequest<'a>>,
    ) -> Result<(), PostError> {
        self.adapter.inner.driver.call(|device| {
            requests.into_iter().try_for_each(|request| device.post_send(self.handle, &request))
        })
    }

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// The request is malformed, or the queue is full.
    #[inline]
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.adapter.inner.driver.call(|device| device.post_receive(self.handle, request))
    }

    /// The state; RESET if the device does not know the queue pair.
    pub fn state(&self) -> QpState {
        let report = self.adapter.inner.driver.call(|device| device.query_qp(self.handle));
        report.map_or(QpState::Reset, |report| report.state)
    }

    /// Moves the queue pair to INIT, so that receives can be posted before the peer is known.
    ///
    /// # Errors
    /// The queue pair is connected already.
    pub fn prepare(&self) -> Result<(), ModifyError> {
        let init = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::NONE),
            ..QpChange::to(QpState::Init)
        };
        self.adapter.inner.driver.call(|device| device.modify_qp(self.handle, &init))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // Fails only for an unknown queue pair.
        let _ = self.adapter.inner.driver.destroy_qp(self.handle);
    }
}

/// Formats as the examples of libibverbs do: LID, QPN, PSN and GID in hexadecimal.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        write!(f, "0000:{:06x}:{:06x}:{:032x}", self.qp.value(), self.psn.value(), gid.to_bits())
    }
}

/// The text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not an endpoint: LID:QPN:PSN:GID in hexadecimal is expected")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        parse(text).ok_or_else(|| EndpointError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Endpoint> {
    let mut fields = text.split(':');
    let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
    let (_lid, qp, psn) = (number()?, QpNumber::new(number()?)?, Psn::new(number()?));
    let gid = fields.next().filter(|gid| gid.len() == 32)?;
    let gid = Ipv6Addr::from_bits(u128::from_str_radix(gid, 16).ok()?);
    let address = gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4);
    fields.next().is_none().then_some(Endpoint { address, qp, psn })
}

impl Serialize for Endpoint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_libibverbs_examples_do() {
        for (address, text) in [
            ("127.0.0.1", "0000:000011:abcdef:00000000000000000000ffff7f000001"),
            ("fe80::2", "0000:000011:abcdef:fe800000000000000000000000000002"),
        ] {
            let (qp, psn) = (QpNumber::new(0x11).unwrap(), Psn::new(0xAB_CDEF));
            let endpoint = Endpoint { address: address.parse().unwrap(), qp, psn };
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(text.parse(), Ok(endpoint));
        }
        for wrong in
            ["", "0000:000011:abcdef", "0000:1000000:abcdef:00000000000000000000ffff7f000001", "x:y:z:w"]
        {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
