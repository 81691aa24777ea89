//! Putting a queue pair on iWARP.

use super::endpoint::IwarpQp;
use super::shared::IwarpShared;
use super::stream::Stream;
use super::terms::Terms;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;
use crate::transport::set_up::Agreed;

impl<M: Memory> Agreed<M> for Terms {
    type Endpoint = IwarpQp;

    fn connect(&self, mut qp: QueuePair, shared: &mut IwarpShared, _: &mut Verbs<M>) -> IwarpQp {
        let settings = &mut qp.settings;
        // Programs of rdma_cm negotiate depths by private data, and leave the attributes at 0.
        for (setting, agreed) in
            [(&mut settings.max_rd_atomic, self.ord), (&mut settings.max_dest_rd_atomic, self.ird)]
        {
            let agreed = u8::try_from(agreed).unwrap_or(u8::MAX);
            *setting = if *setting == 0 { agreed } else { agreed.min(*setting) };
        }
        Stream::new(qp, Some(self), shared)
    }
}
