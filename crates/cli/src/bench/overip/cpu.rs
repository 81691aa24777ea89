//! Processor time that communication takes from an application: senders push to a host that computes (figures
//! 7a, 7b).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nichrome_wan::Impairments;

use super::bearer::Bearer;
use super::connect::Connections;
use super::end::End;
use super::hosts::Hosts;
use super::kind::Kind;
use super::latency::{DELAYS, delays_of};
use super::processors::{Role, Threads};
use super::series::{Axis, Grid};
use super::testbed::Testbed;
use super::work::Work;
use crate::bench::thread_time::thread_time;
use crate::side::Side;

const TIME: Axis = Axis { quantity: "time_ratio", label: "application's time / time without traffic" };
const SIZES: Axis = Axis { quantity: "bytes", label: "message size (bytes)" };

/// The ratio of wall-clock times, which include the time of other threads.
const WALL: &str = "wall_ratio";
/// Throughput at the host.
const RATE: &str = "gbps";
/// Processors used by the card's threads.
const CARD: &str = "card_processors";
/// Processors used by the receiving programs.
const RECEIVERS: &str = "receiver_processors";

/// Message size in bytes, unless the figure varies it.
const SIZE: usize = 16 * 1024;

/// The paper's link.
const LINK: &str = "1gbit";

/// Time from the senders' start to the application's, in addition to several round trips: TCP's windows have
/// opened by then.
const WARM_UP: Duration = Duration::from_millis(100);

/// Time that a sender sleeps if no connection has room.
const NO_ROOM: Duration = Duration::from_micros(100);

/// The measurements of one run.
struct Run {
    /// Processor time of the application and the receiving programs, which share a processor.
    time: Duration,
    wall: Duration,
    gbps: f64,
    card: f64,
    receivers: f64,
}

/// A snapshot of the counters.
struct Mark {
    at: Instant,
    application: Duration,
    bytes: u64,
    card: Duration,
    receivers: Duration,
}

/// Traffic to the left host.
struct Traffic {
    stop: AtomicBool,
    /// Bytes that the host's card has placed, and bytes that its programs have received.
    placed: AtomicU64,
    taken: AtomicU64,
}

impl Traffic {
    /// Pushes messages of `len` bytes, over all connections in turn.
    fn push(&self, ends: &mut [Box<dyn End>], len: usize) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut has_pushed = false;
            for end in &mut *ends {
                has_pushed |= end.push(len)?;
            }
            self.placed.store(ends.iter().map(|end| end.placed()).sum(), Ordering::Relaxed);
            if !has_pushed {
                thread::sleep(NO_ROOM);
            }
        }
        Ok(())
    }

    fn mark(&self, card: &Threads, receivers: &Threads) -> Mark {
        let bytes = self.placed.load(Ordering::Relaxed) + self.taken.load(Ordering::Relaxed);
        Mark {
            at: Instant::now(),
            application: thread_time(),
            bytes,
            card: card.time(),
            receivers: receivers.time(),
        }
    }
}

impl Run {
    fn between(from: &Mark, to: &Mark) -> Self {
        let wall = to.at - from.at;
        let seconds = wall.as_secs_f64();
        let receivers = to.receivers.saturating_sub(from.receivers);
        Self {
            time: to.application.saturating_sub(from.application) + receivers,
            wall,
            gbps: (to.bytes - from.bytes) as f64 * 8.0 / 1e9 / seconds,
            card: to.card.saturating_sub(from.card).as_secs_f64() / seconds,
            receivers: receivers.as_secs_f64() / seconds,
        }
    }
}

/// Runs the application while senders push messages of `len` bytes.
fn run(
    testbed: &Testbed,
    connections: Connections,
    (work, len): (Work, usize),
    warm_up: Duration,
) -> anyhow::Result<Run> {
    let Connections { pairs, cards: [card, _] } = connections;
    let (mut receivers, mut senders): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|[left, right]| (left, right)).unzip();
    let traffic =
        Traffic { stop: AtomicBool::new(false), placed: AtomicU64::new(0), taken: AtomicU64::new(0) };
    let Testbed { processors, plan, .. } = testbed;
    thread::scope(|scope| {
        let (receiving, receiver_threads) = Threads::started_by(|| {
            let two_sided = receivers.iter_mut().filter(|end| !end.is_one_sided());
            let start = |end| {
                scope.spawn(|| {
                    let end: &mut Box<dyn End> = end;
                    processors.on(Role::Application, || end.absorb(&traffic.stop, &traffic.taken))
                })
            };
            two_sided.map(start).collect::<Vec<_>>()
        });
        let pushing = scope.spawn(|| processors.on(Role::Peer, || traffic.push(&mut senders, len)));
        thread::sleep(warm_up);
        let application = processors.on(Role::Application, || {
            let from = traffic.mark(&card, &receiving);
            work.run(plan.application);
            Run::between(&from, &traffic.mark(&card, &receiving))
        });
        traffic.stop.store(true, Ordering::Relaxed);
        for thread in receiver_threads.into_iter().chain([pushing]) {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a program has panicked")))?;
        }
        Ok(application)
    })
}

