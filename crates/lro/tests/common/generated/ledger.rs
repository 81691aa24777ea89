//! Received buffers: records when each arrived, and whether it was dropped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use nichrome_wire::Instant;

/// The buffers that were not dropped yet, by the address of their first byte.
#[derive(Clone, Default)]
pub struct Ledger(Rc<RefCell<BTreeMap<usize, Entry>>>);

struct Entry {
    len: usize,
    arrived: Instant,
}

impl Ledger {
    /// A buffer that arrives at `now`.
    pub fn buffer(&self, bytes: Vec<u8>, now: Instant) -> Buffer {
        let entry = Entry { len: bytes.len(), arrived: now };
        if !bytes.is_empty() {
            self.0.borrow_mut().insert(bytes.as_ptr() as usize, entry);
        }
        Buffer { bytes, ledger: self.clone() }
    }

    /// Returns when the buffer that contains these bytes arrived; `None` if they are a copy.
    pub fn arrival(&self, part: &[u8]) -> Option<Instant> {
        let start = part.as_ptr() as usize;
        let buffers = self.0.borrow();
        let (at, entry) = buffers.range(..=start).next_back()?;
        (start + part.len() <= at + entry.len).then_some(entry.arrived)
    }

    /// Number of buffers that were not dropped yet.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A received frame's buffer.
pub struct Buffer {
    bytes: Vec<u8>,
    ledger: Ledger,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.ledger.0.borrow_mut().remove(&(self.bytes.as_ptr() as usize));
    }
}
