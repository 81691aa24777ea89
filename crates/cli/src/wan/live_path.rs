//! A running path between two devices: two directions, each on its own thread.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nichrome_port::{CallOnDrop, Waker};
use nichrome_wan::Impairments;

use super::direction::{ControlMessage, Direction};
use super::recorder::Recording;
use super::report::Report;
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::threads;

/// The configuration of a live path.
pub(crate) struct Setup<'a> {
    /// The devices at its ends, the left one first.
    pub(crate) devices: [SharedDevice; 2],
    /// Impairments towards the left and towards the right.
    pub(crate) impairments: &'a [Impairments; 2],
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// The capture of its packets.
    pub(crate) recording: Option<&'a Recording>,
}

/// A running path.
pub(crate) struct LivePath {
    /// Towards the left, and towards the right.
    directions: [Running; 2],
}

struct Running {
    control: Control,
    thread: JoinHandle<anyhow::Result<Report>>,
}

/// The sender of a direction's control messages.
#[derive(Clone)]
struct Control {
    messages: Sender<ControlMessage>,
    waker: Arc<Waker>,
}

/// A handle to a running path, for any thread.
#[derive(Clone)]
pub(crate) struct Remote([Control; 2]);

impl LivePath {
    /// Starts carrying packets. Calls `ended` on a direction's thread when the direction ends, for whatever
    /// reason.
    pub(crate) fn start(
        setup: &Setup<'_>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let start = |to: Side| -> anyhow::Result<Running> {
            let (messages, inbox) = mpsc::channel();
            let waker = Arc::new(Waker::new()?);
            let devices = [to.other(), to].map(|side| Arc::clone(side.of(&setup.devices)));
            let direction = Direction::new(
                to,
                devices,
                to.of(setup.impairments),
                setup.seed,
                setup.recording.map(|recording| recording.recorder(to)),
                (inbox, Arc::clone(&waker)),
            )?;
            let ended = ended.clone();
            let thread = threads::start(to.direction(), move || {
                let _call_on_drop = CallOnDrop(ended);
                direction.run()
            })?;
            Ok(Running { control: Control { messages, waker }, thread })
        };
        let [left, right] = Side::BOTH;
        Ok(Self { directions: [start(left)?, start(right)?] })
    }

    /// Returns a handle to this path.
    pub(crate) fn remote(&self) -> Remote {
        let [left, right] = &self.directions;
        Remote([left.control.clone(), right.control.clone()])
    }

    /// Stops both directions and returns their reports, the one to the left first. Packets in flight are
    /// lost.
    pub(crate) fn stop(self) -> anyhow::Result<[Report; 2]> {
        for direction in &self.directions {
            // Fails only if the direction has ended already.
            let _ = direction.control.send(ControlMessage::Stop);
        }
        let [left, right] = self.directions.map(|direction| {
            direction.thread.join().unwrap_or_else(|_| Err(anyhow!("a direction of the path has panicked")))
        });
        Ok([left?, right?])
    }
}

impl Remote {
    /// Changes the impairments of packets that enter from now on.
    pub(crate) fn impair(&self, impairments: &[Impairments; 2]) -> anyhow::Result<()> {
        for (control, impairments) in self.0.iter().zip(impairments) {
            let (done, answer) = mpsc::channel();
            control.send(ControlMessage::Impair(Box::new(impairments.clone()), done))?;
            answer.recv().context(ENDED)??;
        }
        Ok(())
    }

    /// Returns the reports so far, the direction to the left first.
    pub(crate) fn reports(&self) -> anyhow::Result<[Report; 2]> {
        let [left, right] = &self.0;
        Ok([left.report()?, right.report()?])
    }
}

const ENDED: &str = "the path has ended";

impl Control {
    fn send(&self, message: ControlMessage) -> anyhow::Result<()> {
        self.messages.send(message).map_err(|_| anyhow!(ENDED))?;
        self.waker.wake();
        Ok(())
    }

    fn report(&self) -> anyhow::Result<Report> {
        let (to, answer) = mpsc::channel();
        self.send(ControlMessage::Report(to))?;
        answer.recv().context(ENDED)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::time::Duration;

    use nichrome_port::{Device, Received};
    use rustix::io;

    use super::*;

    /// An interface that panics when it is read.
    struct Panics(Waker);

    impl AsFd for Panics {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Device for Panics {
        fn receive<'a>(&self, _: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
            panic!("as the test demands");
        }

        fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
            Ok(())
        }

        fn send_bytes(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_end_of_a_direction_that_panics_is_reported() {
        let device = || Arc::new(Panics(Waker::new().unwrap())) as SharedDevice;
        let impairments = [Impairments::default(), Impairments::default()];
        let setup =
            Setup { devices: [device(), device()], impairments: &impairments, seed: 1, recording: None };
        let (ended, end) = mpsc::channel();
        let path = LivePath::start(&setup, move || ended.send(()).unwrap_or_default()).unwrap();
        assert_eq!(end.recv_timeout(Duration::from_secs(5)), Ok(()));
        assert!(path.stop().is_err());
    }
}
