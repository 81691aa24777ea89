//! StaR's set-up for an adapter: its TCP port and thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nichrome_port::close_in_child;
use nichrome_port::udp::UdpError;
use nichrome_rdma::star::Wish;
use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpNumber};
use nichrome_wire::star::STAR_PORT;

use super::StarOptions;
use super::handshake::{StarHandshake, hold};
use super::pending::{Host, Pending, Request};
use super::slots::port_of;
use crate::connect::{self, Connector, Limits, PreSharedKey, Sealed};

/// The TCP port of an adapter.
pub(crate) struct SetUpPort {
    listener: TcpListener,
    /// [`STAR_PORT`] at a shared address, reserved without listening. Each peer tries this port first: a
    /// process of another user that listened there would break the peer's set-up.
    reserved: Option<OwnedFd>,
}

/// Sets up the reliable connections of an adapter.
pub(crate) struct StarSetup {
    connector: Connector<Request>,
    address: IpAddr,
    wish: Wish,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
    /// As in [`SetUpPort`].
    reserved: Option<OwnedFd>,
}

impl StarSetup {
    /// Starts the thread for the device behind `host`, which accepts at `port`. Set-ups are encrypted under
    /// `key`.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start<M: Memory + Send + 'static>(
        port: SetUpPort,
        host: Arc<dyn Host<M>>,
        options: &StarOptions,
        key: Option<PreSharedKey>,
    ) -> io::Result<Self> {
        let SetUpPort { listener, reserved } = port;
        let address = listener.local_addr()?.ip();
        let open = Arc::new(AtomicUsize::new(0));
        let pending = Pending::new(host, Arc::clone(&open), key, options.report);
        let limits = Limits::default();
        let connector =
            Connector::start::<Sealed<StarHandshake<M>>>(limits, "nichrome-star", listener, pending)?;
        Ok(Self { connector, address, wish: options.stateless.wish(), open, reserved })
    }

    /// Holds a queue pair that `change` has moved to RTR, if its transport must be negotiated.
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

    /// Ends the negotiation of a queue pair's transport.
    pub(crate) fn withdraw(&self, qp: QpNumber) {
        if self.open() > 0 {
            self.connector.withdraw(qp);
        }
    }

    /// Gives up the ports in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&self) {
        self.connector.close_in_child();
        close_in_child(self.reserved.iter().map(AsFd::as_fd));
    }

    /// Queue pairs whose transport is being negotiated.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Opens StaR's TCP port at `address`, or that of the slot of a process that shares the address.
///
/// # Errors
/// A port is taken.
pub(crate) fn listen(address: IpAddr, slot: Option<usize>) -> Result<SetUpPort, UdpError> {
    let reserve = |_| connect::reserve_port(SocketAddr::new(address, STAR_PORT));
    let reserved = slot.map(reserve).transpose()?;
    Ok(SetUpPort { listener: connect::open_port(SocketAddr::new(address, port_of(slot)))?, reserved })
}
