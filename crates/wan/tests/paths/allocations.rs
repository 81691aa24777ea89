//! A path allocates nothing in the steady state. Only allocations of the test's own thread count, since the
//! test harness has other threads.

use crate::common::{NONE, ect, of};
use allocation_counter::measure;
use nichrome_wan::{Impairments, JitterOrder, Output, Path};
use nichrome_wire::Instant;
use nichrome_wire::engine::{deliver, deliver_batch};

/// After the path has held its maximum number of packets, it allocates nothing.
#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let jitter = |order| Impairments {
        delay: of("5ms"),
        jitter: Some(of("normal:1ms")),
        jitter_order: order,
        reorder: Some(of("1%:2ms")),
        ..NONE()
    };
    let lossy = Impairments {
        loss: Some(of("gilbert:1%,20%")),
        duplicate: of("1%"),
        corrupt: of("1%"),
        mtu: Some(of("1500")),
        limit: of("5000"),
        ..jitter(JitterOrder::Reorder)
    };
    let queued = |codel: &str| Impairments {
        rate: Some(of("10gbit")),
        queue: of("200p"),
        aqm: of(codel),
        ecn: of("mark:100p"),
        ..lossy.clone()
    };
    let trace = Impairments { trace: Some(of("1\n1\n2\n")), queue: of("50p"), ..jitter(JitterOrder::Keep) };
    let cases = [
        Impairments { delay: of("5ms"), ..NONE() },
        jitter(JitterOrder::Keep),
        jitter(JitterOrder::Reorder),
        lossy.clone(),
        queued("tail-drop"),
        queued("codel:10us,1ms"),
        trace,
    ];
    for impairments in cases {
        let mut path = Path::new(&impairments, 1).unwrap();
        let (mut now, mut released, mut batch) = (Instant::ZERO, 0, Vec::with_capacity(64));
        let mut sink = |_, output| released += u64::from(matches!(output, Output::Released(_)));
        let mut pass = |count: u64| {
            for id in 0..count {
                now = now.plus_nanos(1000);
                deliver(&mut path, ect(id), now, &mut sink);
                if id % 64 == 0 {
                    batch.extend((0..32).map(ect));
                    deliver_batch(&mut path, &mut batch, now, &mut sink);
                }
            }
        };
        pass(300_000);
        let allocated = measure(|| pass(100_000));
        assert_eq!(allocated.count_total, 0, "{impairments:?}: {allocated:?}");
        assert!(released > 100, "{impairments:?}");
    }
}
