//! Any bytes as commands of `/dev/infiniband/rdma_cm`.
#![no_main]

#[path = "../../crates/cm/tests/common/mod.rs"]
mod common;

use nichrome_cm::ChannelName;
use nichrome_cm::ucma::{Caller, execute};

/// A program with one file, whose memory is zeros.
struct Program(ChannelName);

impl Caller for Program {
    fn read(&mut self, _: u64, len: usize) -> Option<Vec<u8>> {
        Some(vec![0; len])
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        (fd == 0).then_some(self.0)
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut network = common::Network::pair();
    network.listen(1, 9, nichrome_wire::cm::PortSpace::Tcp, 7, 0);
    network.connected(0x11);
    let mut rest = data;
    while let [node, len, following @ ..] = rest {
        let (written, after) = following.split_at(usize::from(*len).min(following.len()));
        rest = after;
        let node = usize::from(node % 2);
        let (channel, now) = (network.nodes[node].channel, network.now);
        let answer = execute(&mut network.nodes[node].manager, channel, &mut Program(channel), written, now);
        if let Ok(Some(answer)) = answer {
            let room = u16::from_ne_bytes([written[6], written[7]]);
            assert!(answer.bytes.len() <= room.into());
        }
        network.pass(common::MILLISECOND);
    }
    let now = network.now;
    for node in &mut network.nodes {
        node.manager.destroy_channel(node.channel, now).unwrap_or_else(|error| panic!("{error}"));
    }
    network.assert_nothing_leaks();
});
