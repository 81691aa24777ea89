//! The process's connection manager, and the adapter that it opens at the program's address.
//!
//! A program creates identifiers before it names an address. Its first command that needs one opens the
//! adapter there, unless a context of the process has opened it before.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nichrome_cm::IdName;
use nichrome_cm::ucma::Command;
use nichrome_hca::cm::{ChannelError, CmChannel, CmHost, PausedHost};
use nichrome_port::clock;

use crate::adapter::Adapter;
use crate::configuration::Configuration;
use crate::device::guid;
use crate::errno::Errno;
use crate::stderr::print_lines;
use crate::waiting;

/// The connection manager of the process. It exists while a device file is open.
pub(super) struct Manager {
    host: Arc<CmHost>,
    /// The adapter that drives it.
    adapter: OnceLock<Arc<Adapter>>,
    /// ID of the process that opened it: a forked child has its own.
    process: u32,
}

static PROCESS: Mutex<Weak<Manager>> = Mutex::new(Weak::new());

fn process() -> MutexGuard<'static, Weak<Manager>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked connection manager.
pub(crate) struct Held {
    /// Borrows from the manager, which is dropped after it.
    _host: Option<PausedHost<'static>>,
    _process: MutexGuard<'static, Weak<Manager>>,
    _manager: Option<Arc<Manager>>,
}

/// Locks the connection manager until the result is dropped: for a process that is about to fork, and holds
/// no other lock yet.
pub(crate) fn hold() -> Held {
    let process = process();
    let manager = process.upgrade();
    let host = manager.as_ref().map(|manager| {
        // SAFETY: the field `_manager` keeps the manager alive, and is dropped after `_host`.
        unsafe { mem::transmute::<PausedHost<'_>, PausedHost<'static>>(manager.host.pause()) }
    });
    Held { _host: host, _process: process, _manager: manager }
}

impl Manager {
    /// Returns the process's connection manager and opens it first if necessary.
    pub(super) fn of_process() -> Result<Arc<Self>, Errno> {
        let mut process = process();
        if let Some(manager) = process.upgrade()
            && manager.process == std::process::id()
        {
            return Ok(manager);
        }
        let config = Configuration::from_env().map(|configuration| configuration.adapter).unwrap_or_default();
        let host = CmHost::new(config.transport, u64::from_be(guid()), config.seed)
            .map_err(|error| report(&error))?;
        let manager = Arc::new(Self { host, adapter: OnceLock::new(), process: std::process::id() });
        // An open adapter may already drive a connection manager: channels must belong to that one from the
        // start.
        Adapter::opened().map_or(Ok(()), |adapter| manager.attach(adapter))?;
        *process = Arc::downgrade(&manager);
        Ok(manager)
    }

    /// Returns true in a forked child of the process whose adapter drives this manager. If there is no
    /// adapter yet, the first process that needs one opens its own: a program may open its channels and then
    /// become a daemon.
    fn has_inherited_adapter(&self) -> bool {
        self.adapter.get().is_some_and(|adapter| adapter.is_inherited())
    }

    fn attach(&self, adapter: Arc<Adapter>) -> Result<(), Errno> {
        self.host.attach(&adapter.driver()).map_err(|error| report(&error))?;
        // No other thread sets it: the caller holds the lock of `PROCESS`.
        let _ = self.adapter.set(adapter);
        Ok(())
    }

    pub(super) fn open_channel(&self) -> Result<CmChannel, Errno> {
        self.host.open_channel().map_err(|error| match error {
            ChannelError::Unavailable(_) => report(&error),
            ChannelError::Command(error) => Errno(error.errno().0),
            ChannelError::Waker(error) => Errno(error.raw_os_error()),
        })
    }

    /// Opens the adapter if a command needs it, or adopts the one that a context has opened.
    pub(super) fn prepare(&self, command: &Command) -> Result<(), Errno> {
        let _process = process();
        if self.adapter.get().is_some() {
            return Ok(());
        }
        let adapter = match (Adapter::opened(), place_of(command, |id| self.host.is_family_only(id))?) {
            (Some(adapter), _) => adapter,
            (None, Some(address)) => Adapter::open_at(address)?,
            (None, None) => return Ok(()),
        };
        self.attach(adapter)
    }

    /// Announces to the adapter that this thread waits for an event.
    ///
    /// # Errors
    /// `ENODEV`: this is a forked child, which would take the parent's event.
    pub(super) fn begin_wait(&self) -> Result<(), Errno> {
        if self.has_inherited_adapter() {
            return Err(Errno(libc::ENODEV));
        }
        if let Some(adapter) = self.adapter.get() {
            waiting::begin(adapter, clock::now());
        }
        Ok(())
    }
}

/// Prints an error, which errno cannot carry, to standard error.
fn report(error: &dyn std::error::Error) -> Errno {
    print_lines(&error.to_string());
    Errno(libc::ENODEV)
}

/// Returns the address of the adapter that a command needs: the source address that the command names, else
/// the one from which the kernel would send to its destination, else the loopback address: 127.0.0.1, or ::1
/// if the identifier is limited to IPv6. `None` if the command needs no adapter.
fn place_of(command: &Command, is_family_only: impl FnOnce(IdName) -> bool) -> Result<Option<IpAddr>, Errno> {
    let address = match command {
        Command::Bind { id, source } if source.ip().is_unspecified() => {
            match source.is_ipv6() && is_family_only(*id) {
                true => Ipv6Addr::LOCALHOST.into(),
                false => Ipv4Addr::LOCALHOST.into(),
            }
        }
        Command::Bind { source, .. } => source.ip(),
        Command::ResolveAddress { source: Some(source), .. } if !source.ip().is_unspecified() => source.ip(),
        Command::ResolveAddress { destination, .. } => source_to(destination.ip())?,
        Command::Listen { .. } | Command::JoinMulticast { .. } => Ipv4Addr::LOCALHOST.into(),
        _ => return Ok(None),
    };
    Ok(Some(address))
}

/// Returns the address from which the kernel would send to `destination`. Sends nothing.
fn source_to(destination: IpAddr) -> Result<IpAddr, Errno> {
    let any = SocketAddr::new(
        match destination {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        },
        0,
    );
    // Any port will do: the kernel only looks up the route.
    let connected = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(SocketAddr::new(destination, 1))?;
        socket.local_addr()
    });
    connected.map(|local| local.ip()).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::ENODEV)))
}
