//! Verbs for Rust programs: objects that know their adapter and go when they are dropped.

use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nichrome_port::{Waker, clock};
use nichrome_rdma::{
    Access, Completion, Counters, CqHandle, Device, DomainHandle, Event, LKey, Notify, ObjectError, PathMtu,
    Psn, RKey, RandomNumbers, RegionConfig, RegionHandle, RegisterError, Remote, Sge,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::arena::Arena;
use crate::config::{AdapterConfig, OpenError};
use crate::driver::Driver;
use crate::wire::WireCounters;

/// An RDMA adapter at an IP address of this machine. Clones are the same adapter, which lives until all of them, and
/// what was made with them, are dropped.
#[derive(Clone)]
pub struct Adapter {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) driver: Driver<Arena>,
    pub(crate) domain: DomainHandle,
    /// First packet numbers of queue pairs.
    psns: Mutex<RandomNumbers>,
    channels: Arc<Channels>,
}

/// Who waits for which completion queue.
#[derive(Default)]
struct Channels(Mutex<HashMap<CqHandle, Arc<Waker>>>);

impl Channels {
    fn get(&self) -> MutexGuard<'_, HashMap<CqHandle, Arc<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue that overflowed gets no completions any more: who waits for it finds that out.
    fn tell(&self, event: Event) {
        if let Event::Completion(cq) | Event::CqError(cq) = event
            && let Some(waker) = self.get().get(&cq)
        {
            waker.wake();
        }
    }
}

impl Adapter {
    /// Opens an adapter.
    ///
    /// # Errors
    /// The address, the capture or the faults cannot be had.
    pub fn open(config: &AdapterConfig) -> Result<Self, OpenError> {
        let channels = Arc::new(Channels::default());
        let told = Arc::clone(&channels);
        let driver = Driver::open(config, Arena::default(), Box::new(move |event| told.tell(event)))?;
        let domain = driver.call(Device::create_domain).map_err(OpenError::Object)?;
        let seed = driver.call(|device| device.config().seed);
        let psns = Mutex::new(RandomNumbers::new(seed, "packet numbers"));
        Ok(Self { inner: Arc::new(Inner { driver, domain, psns, channels }) })
    }

    /// The number of the first packet that another queue pair sends.
    pub(crate) fn first_psn(&self) -> Psn {
        let mut psns = self.inner.psns.lock().unwrap_or_else(PoisonError::into_inner);
        Psn::new(psns.next_u32())
    }

    /// The adapter's address.
    pub fn address(&self) -> IpAddr {
        self.inner.driver.local().ip()
    }

    /// The largest path MTU.
    pub fn mtu(&self) -> PathMtu {
        self.inner.driver.call(|device| device.config().mtu)
    }

    /// Allocates and registers `len` zero bytes, with which peers may do what `access` says.
    ///
    /// # Errors
    /// The rights do not go together, or there is no room for another region.
    pub fn region(&self, len: usize, access: Access) -> Result<Region, RegisterError> {
        let access = access | Access::LOCAL_WRITE;
        let (handle, address, lkey, rkey) = self.inner.driver.call(|device| {
            let address = device.memory_mut().allocate(len);
            let config = RegionConfig::new(address, len as u64, access);
            let made = device.register(self.inner.domain, config);
            match made.and_then(|handle| Ok((handle, device.query_region(handle)?))) {
                Ok((handle, report)) => Ok((handle, address, report.lkey, report.rkey)),
                Err(error) => {
                    device.memory_mut().free(address);
                    Err(error)
                }
            }
        })?;
        Ok(Region { adapter: self.clone(), handle, address, len, lkey, rkey })
    }

    /// Makes a completion queue for `capacity` completions.
    ///
    /// # Errors
    /// The adapter does not offer the size, or has no room for another queue.
    pub fn completion_queue(&self, capacity: usize) -> Result<CompletionQueue, CompletionQueueError> {
        let waker = Arc::new(Waker::new().map_err(CompletionQueueError::Waker)?);
        let handle = self.inner.driver.call(|device| device.create_cq(capacity))?;
        self.inner.channels.get().insert(handle, Arc::clone(&waker));
        Ok(CompletionQueue { shared: Arc::new(SharedQueue { adapter: self.clone(), handle, waker }) })
    }

    /// What the adapter has done.
    pub fn counters(&self) -> Counters {
        self.inner.driver.call(|device| *device.counters())
    }

