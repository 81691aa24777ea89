//! The connection manager of a program that uses it before its adapter is open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nichrome_cm::ucma::{Answer, Caller, execute};
use nichrome_cm::{Bearer, ChannelName, Errno, IdName};
use nichrome_port::{Waker, clock};
use nichrome_rdma::Memory;
use nichrome_wire::cm::Guid;

use super::channel::{ChannelError, ChannelHost, CmChannel};
use super::error::Unavailable;
use super::manager::{Seeds, new_engine};
use super::options::CmOptions;
use super::programs::{DetachedManager, update_waker};
use crate::config::{OpenError, Transport, seed};
use crate::driver::Driver;

/// The connection manager of a program that uses the commands of `/dev/infiniband/rdma_cm`. Programs create
/// identifiers before they name an address, which determines the adapter's address. Commands that need the
/// adapter must follow [`attach`](Self::attach).
pub struct CmHost {
    /// `None` once an adapter has it.
    detached: Mutex<Option<DetachedManager>>,
    adapter: OnceLock<Arc<dyn ChannelHost>>,
}

impl fmt::Debug for CmHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmHost").finish_non_exhaustive()
    }
}

/// A locked connection manager.
pub struct PausedHost<'a> {
    _detached: MutexGuard<'a, Option<DetachedManager>>,
}

impl fmt::Debug for PausedHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PausedHost").finish_non_exhaustive()
    }
}

impl CmHost {
    /// Creates a connection manager for a future adapter with this transport. `guid` is the adapter's. Random
    /// ports and packet numbers are derived from `seed_of_config`; if it is `None`, from a seed of the
    /// kernel.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn new(transport: Transport, guid: u64, seed_of_config: Option<u64>) -> Result<Arc<Self>, OpenError> {
        let bearer = if transport == Transport::Iwarp { Bearer::Iwarp } else { Bearer::Roce };
        // The default options are in range.
        let seeds = Seeds { repeatable: seed(seed_of_config)?, identity: seed(None)? };
        let engine = new_engine(bearer, Guid(guid), seeds, &CmOptions::default());
        let engine = engine.map_err(Unavailable::Options)?;
        let detached = Mutex::new(Some(DetachedManager { engine, channels: BTreeMap::new() }));
        Ok(Arc::new(Self { detached, adapter: OnceLock::new() }))
    }

    /// Opens a channel. The program must keep the adapter open as long as the channel.
    ///
    /// # Errors
    /// No channel or descriptor is left.
    pub fn open_channel(self: &Arc<Self>) -> Result<CmChannel, ChannelError> {
        CmChannel::open(Arc::clone(self) as Arc<dyn ChannelHost>)
    }

    /// Returns true if a program has limited an identifier to its address family (`RDMA_OPTION_ID_AFONLY`),
    /// and no adapter has the connection manager yet.
    pub fn is_family_only(&self, id: IdName) -> bool {
        self.detached().as_ref().is_some_and(|detached| detached.engine.is_family_only(id))
    }

    /// Hands the connection manager to an adapter, which drives it from now on. No effect if one does
    /// already.
    ///
    /// # Errors
    /// The adapter has no connection manager. This one then stays without an adapter.
    pub fn attach<M: Memory + Send + 'static>(&self, driver: &Driver<M>) -> Result<(), Unavailable> {
        let mut place = self.detached();
        if place.is_none() {
            return Ok(());
        }
        driver.adopt(&mut place)?;
        // Fails only if it is set already, which the lock excludes.
        let _ = self.adapter.set(driver.channel_host());
        Ok(())
    }

    /// Locks the connection manager for as long as the result lives: for a process that is about to fork,
    /// whose child would otherwise find it locked or half changed. Once an adapter drives the connection
    /// manager, [`Driver::pause`] locks it.
    pub fn pause(&self) -> PausedHost<'_> {
        PausedHost { _detached: self.detached() }
    }

    fn detached(&self) -> MutexGuard<'_, Option<DetachedManager>> {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapter.
    fn attached(&self) -> Result<&dyn ChannelHost, Unavailable> {
        self.adapter.get().map(|host| &**host).ok_or(Unavailable::Closed)
    }
}

impl ChannelHost for CmHost {
    fn open_channel(&self, ready: &Arc<Waker>) -> Result<ChannelName, ChannelError> {
        if let Some(detached) = &mut *self.detached() {
            let name = detached.engine.create_channel()?;
            detached.channels.insert(name, Arc::clone(ready));
            return Ok(name);
        }
        self.attached()?.open_channel(ready)
    }

