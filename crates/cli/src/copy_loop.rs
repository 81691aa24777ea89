//! A loop that copies frames between two devices unchanged, in the priority of a card: the baseline of
//! measurements.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use nichrome_port::{Device, MAX_RECEIVE, Onset, RealTime, Waker, clock};

use crate::shared_device::SharedDevice;

/// Two copy loops, one per direction.
pub(crate) struct CopyLoop {
    stop: Arc<Waker>,
    threads: [JoinHandle<rustix::io::Result<()>>; 2],
}

impl CopyLoop {
    /// Starts copying.
    pub(crate) fn start([left, right]: &[SharedDevice; 2]) -> anyhow::Result<Self> {
        let stop = Arc::new(Waker::new()?);
        let threads = [(left, right), (right, left)].map(|(from, to)| {
            let (from, to, stop) = (Arc::clone(from), Arc::clone(to), Arc::clone(&stop));
            thread::spawn(move || copy(&*from, &*to, &stop))
        });
        Ok(Self { stop, threads })
    }

    /// Stops copying.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.stop.wake();
        for copying in self.threads {
            copying.join().map_err(|_| anyhow!("the copy loop has panicked"))?.context("the copy loop")?;
        }
        Ok(())
    }
}

fn copy(from: &dyn Device, to: &dyn Device, stop: &Waker) -> rustix::io::Result<()> {
    let mut buffer = vec![0; MAX_RECEIVE];
    let mut real_time = RealTime::if_permitted(Onset::Working);
    loop {
        while let Some(received) = from.receive(&mut buffer)? {
            to.send(&[IoSlice::new(&received.virtio.to_bytes()), IoSlice::new(received.frame)])?;
            real_time.worked();
        }
        let [_, stopped] = real_time.sleep(|| clock::wait([from.as_fd(), stop.as_fd()], None))?;
        if stopped {
            return Ok(());
        }
    }
}