    /// Connections whose transport is being negotiated: what is posted to them waits.
    pub fn held_connections(&self) -> usize {
        self.inner.driver.held_qps()
    }

    /// Bytes that a card would hold for the connections of this adapter.
    pub fn card_state_bytes(&self) -> usize {
        self.inner.driver.call(|device| device.card_state_bytes())
    }

    /// Connections whose state the peer keeps.
    pub fn stateless_connections(&self) -> usize {
        self.inner.driver.call(|device| device.stateless_connections())
    }

    /// What its wire has done.
    pub fn wire_counters(&self) -> WireCounters {
        self.inner.driver.wire_counters()
    }
}

/// Why there is no completion queue.
#[derive(Debug, Error)]
pub enum CompletionQueueError {
    /// The device refused.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// There is no descriptor left to wait with.
    #[error("cannot make an event to wait for: {0}")]
    Waker(rustix::io::Errno),
}

/// Registered memory.
pub struct Region {
    adapter: Adapter,
    handle: RegionHandle,
    address: u64,
    len: usize,
    lkey: LKey,
    rkey: RKey,
}

/// A region of a peer, as its program tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    address: u64,
    rkey: u32,
    /// Bytes.
    pub len: usize,
}

impl RemoteRegion {
    /// The place `at` bytes from its start.
    pub const fn at(&self, at: usize) -> Remote {
        Remote { address: self.address.wrapping_add(at as u64), rkey: RKey(self.rkey) }
    }
}

impl Region {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `at` on, for work requests. One that goes beyond the region completes with an error.
    pub fn slice(&self, at: usize, len: usize) -> Sge {
        Sge { address: self.address.wrapping_add(at as u64), len: len as u32, lkey: self.lkey }
    }

    /// What peers must know to reach it.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.address, rkey: self.rkey.0, len: self.len }
    }

    /// Does something with its bytes, while neither the adapter nor anyone else does.
    pub fn with<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        self.adapter.inner.driver.touch(|memory| f(memory.piece_mut(self.address)))
    }

    /// Takes in what has arrived, then looks whether something is so of its bytes: for programs that wait for a peer to
    /// write there.
    pub fn poll(&self, is_so: impl FnOnce(&[u8]) -> bool) -> bool {
        let driver = &self.adapter.inner.driver;
        driver.poll(|device| is_so(device.memory().piece(self.address)).then_some(())).is_some()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.adapter.inner.driver.call(|device| {
            // Where windows are bound to it the keys stay, but reach nothing any more.
            let _ = device.deregister(self.handle);
            device.memory_mut().free(self.address);
        });
    }
}

/// A completion queue; clones are the same queue.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<SharedQueue>,
}

pub(crate) struct SharedQueue {
    adapter: Adapter,
    pub(crate) handle: CqHandle,
    waker: Arc<Waker>,
}

impl CompletionQueue {
    /// The oldest completion. Makes progress first: whoever polls needs no other thread.
    pub fn poll(&self) -> Option<Completion> {
        let SharedQueue { adapter, handle, .. } = &*self.shared;
        adapter.inner.driver.poll(|device| device.poll_cq(*handle))
    }

    /// Appends every completion that there is to `completions`; makes progress first.
    pub fn drain(&self, completions: &mut Vec<Completion>) {
        let SharedQueue { adapter, handle, .. } = &*self.shared;
        let before = completions.len();
        let next = |device: &mut Device<Arena>| device.poll_cq(*handle);
        adapter.inner.driver.poll(|device| {
            completions.extend(iter::from_fn(|| next(device)));
            (completions.len() > before).then_some(())
        });
    }

    /// The oldest completion, as soon as there is one; `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        let SharedQueue { adapter, handle, waker } = &*self.shared;
        let driver = &adapter.inner.driver;
        let until = clock::now() + timeout;
        loop {
            waker.clear();
            let found = driver.poll(|device| {
                device.poll_cq(*handle).or_else(|| {
                    // The queue exists as long as this does.
                    let _ = device.req_notify_cq(*handle, Notify::Any);
                    None
                })
            });
            if found.is_some() || clock::now() >= until {
                return found;
            }
            driver.wait(waker, Some(until));
        }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let inner = &self.adapter.inner;
        inner.channels.get().remove(&self.handle);
        // Queue pairs hold on to it, so none is left.
        let _ = inner.driver.call(|device| device.destroy_cq(self.handle));
    }
}
