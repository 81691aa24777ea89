//! The same seed makes the same choices with any driver, and each stage chooses independently.

use crate::common::{NONE, Outcome, of, packet, send, us};
use nichrome_wan::{DropReason, Dummy, Impairments, JitterOrder, Path};
use nichrome_wire::Engine;

fn everything() -> Impairments {
    Impairments {
        delay: of("10ms"),
        jitter: Some(of("3ms")),
        jitter_order: JitterOrder::Reorder,
        loss: Some(of("gilbert:1%,30%,0.1%,90%")),
        duplicate: of("2%"),
        corrupt: of("3%"),
        reorder: Some(of("4%:2ms")),
        rate: Some(of("110mbit")),
        queue: of("50p"),
        aqm: of("codel:1ms,20ms"),
        ..NONE()
    }
}

/// Returns the FNV-1a hash of all outputs.
fn hash(outcome: &Outcome) -> u64 {
    let released = outcome.released.iter().flat_map(|departure| {
        [
            departure.packet.id,
            departure.arrived.as_nanos(),
            departure.due.as_nanos(),
            departure.packet.corrupt.into(),
        ]
    });
    let dropped = outcome.dropped.iter().flat_map(|(id, reason)| [*id, *reason as u64]);
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    released.chain(dropped).flat_map(u64::to_le_bytes).fold(0xCBF2_9CE4_8422_2325, add)
}

fn arrivals() -> impl Iterator<Item = (nichrome_wire::Instant, Dummy)> {
    (0..20_000).map(|id| (us(id / 3 * 300), packet(id)))
}

fn hash_with(seed: u64) -> u64 {
    hash(&send(&mut Path::new(&everything(), seed).unwrap(), arrivals()))
}

/// The hash of a run, which changes only if the random choices change.
#[test]
fn a_seed_determines_all_choices() {
    assert_eq!(hash_with(7), hash_with(7));
    assert_eq!(hash_with(7), 0x7D06_E08C_E2D1_5071, "{:#x}", hash_with(7));
    assert_ne!(hash_with(7), hash_with(8));
}

#[test]
fn outputs_do_not_depend_on_when_the_driver_calls() {
    let expected = send(&mut Path::new(&everything(), 7).unwrap(), arrivals());
    for period in [1, 40, 3000] {
        let mut path = Path::new(&everything(), 7).unwrap();
        let mut outcome = Outcome::default();
        let mut last = us(0);
        for (nth, (at, packet)) in arrivals().enumerate() {
            path.receive(packet, at);
            last = at;
            if nth % period == 0 {
                while let Some(output) = path.poll() {
                    outcome.take(output);
                }
            }
        }
        path.handle_timeout(last + std::time::Duration::from_secs(10));
        while let Some(output) = path.poll() {
            outcome.take(output);
        }
        assert_eq!(outcome.released, expected.released);
        assert_eq!(outcome.dropped, expected.dropped);
    }
}

#[test]
fn adding_a_stage_does_not_change_the_choices_of_others() {
    let lossy = Impairments { loss: Some(of("5%")), ..NONE() };
    let lost = |impairments: &Impairments| {
        send(&mut Path::new(impairments, 7).unwrap(), arrivals()).dropped_for(DropReason::Loss)
    };
    let expected = lost(&lossy);
    assert!(expected.len() > 900);
    let with = |change: fn(&mut Impairments)| {
        let mut impairments = lossy.clone();
        change(&mut impairments);
        impairments
    };
    for more in [
        with(|i| (i.delay, i.jitter) = (of("10ms"), Some(of("normal:3ms")))),
        with(|i| i.corrupt = of("50%")),
        with(|i| i.duplicate = of("50%")),
        with(|i| i.reorder = Some(of("50%"))),
        with(|i| i.rate = Some(of("1gbit"))),
    ] {
        assert_eq!(lost(&more), expected, "{more:?}");
    }
}
