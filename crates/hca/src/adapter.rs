//! Verbs for Rust programs: objects that keep their adapter alive and are destroyed when dropped.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nichrome_cm::ucma::{Answer, Caller};
use nichrome_cm::{ChannelName, Errno, Usage};
use nichrome_port::capture::WriteError;
use nichrome_port::{Waker, clock};
use nichrome_rdma::{
    Completion, Counters, CqHandle, Device, DomainHandle, Event, Notify, ObjectError, PathMtu, Psn,
    RandomNumbers,
};
use nichrome_wire::Instant;
use thiserror::Error;

use crate::arena::Arena;
use crate::cm::{ChannelError, ChannelHost, CmChannel, ConnectionManager, Unavailable};
use crate::config::{AdapterConfig, OpenError, Place, Transport};
use crate::driver::Driver;
use crate::iwarp::IwarpCounters;
use crate::wire::{Wire, WireCounters};

/// An RDMA adapter at an IP address of this machine. Clones refer to the same adapter, which closes when all
/// of them and all of its objects are dropped.
#[derive(Clone)]
pub struct Adapter {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) driver: Driver<Arena>,
    pub(crate) domain: DomainHandle,
    /// First packet numbers of queue pairs.
    psns: Mutex<RandomNumbers>,
    channels: Arc<Channels>,
}

/// The wakers of completion queues.
#[derive(Default)]
struct Channels(Mutex<HashMap<CqHandle, Arc<Waker>>>);

impl Channels {
    fn get(&self) -> MutexGuard<'_, HashMap<CqHandle, Arc<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the program that waits for a completion queue. After a CQ overrun the queue gets no more
    /// completions.
    fn notify(&self, event: Event) {
        if let Event::Completion(cq) | Event::CqError(cq) = event
            && let Some(waker) = self.get().get(&cq)
        {
            waker.wake();
        }
    }
}

impl Adapter {
    /// Checks the parts of a configuration that do not depend on the address, for programs that learn their
    /// address later.
    ///
    /// # Errors
    /// The faults contradict each other, StaR's key file cannot be read, or options exclude each other.
    pub fn check(config: &AdapterConfig) -> Result<(), OpenError> {
        Wire::check(config)?;
        if config.transport == Transport::Star {
            let address = match config.place {
                Place::Address(address) => Some(address),
                Place::Loopback => None,
            };
            config.star.key(address)?;
        }
        Ok(())
    }

    /// Opens an adapter.
    ///
    /// # Errors
    /// The address cannot be used, the capture file cannot be written, an option is out of range, or no
    /// descriptor or thread is left.
    pub fn open(config: &AdapterConfig) -> Result<Self, OpenError> {
        let channels = Arc::new(Channels::default());
        let notified = Arc::clone(&channels);
        let driver = Driver::open(config, Arena::default(), Box::new(move |event| notified.notify(event)))?;
        let domain = driver.call(Device::create_domain).map_err(OpenError::Object)?;
        let seed = driver.call(|device| device.config().seed);
        let psns = Mutex::new(RandomNumbers::new(seed, "packet numbers"));
        Ok(Self { inner: Arc::new(Inner { driver, domain, psns, channels }) })
    }