/// Measures every transport at one place of the figure. The path has no delay while connections are set up.
fn measure_place(
    testbed: &Testbed,
    hosts: &Hosts,
    grid: &mut Grid,
    place: usize,
    (len, delay): (usize, Duration),
) -> anyhow::Result<()> {
    let (work, alone) = testbed.processors.on(Role::Application, || {
        let work = Work::calibrate();
        let (start, own) = (Instant::now(), thread_time());
        work.run(testbed.plan.application);
        (work, (thread_time() - own, start.elapsed()))
    });
    for bearer in Bearer::ALL {
        hosts.set_delay(Duration::ZERO)?;
        let connections = testbed.site(hosts, Side::Left).connect(bearer, testbed.plan.senders, len)?;
        hosts.set_delay(delay)?;
        let run = run(testbed, connections, (work, len), WARM_UP + delay * 8)
            .with_context(|| format!("senders over {}", bearer.name()))?;
        let ratio = run.time.as_secs_f64() / alone.0.as_secs_f64();
        let wall = run.wall.as_secs_f64() / alone.1.as_secs_f64();
        let quantities = [
            (TIME.quantity, ratio),
            (WALL, wall),
            (RATE, run.gbps),
            (CARD, run.card),
            (RECEIVERS, run.receivers),
        ];
        for (quantity, value) in quantities {
            grid.add((bearer, quantity, ""), place, value);
        }
    }
    Ok(())
}

/// Creates hosts with the paper's link rate between them, unless the options give one.
fn link(testbed: &Testbed) -> anyhow::Result<Hosts> {
    let rate = Some(LINK.parse()?);
    let limited = testbed.impairments.clone().map(|of| match (of.rate, &of.trace) {
        (None, None) => Impairments { rate, ..of },
        _ => of,
    });
    Hosts::wan(&limited, testbed.seed, &testbed.processors)
}

fn notes(testbed: &Testbed) -> Vec<String> {
    let processors = match testbed.processors.count() {
        1 => "This machine has one processor for programs, cards and path, so the card takes its time from the application.".into(),
        2 => "The application and the programs that receive have one processor; the card, the senders and the path share another.".into(),
        count => format!(
            "The application and the programs that receive have one of {count} processors, the card has another."
        ),
    };
    vec![
        processors,
        format!(
            "{} is the processor time of the application and of the programs that receive, until the application is done: what it \
             takes on a host whose one processor does nothing else. {WALL} is by the clock.",
            TIME.quantity
        ),
        format!(
            "The card is a thread of this process: {CARD} is its processor time by the clock's, {RECEIVERS} that of the programs that \
             receive from sockets."
        ),
        "The host's kernel receives segments and datagrams in the path's thread, on another processor: interrupts and the \
         kernel's TCP take nothing from the application here, as they would on a host of its own."
            .into(),
    ]
}

/// The figure by message size, on a path without delay.
pub(super) const BY_SIZE: Kind = Kind {
    name: "iwarp-cpu",
    paper: "7a",
    title: "Time of an application under 40 senders by message size, path without delay",
    x: SIZES,
    y: TIME,
    rounds: |plan| plan.long_rounds,
    places: |plan| plan.pushed_sizes.iter().map(|size| *size as f64).collect(),
    measure: |testbed, _, grid| {
        let hosts = link(testbed)?;
        testbed.at_each(testbed.plan.pushed_sizes, |place, len| {
            measure_place(testbed, &hosts, grid, place, (len, Duration::ZERO))
        })?;
        hosts.close()
    },
    notes,
};

/// The figure by the path's delay.
pub(super) const BY_DELAY: Kind = Kind {
    name: "iwarp-cpu-delay",
    paper: "7b",
    title: "Time of an application under 40 senders of 16 KB messages by the path's delay",
    x: DELAYS,
    y: TIME,
    rounds: |plan| plan.long_rounds,
    places: delays_of,
    measure: |testbed, _, grid| {
        let hosts = link(testbed)?;
        testbed.at_each(&testbed.plan.delays, |place, delay| {
            measure_place(testbed, &hosts, grid, place, (SIZE, delay))
        })?;
        hosts.close()
    },
    notes,
};
