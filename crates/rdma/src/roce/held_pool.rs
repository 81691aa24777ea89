//! Memory for requests that are kept until earlier ones arrive.

use super::held::HeldRequests;

/// Buffers for the payloads that responders keep, and queues for their order. All queue pairs share and reuse
/// them.
#[derive(Debug, Default)]
pub(crate) struct HeldPool {
    buffers: Vec<Vec<u8>>,
    /// Buffers that hold payloads.
    taken: usize,
    /// Empty queues, with allocated memory.
    orders: Vec<HeldRequests>,
}

impl HeldPool {
    /// Returns a copy of the bytes, or None if `limit` buffers hold payloads already.
    pub(super) fn take(&mut self, bytes: &[u8], limit: usize) -> Option<Vec<u8>> {
        if self.taken >= limit {
            return None;
        }
        self.taken += 1;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Some(buffer)
    }

    /// Takes back a buffer that `take` returned.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.taken -= 1;
        self.buffers.push(buffer);
    }

    /// Returns an empty queue, for a queue pair that begins to keep requests.
    pub(super) fn take_queue(&mut self) -> HeldRequests {
        self.orders.pop().unwrap_or_default()
    }

    /// Takes back the empty queue of a queue pair that keeps no requests any more.
    pub(super) fn return_queue(&mut self, order: HeldRequests) {
        self.orders.push(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_limited_and_used_again() {
        let mut held_pool = HeldPool::default();
        let first = held_pool.take(&[1, 2, 3], 2).unwrap();
        let second = held_pool.take(&[4], 2).unwrap();
        assert_eq!((&first[..], &second[..], held_pool.take(&[5], 2)), (&[1, 2, 3][..], &[4][..], None));
        let place = first.as_ptr();
        held_pool.give_back(first);
        let again = held_pool.take(&[6], 2).unwrap();
        assert_eq!((&again[..], again.as_ptr()), (&[6][..], place));
    }
}
