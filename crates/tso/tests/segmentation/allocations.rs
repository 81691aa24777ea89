//! Segmentation allocates nothing. Only allocations of the test's own thread count, since the test harness
//! has other threads.

use allocation_counter::measure;
use nichrome_tso::Segments;
use nichrome_wire::{GsoType, Network, VirtioNetRepr};

use crate::common::*;

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
    let mut packets = 0;
    let allocated = measure(|| {
        for (frame, virtio) in &frames {
            let mut segments = Segments::new(frame, virtio).unwrap();
            while segments.append_next(&mut out) {
                packets += 1;
                out.clear();
            }
        }
    });
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    assert_eq!(packets, 42 + 41 + 41 + 1);
}
