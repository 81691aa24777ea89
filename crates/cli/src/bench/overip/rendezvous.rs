//! Transfer time to a buffer whose address the sender does not know: by eager copy, and by rendezvous (figure
//! 9).
//!
//! | way | sender | receiver | time until the data is in place |
//! |---|---|---|---|
//! | eager | the message | copies it out | half a round trip |
//! | WRITE | START, then WRITE and FIN | REPLY | one and a half |
//! | READ | START | READ, then FIN | one and a half |

use std::time::{Duration, Instant};

use super::bearer::Bearer;
use super::end::{CONTROL, Pair, run_both};
use super::kind::Kind;
use super::latency::{BARE_ROUND_TRIP, DELAYS, delays_of, ping_pong};
use super::processors::Processors;
use super::series::{Axis, Grid, median_us};
use super::testbed::Testbed;
use crate::side::Side;

/// Length of the message in bytes: within TCP's initial window.
const LEN: usize = 8192;

const MESSAGE: Axis = Axis { quantity: "message_rtts", label: "time of a message (round trips)" };
const TIME: &str = "message_us";

/// Warm-up messages, not counted.
const WARM_UP: u32 = 1;

/// The protocol by which the data reaches the receiver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Eager,
    Write,
    Read,
}

impl Way {
    const ALL: [Self; 3] = [Self::Eager, Self::Write, Self::Read];

    const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// Returns true if the bearer supports this protocol: sockets cannot read the peer's memory.
    fn exists(self, bearer: Bearer) -> bool {
        self != Self::Read || bearer.transport().is_some()
    }
}

/// Measures the time from the sender's start until the data is in the receiver's buffer. The right end sends.
fn messages(
    processors: &Processors,
    [left, right]: &mut Pair,
    way: Way,
    iterations: u32,
) -> anyhow::Result<Vec<Duration>> {
    let receive = || {
        let (source, mut buffer) = (vec![0u8; LEN], vec![0u8; LEN]);
        let mut arrivals = Vec::new();
        for _ in 0..WARM_UP + iterations {
            match way {
                Way::Eager => {
                    left.receive(LEN)?;
                    buffer.copy_from_slice(std::hint::black_box(&source));
                }
                Way::Write => {
                    left.receive(CONTROL)?;
                    left.send(CONTROL)?;
                    left.await_put(LEN)?;
                }
                Way::Read => {
                    left.receive(CONTROL)?;
                    left.fetch(LEN)?;
                }
            }
            arrivals.push(Instant::now());
            left.send(CONTROL)?;
        }
        Ok(arrivals)
    };
    let send = || {
        let mut starts = Vec::new();
        for _ in 0..WARM_UP + iterations {
            starts.push(Instant::now());
            match way {
                Way::Eager => right.send(LEN)?,
                Way::Write => {
                    right.send(CONTROL)?;
                    right.receive(CONTROL)?;
                    right.put(LEN)?;
                }
                Way::Read => right.send(CONTROL)?,
            }
            right.receive(CONTROL)?;
        }
        Ok(starts)
    };
    let (arrivals, starts) = run_both(processors, Side::Left, receive, send)?;
    let times = arrivals.into_iter().zip(starts).map(|(arrival, start)| arrival.duration_since(start));
    Ok(times.skip(WARM_UP as usize).collect())
}

/// The figure by the path's delay.
pub(super) const BY_DELAY: Kind = Kind {
    name: "iwarp-rendezvous",
    paper: "9",
    title: "Time of an 8 KB message by the path's delay, eager and by rendezvous",
    x: DELAYS,
    y: MESSAGE,
    rounds: |plan| plan.rounds,
    places: delays_of,
    measure: delays,
    notes: |_| {
        vec![
            "Both ends read one clock, so the time is one way. The round trip is that of 32 bytes over the same transport. \
             Sockets have no READ."
                .into(),
        ]
    },
};

fn delays(testbed: &Testbed, _: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Left)?;
    testbed.at_each(&plan.delays, |place, delay| {
        hosts.set_delay(delay)?;
        let iterations = plan.iterations((BARE_ROUND_TRIP + delay * 2) * 2);
        for (bearer, connections) in &mut everything {
            let pair = &mut connections.pairs[0];
            let round_trip = 2.0 * median_us(&ping_pong(&testbed.processors, pair, CONTROL, iterations)?);
            for way in Way::ALL.into_iter().filter(|way| way.exists(*bearer)) {
                let time = median_us(&messages(&testbed.processors, pair, way, iterations)?);
                grid.add((*bearer, MESSAGE.quantity, way.name()), place, time / round_trip);
                grid.add((*bearer, TIME, way.name()), place, time);
            }
        }
        Ok(())
    })?;
    drop(everything);
    hosts.close()
}
