//! A queue pair that the connection manager has connected.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nichrome_cm::ConnectionParameters;
use nichrome_port::{Waker, clock};
use nichrome_wire::{Ecn, Instant};

use super::attributes::Attributes;
use super::endpoint::{EndpointNumber, Progress};
use super::error::{ConnectError, WaitError};
use super::manager::ConnectionManager;
use crate::adapter::Adapter;
use crate::queue_pair::{Connection, QueuePair};

/// A connected queue pair. Dropping it disconnects, then destroys the queue pair.
pub struct Connected {
    endpoint: ConnectionHandle,
    queue_pair: QueuePair,
    peer: SocketAddr,
    private_data: Vec<u8>,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A connection of the connection manager. Dropping it ends the connection.
pub(super) struct ConnectionHandle {
    adapter: Adapter,
    number: EndpointNumber,
}

impl Adapter {
    /// Connects a queue pair in RESET or INIT to a listener at this address and port, and waits until the
    /// peer answers.
    ///
    /// The path MTU is the smaller of `connection`'s and the adapter's. The peer adopts the path MTU, timeout
    /// and retry counts.
    ///
    /// # Errors
    /// [`ConnectError`]. The queue pair is destroyed.
    pub fn connect(
        &self,
        peer: SocketAddr,
        queue_pair: QueuePair,
        private_data: &[u8],
        connection: &Connection,
    ) -> Result<Connected, ConnectError> {
        let attributes = connection.attributes();
        let parameters = connection.parameters(&queue_pair, private_data);
        let handle = queue_pair.handle();
        let number = self.manage(|manager, device, now| {
            manager.connect(peer, handle, &parameters, &attributes, device, now)
        })??;
        let endpoint = ConnectionHandle { adapter: self.clone(), number };
        let private_data = match endpoint.wait_while(&Progress::Pending)? {
            Progress::Responded(private_data) => {
                self.inner.driver.manage_qps(|manager, device, modify, now| {
                    manager.establish(number, &attributes, (device, modify), now)
                })??;
                private_data
            }
            progress => {
                let accept_private_data =
                    self.manage(|manager, _, _| manager.take_accept_private_data(number))?;
                accept_private_data.ok_or_else(|| failure(progress))?
            }
        };
        Ok(Connected { endpoint, queue_pair, peer, private_data })
    }

    /// Evaluates `found` now and at every change of the endpoint, until it returns a value or the time is
    /// `until`.
    pub(super) fn wait_for<T>(
        &self,
        endpoint: EndpointNumber,
        until: Option<Instant>,
        mut found: impl FnMut(&mut ConnectionManager) -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        let waker = Arc::new(Waker::new().map_err(WaitError::Waker)?);
        let mut check = |manager: &mut ConnectionManager| {
            let result = found(manager);
            match result {
                None => manager.begin_wait(endpoint, &waker),
                Some(_) => manager.end_wait(endpoint, &waker),
            }
            result
        };
        loop {
            waker.clear();
            // An adapter that has endpoints has a connection manager.
            let result = self.manage(|manager, _, _| check(manager)).ok().flatten();
            if result.is_some() {
                return Ok(result);
            }
            if until.is_some_and(|until| until <= clock::now()) {
                // An adapter that has endpoints has a connection manager.
                let _ = self.manage(|manager, _, _| manager.end_wait(endpoint, &waker));
                return Ok(None);
            }
            self.inner.driver.wait(&waker, until);
        }
    }
}

/// The error of a connection that ended with `progress` before it was established.
fn failure(progress: Progress) -> ConnectError {
    match progress {
        Progress::Failed(error) => error,
        _ => ConnectError::Withdrawn,
    }
}

impl Connection {
    pub(super) fn attributes(&self) -> Attributes {
        let Self { mtu, access, timeout, rd_atomic, ecn, .. } = *self;
        Attributes { mtu, access, timeout, rd_atomic, ecn: if ecn { Ecn::Ect0 } else { Ecn::NotEct } }
    }

    pub(super) fn parameters(&self, queue_pair: &QueuePair, private_data: &[u8]) -> ConnectionParameters {
        ConnectionParameters {
            qp: queue_pair.number(),
            private_data: private_data.to_vec(),
            responder_resources: self.rd_atomic,
            initiator_depth: self.rd_atomic,
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            ..ConnectionParameters::default()
        }
    }
}

impl ConnectionHandle {
    pub(super) fn new(adapter: Adapter, number: EndpointNumber) -> Self {
        Self { adapter, number }
    }

    /// Waits until the connection has progressed beyond `from`.
    fn wait_while(&self, from: &Progress) -> Result<Progress, WaitError> {
        let further = |manager: &mut ConnectionManager| {
            Some(manager.progress_of(self.number)).filter(|progress| progress != from)
        };
        // Without a deadline, `wait_for` returns only with a result.
        Ok(self.adapter.wait_for(self.number, None, further)?.unwrap_or(Progress::Disconnected))
    }

    /// Waits for the RTU of an accepted request. Also succeeds if the peer has disconnected meanwhile, or if
    /// its DREQ overtook its RTU: the peer was connected and may have sent messages.
    pub(super) fn wait_established(&self) -> Result<(), ConnectError> {
        match self.wait_while(&Progress::Pending)? {
            Progress::Established | Progress::Disconnected => Ok(()),
            progress => Err(failure(progress)),
        }
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        // An adapter that has endpoints has a connection manager.
        let _ = self.adapter.manage(|manager, device, now| manager.release(self.number, device, now));
    }
}

impl Connected {
    pub(super) fn new(
        endpoint: ConnectionHandle,
        queue_pair: QueuePair,
        peer: SocketAddr,
        private_data: Vec<u8>,
    ) -> Self {
        Self { endpoint, queue_pair, peer, private_data }
    }

    /// The queue pair, in RTS.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Address and port of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Private data of the peer's request or answer, with zeros at the end.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns false once either end has disconnected. The queue pair is then in ERROR.
    pub fn is_established(&self) -> bool {
        let ConnectionHandle { adapter, number } = &self.endpoint;
        adapter.manage(|manager, _, _| manager.progress_of(*number)) == Ok(Progress::Established)
    }

    /// Waits until the peer disconnects; returns false after `timeout`.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<bool, WaitError> {
        let ConnectionHandle { adapter, number } = &self.endpoint;
        let ended = |manager: &mut ConnectionManager| {
            (manager.progress_of(*number) != Progress::Established).then_some(())
        };
        Ok(adapter.wait_for(*number, Some(clock::now() + timeout), ended)?.is_some())
    }

    /// Disconnects: moves the queue pair to ERROR, so that outstanding requests are flushed, and sends a
    /// DREQ, which the adapter retransmits until the peer answers. No effect if either end has disconnected.
    pub fn disconnect(&self) {
        let ConnectionHandle { adapter, number } = &self.endpoint;
        self.queue_pair.repeat_last_ack();
        // An adapter that has endpoints has a connection manager.
        let _ = adapter.manage(|manager, device, now| manager.disconnect(*number, device, now));
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.disconnect();
    }
}
