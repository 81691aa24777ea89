//! Programs of two connection managers, and the network between them; or any bytes as messages.
#![no_main]

#[path = "../../crates/cm/tests/common/mod.rs"]
mod common;

use arbitrary::Unstructured;
use nichrome_wire::cm::Mad;

/// Delivers the bytes to two connected managers, as messages from the peer or from a third address.
fn arrive(bytes: &[u8]) {
    let mut network = common::Network::pair();
    network.listen(1, 9, nichrome_wire::cm::PortSpace::Tcp, 7, 0);
    network.connected(0x11);
    for message in bytes.chunks(258) {
        let [node, source, payload @ ..] = message else { continue };
        let (node, source) = (usize::from(node % 2), common::address((source % 3).into()));
        if let Ok(mad) = Mad::parse(payload) {
            assert_eq!(Mad::parse(&mad.to_bytes()), Ok(mad));
        }
        let payload = payload.to_vec();
        let destination = common::address(node);
        network.input(node, nichrome_cm::Input::Datagram { source, destination, payload });
        network.pass(common::MILLISECOND);
    }
    let now = network.now;
    for node in &mut network.nodes {
        node.manager.destroy_channel(node.channel, now).unwrap_or_else(|error| panic!("{error}"));
    }
    network.assert_nothing_leaks();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((first, bytes)) if first.is_multiple_of(2) => arrive(bytes),
        _ => {
            let mut input = Unstructured::new(data);
            let mut choose = |bound: u32| {
                if input.is_empty() { None } else { input.int_in_range(0..=bound.max(1) - 1).ok() }
            };
            common::generated::run(&mut choose);
        }
    }
});
