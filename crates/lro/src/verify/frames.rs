//! The frames of one flow that have not come out yet: each must come out bit for bit, in order.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use super::Difference;

/// A frame that was received and has not come out.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub(super) number: u64,
    pub(super) fingerprint: u64,
}

/// The outstanding frames, oldest first.
#[derive(Default)]
pub(super) struct Frames {
    due: VecDeque<Due>,
    bytes: u64,
}

impl Frames {
    /// Records a received frame.
    pub(super) fn received(&mut self, number: u64, fingerprint: u64) {
        self.due.push_back(Due { number, fingerprint });
    }

    /// Returns the oldest outstanding frame.
    pub(super) fn oldest(&self) -> Option<Due> {
        self.due.front().copied()
    }

    /// Checks a frame that came out: it must equal the oldest outstanding one. Returns its number.
    pub(super) fn take(&mut self, frame: &[u8]) -> Result<u64, Difference> {
        let fingerprint = fingerprint(frame);
        self.bytes += frame.len() as u64;
        match self.due.front() {
            Some(due) if due.fingerprint == fingerprint => {
                let number = due.number;
                self.due.pop_front();
                Ok(number)
            }
            Some(due) => {
                let found = self.due.iter().find(|due| due.fingerprint == fingerprint);
                Err(match found {
                    Some(found) => Difference::Overtook { frame: found.number, overtaken: due.number },
                    None => Difference::Unknown { len: frame.len(), due: due.number },
                })
            }
            None => Err(Difference::Surplus { len: frame.len() }),
        }
    }

    /// Checks a frame that came out.
    pub(super) fn delivered(&mut self, frame: &[u8]) -> Result<(), Difference> {
        self.take(frame).map(|_| ())
    }

    /// Records a frame that was dropped for a valid reason, in any order.
    pub(super) fn dropped(&mut self, frame: &[u8]) -> Result<(), Difference> {
        let fingerprint = fingerprint(frame);
        let place = self.due.iter().position(|due| due.fingerprint == fingerprint);
        place
            .and_then(|place| self.due.remove(place))
            .map(|_| ())
            .ok_or(Difference::Surplus { len: frame.len() })
    }

    /// Checks that no frame is outstanding; returns the number of compared bytes.
    pub(super) fn finish(&self) -> Result<u64, Difference> {
        match self.due.front() {
            Some(due) => Err(Difference::Missing { frame: due.number }),
            None => Ok(self.bytes),
        }
    }
}

/// Returns the hash that stands for an outstanding frame.
pub(super) fn fingerprint(frame: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(frame);
    hasher.finish()
}
