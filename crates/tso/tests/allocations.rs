//! Cutting allocates nothing. One test alone in its program: others would allocate beside it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::alloc::System;

use nichrome_tso::Segments;
use nichrome_wire::{GsoType, Network, VirtioNetRepr};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use common::*;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn cutting_into_a_buffer_that_is_long_enough_allocates_nothing() {
    let udp = UdpFrame::new(Network::default(), payload(60_000));
    let frames = [
        tcp(&data(60_000), 1448),
        udp.to_be_cut(GsoType::UdpL4, 1472),
        udp.to_be_cut(GsoType::Udp, 1480),
        (data(60_000).build(), partial(VirtioNetRepr::default(), 34, 16)),
    ];
    let mut out = Vec::with_capacity(61_000);
    let region = Region::new(ALLOCATOR);
    let mut packets = 0;
    for (frame, virtio) in &frames {
        let mut segments = Segments::new(frame, virtio).unwrap();
        while segments.append_next(&mut out) {
            packets += 1;
            out.clear();
        }
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));
    assert_eq!(packets, 42 + 41 + 41 + 1);
}
