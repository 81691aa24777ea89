//! State that all iWARP queue pairs of a device share.

use nichrome_wire::rdma::QpNumber;

use super::config::IwarpConfig;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::Datagram;
use crate::transport::{Environment, Shared};

/// State that all iWARP queue pairs of a device share.
pub(crate) struct IwarpShared {
    pub(super) config: IwarpConfig,
    /// Space for an FPDU that is sent with markers.
    pub(super) marked: Vec<u8>,
    /// Space for an FPDU that was received with markers.
    pub(super) unmarked: Vec<u8>,
}

impl Shared for IwarpShared {
    type Config = IwarpConfig;
    type Packet<'a> = ();

    const PORT: Option<u16> = None;

    fn new(_: &Environment, config: IwarpConfig) -> Self {
        Self { config, marked: Vec::new(), unmarked: Vec::new() }
    }

    fn read<'a, M: Memory>(&mut self, _: &Datagram<'a>, _: &mut Verbs<M>) -> Option<(QpNumber, ())> {
        None
    }
}
