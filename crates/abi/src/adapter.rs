//! The device behind all contexts of the process.

use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use nichrome_hca::Driver;
use nichrome_rdma::star::CardCounters;
use nichrome_rdma::{Device, Operations, PathMtu};

use crate::configuration::Configuration;
use crate::errno::Errno;
use crate::guarded_copy;
use crate::listeners::Listeners;
use crate::process_memory::ProcessMemory;

/// An open device.
pub(crate) struct Adapter {
    pub(crate) driver: ManuallyDrop<Driver<ProcessMemory>>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) mtu: PathMtu,
    reports: bool,
    /// The process that opened it: a child of fork has its memory, but not its thread.
    process: u32,
}

/// The device of the process, while a context is open.
static CURRENT: Mutex<Weak<Adapter>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of the process, if a context is open, which nobody opens or closes meanwhile.
pub(crate) type Current = MutexGuard<'static, Weak<Adapter>>;

impl Adapter {
    /// The device of the process.
    pub(crate) fn current() -> Current {
        lock(&CURRENT)
    }

    /// The address of the process's device, if it is open. Does not wait for a device that is being opened.
    pub(crate) fn open_address() -> Option<IpAddr> {
        let adapter = CURRENT.try_lock().ok()?.upgrade()?;
        (adapter.process == process::id()).then(|| adapter.address())
    }

    /// The process's device, opened if it is not. A failure is also told on the standard error output: errno cannot say
    /// what is wrong.
    pub(crate) fn open() -> Result<Arc<Self>, Errno> {
        let mut current = lock(&CURRENT);
        // The parent's is of no use to a child, where its thread is not.
        if let Some(adapter) = current.upgrade()
            && adapter.process == process::id()
        {
            return Ok(adapter);
        }
        let adapter = Arc::new(Self::new().map_err(|error| {
            eprintln!("nichrome: {error}");
            Errno(libc::ENODEV)
        })?);
        *current = Arc::downgrade(&adapter);
        end_at_exit();
        Ok(adapter)
    }

    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let Configuration { adapter: config, reports } = Configuration::from_env()?;
        guarded_copy::guard();
        let listeners = Arc::new(Listeners::default());
        let told = Arc::clone(&listeners);
        let driver = Driver::open(&config, ProcessMemory, Box::new(move |event| told.tell(event)))?;
        let mtu = driver.call(|device| device.config().mtu);
        let driver = ManuallyDrop::new(driver);
        Ok(Self { driver, listeners, mtu, reports, process: process::id() })
    }

    /// The device's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.driver.local().ip()
    }

    /// Prints what the device has done.
    fn report(&self) {
        let wire = self.driver.wire_counters();
        let (counters, card) = self.driver.call(|device| (*device.counters(), device.view::<CardCounters>()));
        let Operations { sends, writes, reads, atomics, local, receives } = counters.operations;
        eprintln!(
            "nichrome: {sends} SENDs, {writes} WRITEs, {reads} READs, {atomics} atomics, {local} local operations, \
             {receives} receives posted; {} completions in error",
            counters.completions_in_error,
        );
        eprintln!(
            "nichrome: {} packets sent, {} received, {} lost to faults; {} bytes sent, {} received; \
             {} requests sent again, {} timeouts",
            wire.sent,
            wire.received,
            wire.lost,
            counters.bytes_sent,
            counters.bytes_received,
            counters.retransmitted,
            counters.timeouts,
        );
        if card != CardCounters::default() {
            eprintln!(
                "nichrome: without state: {} RDPs stored, {} GDs answered, {} refused; {} dropped, whose check was wrong",
                card.stored,
                card.fetched,
                card.refused_memory + card.refused_length + card.refused_stamp + card.refused_unauthenticated,
                card.dropped_check,
            );
        }
    }
}

impl Drop for Adapter {
    /// In a child of the process that opened it nothing is closed: the driver would wait for a thread that is not there.
    fn drop(&mut self) {
        if self.process != process::id() {
            return;
        }
        if self.reports {
            self.report();
        }
        // SAFETY: it is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.driver) };
    }
}

/// Programs may end without closing what they opened: what their peers wait for is sent, and the report printed.
fn end_at_exit() {
    extern "C" fn end() {
        let adapter = CURRENT.try_lock().ok().and_then(|current| current.upgrade());
        if let Some(adapter) = adapter {
            if adapter.process == process::id() {
                adapter.driver.call(Device::acknowledge_all);
                if adapter.reports {
                    adapter.report();
                }
            }
            // The process ends: nothing is closed any more.
            std::mem::forget(adapter);
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function is there as long as the library, which is never unloaded: its thread runs in it.
        unsafe { libc::atexit(end) };
    });
}

/// Writes the rest of the capture when the process exits, after all functions that programs passed to atexit(3): these may
/// still send. From then on the device is cut off.
extern "C" fn end_capture() {
    let adapter = CURRENT.try_lock().ok().and_then(|current| current.upgrade());
    if let Some(adapter) = adapter {
        if adapter.process == process::id() {
            adapter.driver.pause().cut_off();
        }
        std::mem::forget(adapter);
    }
}

/// The destructors of the library.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOADING: extern "C" fn() = end_capture;
