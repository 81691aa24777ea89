//! Channels for programs that speak the commands of `/dev/infiniband/rdma_cm`.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nichrome_cm::ucma::{Answer, Caller};
use nichrome_cm::{ChannelName, CommandError, Errno};
use nichrome_port::Waker;
use thiserror::Error;

use super::error::Unavailable;

/// Why no channel can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The adapter has no connection manager.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The limit of channels is reached.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// No descriptor is free.
    #[error("cannot create an eventfd for the channel: {0}")]
    Waker(rustix::io::Errno),
}

/// A channel of events: an open file of `/dev/infiniband/rdma_cm`. Dropping it destroys its identifiers:
/// it sends DREQ for connections, and REJ for unanswered requests.
///
/// Its descriptor is readable while the channel has events that GET_EVENT has not fetched. A program that
/// waits for it should announce that by
/// [`Driver::begin_descriptor_wait`](crate::Driver::begin_descriptor_wait).
pub struct CmChannel {
    host: Arc<dyn ChannelHost>,
    name: ChannelName,
    ready: Arc<Waker>,
}

impl fmt::Debug for CmChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmChannel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The adapter of a channel. Each call takes the adapter's lock and sends the messages that the connection
/// manager has queued.
pub(crate) trait ChannelHost: Send + Sync {
    /// Opens a channel whose waker is signalled while it has events.
    fn open_channel(&self, ready: &Arc<Waker>) -> Result<ChannelName, ChannelError>;

    /// Executes a command that a program wrote to a channel.
    fn execute(
        &self,
        channel: ChannelName,
        caller: &mut dyn Caller,
        written: &[u8],
    ) -> Result<Option<Answer>, Errno>;

    /// Destroys a channel.
    fn close_channel(&self, channel: ChannelName);
}

impl CmChannel {
    pub(crate) fn open(host: Arc<dyn ChannelHost>) -> Result<Self, ChannelError> {
        let ready = Arc::new(Waker::new().map_err(ChannelError::Waker)?);
        let name = host.open_channel(&ready)?;
        Ok(Self { host, name, ready })
    }

    /// The channel's name: what [`Caller::channel_of`] returns for a file of this channel.
    pub fn name(&self) -> ChannelName {
        self.name
    }

    /// Executes a command that a program wrote, and returns the answer for its memory. Does not block.
    /// `caller` is called under the adapter's lock: it must call no verb.
    ///
    /// # Errors
    /// The error number of the write. EAGAIN: no event; for a blocking file, the caller waits for the
    /// descriptor and repeats the command.
    pub fn execute(&self, caller: &mut impl Caller, written: &[u8]) -> Result<Option<Answer>, Errno> {
        self.host.execute(self.name, caller, written)
    }
}

impl AsFd for CmChannel {
    /// Readable while the channel has events. Nothing may be read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for CmChannel {
    fn drop(&mut self) {
        self.host.close_channel(self.name);
    }
}
