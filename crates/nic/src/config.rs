//! The configuration of a card.

use nichrome_lro::{ActiveAck, Config, ProfileConfig};

/// The configuration of a card.
#[derive(Clone, Copy, Debug)]
pub struct CardConfig {
    /// Name of its threads, followed by the worker's number; the kernel shows at most 10 bytes of it.
    pub name: &'static str,
    /// Configuration of each worker's engine.
    pub engine: Config,
    /// Profile of the engine; `None`: no receive offload.
    pub profile: Option<ProfileConfig>,
    /// True if workers never sleep.
    pub busy_poll: bool,
}

impl CardConfig {
    /// Returns true if the engine observes the host's transmissions: with active ACK.
    pub fn observes_host(&self) -> bool {
        matches!(&self.profile, Some(ProfileConfig::Npu(npu)) if npu.active_ack != ActiveAck::Off)
    }
}
