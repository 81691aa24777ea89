//! StaR's set-up for an adapter: its TCP port and thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nichrome_port::udp::UdpError;
use nichrome_rdma::star::Wish;
use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle};
use nichrome_wire::Instant;
use nichrome_wire::star::STAR_PORT;
use rustix::io::Errno;

use super::StarOptions;
use super::handshake::{StarHandshake, hold};
use super::pending::{Host, Pending, Request};
use crate::connect::{Connector, Route, Service};

/// Sets up the reliable connections of an adapter.
pub(crate) struct StarSetup {
    connector: Connector<Request>,
    address: IpAddr,
    wish: Wish,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
}

impl StarSetup {
    /// Starts the thread for the device behind `host`, which accepts from `listener`.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start<M: Memory + Send + 'static>(
        listener: TcpListener,
        host: Arc<dyn Host<M>>,
        options: &StarOptions,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?.ip();
        let open = Arc::new(AtomicUsize::new(0));
        let service = StarService { pending: Pending::new(host, Arc::clone(&open), options.report) };
        let connector = Connector::start("nichrome-star", listener, service)?;
        Ok(Self { connector, address, wish: options.stateless.wish(), open })
    }

    /// Holds a queue pair that `change` has brought to RTR, if its transport is to be negotiated.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub(crate) fn hold<M: Memory>(
        &self,
        device: &mut Device<M>,
        qp: QpHandle,
        change: &QpChange,
    ) -> Result<Option<Request>, ModifyError> {
        hold(device, qp, change, (self.address, self.wish))
    }

    /// Negotiates the transport of a held queue pair.
    pub(crate) fn request(&self, request: Request) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.connector.request(request);
    }

    /// Queue pairs whose transport is being negotiated.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

struct StarService<M> {
    pending: Pending<M>,
}

impl<M: Memory> Service for StarService<M> {
    type Request = Request;
    type Handshake = StarHandshake<M>;

    fn request(&mut self, request: Request, now: Instant) -> Option<Request> {
        if request.connects() {
            return Some(request);
        }
        self.pending.expect(request, now);
        None
    }

    fn connect(&mut self, request: Request, now: Instant) -> Option<(Route, StarHandshake<M>)> {
        let route = Route { from: request.address, to: SocketAddr::new(request.peer.0, STAR_PORT) };
        match StarHandshake::outbound(request, &self.pending, now) {
            Ok(handshake) => Some((route, handshake)),
            Err(failure) => {
                self.pending.fail(&request, &failure);
                None
            }
        }
    }

    fn accept(&mut self, peer: IpAddr, now: Instant) -> StarHandshake<M> {
        StarHandshake::inbound(peer, now)
    }

    fn context(&mut self) -> &mut Pending<M> {
        &mut self.pending
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pending.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pending.handle_timeout(now);
    }
}

/// Opens StaR's TCP port at `address`.
///
/// # Errors
/// The port is taken.
pub(crate) fn listen(address: IpAddr) -> Result<TcpListener, UdpError> {
    let address = SocketAddr::new(address, STAR_PORT);
    TcpListener::bind(address).map_err(|error| match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
        Errno::ADDRINUSE => UdpError::Taken(address),
        error => UdpError::Io { address, error },
    })
}
