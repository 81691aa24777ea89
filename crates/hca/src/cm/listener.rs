//! Listening at a port: requests of peers.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use nichrome_cm::{ConnectionParameters, IdName};
use nichrome_port::clock;

use super::commands::{Arrival, ListenerName};
use super::connection::{Connected, ConnectionHandle};
use super::error::{ConnectError, ListenError, WaitError};
use crate::adapter::Adapter;
use crate::queue_pair::{Connection, QueuePair};

/// A port at which the adapter takes requests. Dropping it rejects the requests that the program has not
/// taken.
pub struct Listener {
    adapter: Adapter,
    name: ListenerName,
    address: SocketAddr,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A peer's request. Dropping it rejects the request.
pub struct Request {
    adapter: Adapter,
    /// `None` once it is accepted.
    id: Option<IdName>,
    peer: SocketAddr,
    parameters: ConnectionParameters,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl Adapter {
    /// Listens at a port of the adapter's address; 0 for a free one. `backlog` bounds the requests that the
    /// program has not taken; 0 for the largest bound, 1,024. Beyond it the adapter drops requests, first
    /// those of the source that has most; peers retransmit them (not over iWARP).
    ///
    /// # Errors
    /// The port is in use, or the adapter has no connection manager.
    pub fn listen(&self, port: u16, backlog: u32) -> Result<Listener, ListenError> {
        let (name, port) = self.manage(|manager, _, now| manager.listen(port, backlog, now))??;
        Ok(Listener { adapter: self.clone(), name, address: SocketAddr::new(self.address(), port) })
    }
}

impl Listener {
    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a request; `None` after `timeout`.
    ///
    /// # Errors
    /// No descriptor is free to wait with; or, after `timeout`, to accept the TCP connections of peers.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Request>, WaitError> {
        let until = Some(clock::now() + timeout);
        let arrived =
            self.adapter.wait_for(self.name.number, until, |manager| manager.next_request(self.name))?;
        if let Some(Arrival { id, peer, parameters }) = arrived {
            return Ok(Some(Request { adapter: self.adapter.clone(), id: Some(id), peer, parameters }));
        }
        // An adapter that has a listener has a connection manager.
        let error = self.adapter.manage(|manager, _, _| manager.accept_error()).ok().flatten();
        error.map_or(Ok(None), |error| Err(WaitError::Accept(error)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // An adapter that has a listener has a connection manager.
        let _ = self.adapter.manage(|manager, device, now| manager.close(self.name, device, now));
    }
}

impl Request {
    /// Address and port of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's private data, 56 bytes with zeros at the end.
    pub fn private_data(&self) -> &[u8] {
        &self.parameters.private_data
    }

    /// Accepts the request with a queue pair in RESET or INIT, and waits until the peer confirms.
    ///
    /// # Errors
    /// [`ConnectError`]. The queue pair is destroyed.
    pub fn accept(
        mut self,
        queue_pair: QueuePair,
        private_data: &[u8],
        connection: &Connection,
    ) -> Result<Connected, ConnectError> {
        let id = self.id.ok_or(ConnectError::Withdrawn)?;
        let attributes = connection.attributes();
        let chosen = connection.parameters(&queue_pair, private_data);
        let parameters = ConnectionParameters {
            responder_resources: chosen.responder_resources.min(self.parameters.responder_resources),
            initiator_depth: chosen.initiator_depth.min(self.parameters.initiator_depth),
            ..chosen
        };
        let handle = queue_pair.handle();
        let number = self.adapter.inner.driver.manage_qps(|manager, device, modify, now| {
            manager.accept(id, handle, &parameters, &attributes, (device, modify), now)
        })??;
        self.id = None;
        let endpoint = ConnectionHandle::new(self.adapter.clone(), number);
        endpoint.wait_established()?;
        let private_data = std::mem::take(&mut self.parameters.private_data);
        Ok(Connected::new(endpoint, queue_pair, self.peer, private_data))
    }

    /// Rejects the request.
    ///
    /// # Errors
    /// The peer has withdrawn the request, or the private data is longer than 148 bytes.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let id = self.id.ok_or(ConnectError::Withdrawn)?;
        self.adapter.manage(|manager, device, now| manager.reject(id, private_data, device, now))??;
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // An adapter that has a request has a connection manager.
            let _ = self.adapter.manage(|manager, device, now| manager.destroy(id, device, now));
        }
    }
}
