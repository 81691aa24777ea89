//! The process's one device, shared by all open contexts.

use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use nichrome_hca::{Driver, IwarpCounters, Place, Transport};
use nichrome_rdma::star::CardCounters;
use nichrome_rdma::{Device, Operations, PathMtu};
use nichrome_wire::cm::Guid;

use crate::cancellation::{Uncancelled, WithoutCancellation};
use crate::configuration::Configuration;
use crate::device::guid;
use crate::errno::Errno;
use crate::event_dispatcher::EventDispatcher;
use crate::guarded_copy;
use crate::process_memory::ProcessMemory;
use crate::stderr::print_lines;

/// The open device of a process.
pub(crate) struct Adapter {
    driver: ManuallyDrop<Driver<ProcessMemory>>,
    /// True if the driver calls cancellation points of the C library (pthreads(7)): with iWARP's streams or a
    /// capture.
    has_cancellation_points: bool,
    dispatcher: Arc<EventDispatcher>,
    pub(crate) mtu: PathMtu,
    /// Whether to print the counters when the device closes or the process exits.
    prints_stats: bool,
    /// ID of the process that opened the device. A forked child inherits the memory but not the driver's
    /// thread.
    process: u32,
}

/// The process's device; empty while no context is open.
static CURRENT: Mutex<Weak<Adapter>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's device, locked: no other thread opens or closes it.
pub(crate) type Current = MutexGuard<'static, Weak<Adapter>>;

impl Adapter {
    /// Returns true in a forked child of the process that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != process::id()
    }

    /// Returns the device's driver, for use within one statement: while the result lives, the thread is not
    /// cancelled.
    #[inline]
    pub(crate) fn driver(&self) -> WithoutCancellation<'_, Driver<ProcessMemory>> {
        WithoutCancellation::new(&self.driver, self.has_cancellation_points.then(Uncancelled::begin))
    }

    /// Locks and returns the process's device.
    pub(crate) fn current() -> Current {
        lock(&CURRENT)
    }

    /// Returns the address of the process's device, or `None` if it is closed or another thread holds the
    /// lock. Does not block.
    pub(crate) fn open_address() -> Option<IpAddr> {
        let adapter = CURRENT.try_lock().ok()?.upgrade()?;
        (!adapter.is_inherited()).then(|| adapter.address())
    }

    /// Returns the process's device and opens it first if necessary, at the configured place. Fails with
    /// `ENODEV`; the cause, which errno cannot carry, is printed to standard error.
    pub(crate) fn open() -> Result<Arc<Self>, Errno> {
        Self::open_unless_configured(None)
    }

    /// Returns the process's device if it is open.
    pub(crate) fn opened() -> Option<Arc<Self>> {
        Self::of_process(&lock(&CURRENT))
    }

    /// A forked child cannot use its parent's device: the driver's thread does not exist in the child.
    fn of_process(current: &Weak<Self>) -> Option<Arc<Self>> {
        current.upgrade().filter(|adapter| !adapter.is_inherited())
    }

    /// As [`open`](Self::open), at this address if none is configured.
    pub(crate) fn open_at(address: IpAddr) -> Result<Arc<Self>, Errno> {
        Self::open_unless_configured(Some(address))
    }

    fn open_unless_configured(address: Option<IpAddr>) -> Result<Arc<Self>, Errno> {
        let _uncancelled = Uncancelled::begin();
        let mut current = lock(&CURRENT);
        if let Some(adapter) = Self::of_process(&current) {
            return Ok(adapter);
        }
        let adapter = Arc::new(Self::new(address).map_err(|error| {
            print_lines(&error.to_string());
            Errno(libc::ENODEV)
        })?);
        *current = Arc::downgrade(&adapter);
        end_at_exit();
        Ok(adapter)
    }

    fn new(address: Option<IpAddr>) -> Result<Self, Box<dyn std::error::Error>> {
        let Configuration { adapter: mut config, prints_stats } = Configuration::from_env()?;
        // librdmacm finds the device by its GUID.
        config.cm.guid = Some(Guid(u64::from_be(guid())));
        guarded_copy::guard();
        let dispatcher = Arc::new(EventDispatcher::default());
        let events = Arc::clone(&dispatcher);
        if let (Place::Loopback, Some(address)) = (config.place, address) {
            config.place = Place::Address(address);
        }
        let driver = Driver::open(&config, ProcessMemory, Box::new(move |event| events.dispatch(event)))?;
        let mtu = driver.call(|device| device.config().mtu);
        let has_cancellation_points = config.transport == Transport::Iwarp || config.capture.is_some();
        let driver = ManuallyDrop::new(driver);
        Ok(Self { driver, has_cancellation_points, dispatcher, mtu, prints_stats, process: process::id() })
    }

    /// Calls `change` with the receivers of the device's events, under the device's lock.
    pub(crate) fn with_dispatcher<T>(&self, change: impl FnOnce(&EventDispatcher) -> T) -> T {
        self.driver().call(|_| change(&self.dispatcher))
    }

    /// Returns the device's IP address.
    pub(crate) fn address(&self) -> IpAddr {
        self.driver().local().ip()
    }

    /// Prints to standard error the write error that ended the capture, if there was one, and the device's
    /// counters, if `NICHROME_STATS` asks for them.
    fn report(&self) {
        if let Some(error) = self.driver().capture_error() {
            print_lines(&format!("{error}: the capture has stopped"));
        }
        if self.prints_stats {
            self.print_stats();
        }
    }

    fn print_stats(&self) {
        let wire = self.driver().wire_counters();
        let (counters, card) =
            self.driver().call(|device| (*device.counters(), device.view::<CardCounters>()));
        let Operations { sends, writes, reads, atomics, flushes, local, receives } = counters.operations;
        let mut lines = vec![
            format!(
                "{sends} SENDs, {writes} WRITEs, {reads} READs, {atomics} atomics, {flushes} FLUSHes, \
                 {local} local operations, {receives} receives posted; {} completions in error",
                counters.completions_in_error,
            ),
            format!(
                "{} packets sent, {} of them through memory, {} received, {} lost to faults; {} bytes sent, {} received; \
                 {} requests retransmitted, {} timeouts",
                wire.sent,
                wire.sent_through_memory,
                wire.received,
                wire.lost,
                counters.bytes_sent,
                counters.bytes_received,
                counters.retransmitted,
                counters.timeouts,
            ),
        ];
        let refused = self.driver().iwarp_counters();
        if refused != IwarpCounters::default() {
            let IwarpCounters { garbage, early_data, foreign, timed_out, displaced, closed } = refused;
            lines.push(format!(
                "connections refused: {garbage} without MPA, {early_data} with early data, {foreign} for an unknown queue pair, \
                 {timed_out} timed out, {displaced} displaced, {closed} closed by the peer"
            ));
        }
        let (sent, received) = (counters.terminates_sent, counters.terminates_received);
        if sent + received > 0 {
            lines.push(format!("{sent} TERMINATEs sent, {received} received"));
        }
        if wire.dropped_offloads > 0 {
            lines.push(format!(
                "{} messages of several packets dropped by the kernel, which is older than Linux 6.2",
                wire.dropped_offloads
            ));
        }
        if card != CardCounters::default() {
            lines.push(format!(
                "stateless: {} RDPs stored, {} GDs answered, {} refused; {} dropped: invalid check or tag",
                card.stored,
                card.fetched,
                card.refused_memory
                    + card.refused_length
                    + card.refused_expired
                    + card.refused_unauthenticated
                    + card.refused_lease,
                card.dropped_check + card.dropped_tag,
            ));
        }
        print_lines(&lines.join("\n"));
    }
}

