//! Connections by address and queue pair number: their TCP port and thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nichrome_port::udp::UdpError;
use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpNumber};

use super::counters::SharedCounters;
use super::handshake::IwarpHandshake;
use super::pending::{Pending, Request, StreamHost};
use super::{IwarpCounters, IwarpOptions, Shared, port_of};
use crate::connect::{self, Connector, Limits};
use crate::descriptors;

/// Sets up the connections of an adapter's queue pairs.
pub(crate) struct IwarpSetup {
    connector: Connector<Request>,
    address: IpAddr,
    options: IwarpOptions,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
    counters: Arc<SharedCounters>,
}

impl IwarpSetup {
    /// Starts the thread for the device behind `host`, which accepts from `listener`.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start(
        listener: TcpListener,
        host: Arc<dyn StreamHost>,
        shared: Shared,
    ) -> io::Result<Self> {
        let Shared { options, counters } = shared;
        let address = listener.local_addr()?.ip();
        let open = Arc::new(AtomicUsize::new(0));
        let pending = Pending::new(host, Arc::clone(&open), Arc::clone(&counters), options.report);
        let limits = Limits::with_inbound(MAX_INBOUND);
        let connector = Connector::start::<IwarpHandshake>(limits, "nichrome-iwarp", listener, pending)?;
        descriptors::raise_limit();
        Ok(Self { connector, address, options, open, counters })
    }

    /// Holds a queue pair that `change` has moved to RTR; `None` if it needs no connection.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub(crate) fn hold<M: Memory>(
        &self,
        device: &mut Device<M>,
        qp: QpHandle,
        change: &QpChange,
    ) -> Result<Option<Request>, ModifyError> {
        let depth = u16::from(device.limits().rd_atomic);
        Request::hold(device, qp, change, self.address, |report| {
            self.options.of(report.max_dest_rd_atomic.into(), depth)
        })
    }

    /// Connects a held queue pair.
    pub(crate) fn request(&self, request: Request) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.connector.request(request);
    }

    /// Ends the set-up of a queue pair's connection.
    pub(crate) fn withdraw(&self, qp: QpNumber) {
        if self.open() > 0 {
            self.connector.withdraw(qp);
        }
    }

    /// Gives up the port in a forked child; its parent keeps it.
    pub(crate) fn close_in_child(&self) {
        self.connector.close_in_child();
    }

    /// Queue pairs that are being connected.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn counters(&self) -> IwarpCounters {
        self.counters.get()
    }

    pub(crate) const fn options(&self) -> IwarpOptions {
        self.options
    }
}

/// Inbound connections in each phase of their set-up at a time.
const MAX_INBOUND: usize = 1024;

/// Opens the TCP port of the adapter at `address` whose lowest queue pair number is `first`.
///
/// # Errors
/// The port is taken.
pub(crate) fn listen(address: IpAddr, first: u32) -> Result<TcpListener, UdpError> {
    connect::open_port(SocketAddr::new(address, port_of(QpNumber::new(first).unwrap_or_default())))
}