    fn execute(
        &self,
        channel: ChannelName,
        caller: &mut dyn Caller,
        written: &[u8],
    ) -> Result<Option<Answer>, Errno> {
        if let Some(detached) = &mut *self.detached() {
            let result = execute(&mut detached.engine, channel, caller, written, clock::now());
            detached
                .channels
                .keys()
                .for_each(|channel| update_waker(&detached.engine, *channel, &detached.channels));
            return result;
        }
        self.attached().map_err(|_| Errno::ENODEV)?.execute(channel, caller, written)
    }

    fn close_channel(&self, channel: ChannelName) {
        if let Some(detached) = &mut *self.detached() {
            detached.channels.remove(&channel);
            // Fails only for an unknown channel.
            let _ = detached.engine.destroy_channel(channel, clock::now());
        } else if let Ok(host) = self.attached() {
            host.close_channel(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nichrome_wire::Instant;

    use super::*;
    use crate::{AdapterConfig, Arena};

    struct NoMemory;

    impl Caller for NoMemory {
        fn read(&mut self, _: u64, _: usize) -> Option<Vec<u8>> {
            None
        }

        fn channel_of(&mut self, _: u32) -> Option<ChannelName> {
            None
        }
    }

    /// Returns a command: number, room for the answer, body.
    fn command(number: u32, room: u16, body: &[u8]) -> Vec<u8> {
        let header = [&number.to_ne_bytes()[..], &(body.len() as u16).to_ne_bytes(), &room.to_ne_bytes()];
        [&header.concat(), body].concat()
    }

    fn execute(channel: &CmChannel, written: &[u8]) -> Vec<u8> {
        channel.execute(&mut NoMemory, written).unwrap().map(|answer| answer.bytes).unwrap_or_default()
    }

    fn is_readable(channel: &CmChannel) -> bool {
        clock::wait([channel.as_fd()], Some(Instant::ZERO)).unwrap()[0]
    }

    /// Creates an identifier and writes an event to it.
    fn write_event(channel: &CmChannel) {
        // CREATE_ID: uid, response, RDMA_PS_TCP.
        let create = [&5u64.to_ne_bytes()[..], &[0; 8], &0x0106u16.to_ne_bytes(), &[0; 6]].concat();
        let id = execute(channel, &command(0, 4, &create));
        assert!(!is_readable(channel));
        // WRITE_CM_EVENT: id, RDMA_CM_EVENT_USER, status, argument.
        let event = [&id[..], &[0; 4], &18u32.to_ne_bytes(), &[0; 4], &9u64.to_ne_bytes()].concat();
        execute(channel, &command(24, 0, &event));
        assert!(is_readable(channel));
    }

    fn get_event(channel: &CmChannel) -> Vec<u8> {
        execute(channel, &command(12, 336, &[0; 8]))
    }

    #[test]
    fn events_that_a_program_writes_before_there_is_an_adapter_make_its_channel_readable() {
        let channel = CmHost::new(Transport::Roce, 1, Some(7)).unwrap().open_channel().unwrap();
        write_event(&channel);
        let fetched = get_event(&channel);
        assert_eq!((fetched[0], fetched[12], fetched[20]), (5, 18, 9));
        assert!(!is_readable(&channel));
    }

    /// A forked child shares the descriptor with its parent, and has the engine for itself.
    #[test]
    fn commands_of_a_device_that_is_closed_in_a_child_leave_its_channels_descriptor_as_it_is() {
        let driver = Driver::open(&AdapterConfig::default(), Arena::default(), Box::new(drop)).unwrap();
        let channel = driver.open_cm_channel().unwrap();
        write_event(&channel);
        driver.pause().close_in_child();
        assert_eq!(get_event(&channel)[0], 5);
        assert!(is_readable(&channel));
    }

    /// A thread of the process that waits for events gets none, as with the kernel, which closes the files of
    /// a process after its threads have ended.
    #[test]
    fn channels_of_a_process_that_exits_have_no_events() {
        let driver = Driver::open(&AdapterConfig::default(), Arena::default(), Box::new(drop)).unwrap();
        let channel = driver.open_cm_channel().unwrap();
        let fetched = || channel.execute(&mut NoMemory, &command(12, 336, &[0; 8])).err();
        assert_eq!(fetched(), Some(Errno::EAGAIN));
        driver.close_cm_channels();
        assert_eq!(fetched(), Some(Errno::EAGAIN));
    }
}
