//! What a card is configured with.

use nichrome_lro::{ActiveAck, Config, ProfileConfig};

/// What a card does.
#[derive(Clone, Copy, Debug)]
pub struct CardConfig {
    /// What its threads are called, with the worker's number behind it: at most 10 bytes are seen.
    pub name: &'static str,
    /// What every engine is configured with.
    pub engine: Config,
    /// Which engine; `None`: a card without receive offload.
    pub profile: Option<ProfileConfig>,
    /// Whether workers never sleep.
    pub busy_poll: bool,
    /// The longest frame on the wire, in bytes; longer ones cost an allocation.
    pub frame_len: usize,
}

impl CardConfig {
    /// Whether the engine learns from what the host sends.
    pub(crate) fn observes_host(&self) -> bool {
        matches!(&self.profile, Some(ProfileConfig::Npu(npu)) if npu.active_ack != ActiveAck::Off)
    }
}