    /// Calls the connection manager, then sends the messages that it has queued.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub(crate) fn manage<T>(
        &self,
        commands: impl FnOnce(&mut ConnectionManager, &mut Device<Arena>, Instant) -> T,
    ) -> Result<T, Unavailable> {
        self.inner.driver.manage(commands)
    }

    /// Opens a channel for a program that speaks the commands of `/dev/infiniband/rdma_cm`.
    ///
    /// # Errors
    /// The adapter has no connection manager, or no channel or descriptor is left.
    pub fn open_cm_channel(&self) -> Result<CmChannel, ChannelError> {
        CmChannel::open(Arc::clone(&self.inner) as Arc<dyn ChannelHost>)
    }

    /// Returns a first packet number (PSN) for another queue pair.
    pub(crate) fn first_psn(&self) -> Psn {
        let mut psns = self.inner.psns.lock().unwrap_or_else(PoisonError::into_inner);
        Psn::new(psns.next_u32())
    }

    /// The adapter's address.
    pub fn address(&self) -> IpAddr {
        self.inner.driver.local().ip()
    }

    /// The configured transport.
    pub fn transport(&self) -> Transport {
        self.inner.driver.transport()
    }

    /// The largest path MTU.
    pub fn mtu(&self) -> PathMtu {
        self.inner.driver.call(|device| device.config().mtu)
    }

    /// Creates a completion queue for `capacity` completions.
    ///
    /// # Errors
    /// The capacity is out of range, or no queue or descriptor is free.
    pub fn completion_queue(&self, capacity: usize) -> Result<CompletionQueue, CompletionQueueError> {
        let waker = Arc::new(Waker::new().map_err(CompletionQueueError::Waker)?);
        let handle = self.inner.driver.call(|device| device.create_cq(capacity))?;
        self.inner.channels.get().insert(handle, Arc::clone(&waker));
        Ok(CompletionQueue { shared: Arc::new(SharedQueue { adapter: self.clone(), handle, waker }) })
    }

    /// Counters of the device.
    pub fn counters(&self) -> Counters {
        self.inner.driver.call(|device| *device.counters())
    }

    /// Returns the resources that the connection manager holds; starts it if necessary.
    ///
    /// # Errors
    /// The adapter has no connection manager.
    pub fn cm_usage(&self) -> Result<Usage, Unavailable> {
        self.manage(|manager, _, _| manager.usage())
    }

    /// Connections whose transport is being negotiated. Work requests wait until it is.
    pub fn held_connections(&self) -> usize {
        self.inner.driver.held_qps()
    }

    /// Connections of peers that iWARP has refused; zero on other transports.
    pub fn iwarp_counters(&self) -> IwarpCounters {
        self.inner.driver.iwarp_counters()
    }

    /// Bytes of state that a hardware card would hold for the connections of this adapter.
    pub fn card_state_bytes(&self) -> usize {
        self.inner.driver.call(|device| device.card_state_bytes())
    }

    /// Connections over StaR of which this adapter is the stateless side: the peer keeps their state.
    pub fn stateless_connections(&self) -> usize {
        self.inner.driver.call(|device| device.stateless_connections())
    }

    /// Counters of datagrams.
    pub fn wire_counters(&self) -> WireCounters {
        self.inner.driver.wire_counters()
    }

    /// Why the capture ended early, if it did: a write failed.
    pub fn capture_error(&self) -> Option<Arc<WriteError>> {
        self.inner.driver.capture_error()
    }
}

impl ChannelHost for Inner {
    fn open_channel(&self, ready: &Arc<Waker>) -> Result<ChannelName, ChannelError> {
        self.driver.channel_host().open_channel(ready)
    }

    fn execute(
        &self,
        channel: ChannelName,
        caller: &mut dyn Caller,
        written: &[u8],
    ) -> Result<Option<Answer>, Errno> {
        self.driver.channel_host().execute(channel, caller, written)
    }

    fn close_channel(&self, channel: ChannelName) {
        self.driver.channel_host().close_channel(channel);
    }
}

/// Why a completion queue cannot be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// The device refused.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// No descriptor is free for the queue's waker.
    #[error("cannot create an eventfd for the completion queue: {0}")]
    Waker(rustix::io::Errno),
}

/// A completion queue. Clones refer to the same queue.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<SharedQueue>,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").finish_non_exhaustive()
    }
}

pub(crate) struct SharedQueue {
    adapter: Adapter,
    pub(crate) handle: CqHandle,
    waker: Arc<Waker>,
}

impl CompletionQueue {
    /// Drives the adapter, then takes the oldest completion.
    pub fn poll(&self) -> Option<Completion> {
        let SharedQueue { adapter, handle, .. } = &*self.shared;
        adapter.inner.driver.poll(|device| device.poll_cq(*handle))
    }

    /// Drives the adapter, then moves all completions to `completions`.
    pub fn drain(&self, completions: &mut Vec<Completion>) {
        let SharedQueue { adapter, handle, .. } = &*self.shared;
        let before = completions.len();
        let next = |device: &mut Device<Arena>| device.poll_cq(*handle);
        adapter.inner.driver.poll(|device| {
            completions.extend(iter::from_fn(|| next(device)));
            (completions.len() > before).then_some(())
        });
    }

    /// Waits for a completion and takes it; `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        let SharedQueue { adapter, handle, waker } = &*self.shared;
        let driver = &adapter.inner.driver;
        let until = clock::now() + timeout;
        loop {
            waker.clear();
            let found = driver.poll(|device| {
                device.poll_cq(*handle).or_else(|| {
                    // Fails only for an unknown queue.
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
        // Fails only while queue pairs use the queue, and they keep it alive.
        let _ = inner.driver.call(|device| device.destroy_cq(self.handle));
    }
}
