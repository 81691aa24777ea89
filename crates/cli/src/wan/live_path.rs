//! A path between two devices that is in use: two directions, each on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nichrome_port::Waker;
use nichrome_wan::Impairments;

use super::direction::{Direction, Order};
use super::recorder::Recording;
use super::report::Report;
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::threads;

/// What a path in use is made of.
pub(crate) struct Setup<'a> {
    /// The devices at its ends, the left one first.
    pub(crate) devices: [SharedDevice; 2],
    /// What happens to packets on their way to the left and to the right.
    pub(crate) impairments: &'a [Impairments; 2],
    /// What all random choices come from.
    pub(crate) seed: u64,
    /// Bytes of the usual longest frame.
    pub(crate) frame_len: usize,
    /// Where packets are recorded.
    pub(crate) recording: Option<&'a Recording>,
}

/// A path in use.
pub(crate) struct LivePath {
    /// Towards the left, and towards the right.
    directions: [Running; 2],
}

struct Running {
    control: Control,
    thread: JoinHandle<anyhow::Result<Report>>,
}

/// What a direction is told its orders with.
#[derive(Clone)]
struct Control {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

/// A handle with which any thread can ask a path in use, and change it.
#[derive(Clone)]
pub(crate) struct Remote([Control; 2]);

impl LivePath {
    /// Starts carrying packets. `ended` is called on the thread of a direction that ends, be it by itself.
    pub(crate) fn start(
        setup: &Setup<'_>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let start = |to: Side| -> anyhow::Result<Running> {
            let (orders, inbox) = mpsc::channel();
            let waker = Arc::new(Waker::new()?);
            let devices = [to.other(), to].map(|side| Arc::clone(side.of(&setup.devices)));
            let direction = Direction::new(
                to,
                devices,
                to.of(setup.impairments),
                setup.seed,
                setup.frame_len,
                setup.recording.map(|recording| recording.recorder(to)),
                (inbox, Arc::clone(&waker)),
            )?;
            let ended = ended.clone();
            let thread = threads::start(to.direction(), move || {
                let result = direction.run();
                ended();
                result
            })?;
            Ok(Running { control: Control { orders, waker }, thread })
        };
        let [left, right] = Side::BOTH;
        Ok(Self { directions: [start(left)?, start(right)?] })
    }

    /// A handle to this path.
    pub(crate) fn remote(&self) -> Remote {
        let [left, right] = &self.directions;
        Remote([left.control.clone(), right.control.clone()])
    }

    /// Ends both directions and says what they have done, the one to the left first. Packets on their way are lost.
    pub(crate) fn stop(self) -> anyhow::Result<[Report; 2]> {
        for direction in &self.directions {
            // One that has ended already needs no order.
            let _ = direction.control.give(Order::Stop);
        }
        let [left, right] = self.directions.map(|direction| {
            direction.thread.join().unwrap_or_else(|_| Err(anyhow!("a direction of the path has panicked")))
        });
        Ok([left?, right?])
    }
}

impl Remote {
    /// Has packets that enter from now on impaired like this.
    pub(crate) fn impair(&self, impairments: &[Impairments; 2]) -> anyhow::Result<()> {
        for (control, impairments) in self.0.iter().zip(impairments) {
            let (done, answer) = mpsc::channel();
            control.give(Order::Impair(Box::new(impairments.clone()), done))?;
            answer.recv().context(ENDED)??;
        }
        Ok(())
    }

    /// What was done so far, the direction to the left first.
    pub(crate) fn reports(&self) -> anyhow::Result<[Report; 2]> {
        let [left, right] = &self.0;
        Ok([left.report()?, right.report()?])
    }
}

const ENDED: &str = "the path has ended";

impl Control {
    fn give(&self, order: Order) -> anyhow::Result<()> {
        self.orders.send(order).map_err(|_| anyhow!(ENDED))?;
        self.waker.wake();
        Ok(())
    }

    fn report(&self) -> anyhow::Result<Report> {
        let (to, answer) = mpsc::channel();
        self.give(Order::Report(to))?;
        answer.recv().context(ENDED)
    }
}