impl Drop for Adapter {
    /// Closes the device. Does nothing in a forked child: the driver would wait for a thread that does not
    /// exist there.
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        self.report();
        // SAFETY: the driver is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.driver) };
    }
}

/// How long an exiting process waits for the device's lock. A signal handler that exits may have interrupted
/// the thread that holds the lock; then the process exits without sending ACKs or printing counters. The
/// capture needs no lock: each packet is in the file when it is sent.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// Registers an atexit(3) handler for programs that exit without closing the device. The handler sends the
/// delayed ACKs, which the peers wait for, ends the connections of the connection manager, as the kernel does
/// when it closes a process's files, waits until the sockets have accepted the bytes of streams, and prints
/// the [report](Adapter::report).
fn end_at_exit() {
    extern "C" fn end() {
        let adapter = CURRENT.try_lock().ok().and_then(|current| current.upgrade());
        if let Some(adapter) = adapter {
            if !adapter.is_inherited() && adapter.driver().pause_within(LOCK_TIMEOUT).is_some() {
                adapter.driver().call(Device::acknowledge_all);
                adapter.driver().close_cm_channels();
                adapter.driver().await_sent();
                adapter.report();
            }
            // The process exits: the kernel closes the device's descriptors.
            std::mem::forget(adapter);
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the library is never unloaded, because its thread runs in it; so the handler stays valid.
        unsafe { libc::atexit(end) };
    });
}

/// Closes the capture and cuts the device off from the network. Runs after all atexit(3) handlers of the
/// program, which may still send.
extern "C" fn end_capture() {
    let adapter = CURRENT.try_lock().ok().and_then(|current| current.upgrade());
    if let Some(adapter) = adapter {
        if !adapter.is_inherited()
            && let Some(mut device) = adapter.driver().pause_within(LOCK_TIMEOUT)
        {
            device.close();
        }
        std::mem::forget(adapter);
    }
}

/// The library's destructor.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = end_capture;
