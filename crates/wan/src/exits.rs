//! The outputs of a path: released and dropped packets, and their counters.

use std::collections::VecDeque;

use nichrome_wire::Instant;

use crate::{Departure, DropReason, Limit, Output, Packet, Stats};

/// A packet in flight.
pub(crate) struct Transit<P> {
    pub(crate) packet: P,
    pub(crate) arrived: Instant,
    /// Arrival number of the packet; a copy has its original's.
    pub(crate) number: u64,
}

/// Outputs not polled yet, and the counters.
pub(crate) struct Exits<P> {
    outputs: VecDeque<Output<P>>,
    pub(crate) stats: Stats,
    in_flight: usize,
    limit: Limit,
    /// Highest arrival number released so far.
    latest: u64,
}

impl<P: Packet> Exits<P> {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { outputs: VecDeque::new(), stats: Stats::default(), in_flight: 0, limit, latest: 0 }
    }

    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.limit.get() as usize
    }

    /// Admits and counts an arriving packet. Drops it and returns `None` if the path is full.
    #[inline]
    pub(crate) fn admit(&mut self, packet: P, now: Instant) -> Option<Transit<P>> {
        self.stats.packets_in += 1;
        self.stats.bytes_in += packet.wire_len() as u64;
        let transit = Transit { packet, arrived: now, number: self.stats.packets_in };
        let has_room = self.has_room();
        self.in_flight += 1;
        if has_room {
            return Some(transit);
        }
        self.drop(transit, DropReason::InFlightLimit);
        None
    }

    /// Makes and counts a copy, if the path has room.
    pub(crate) fn copy(&mut self, original: &Transit<P>) -> Option<Transit<P>> {
        let copy = if self.has_room() { original.packet.duplicate() } else { None };
        match copy {
            Some(_) => {
                self.stats.duplicated += 1;
                self.in_flight += 1;
            }
            None => self.stats.duplicates_missed += 1,
        }
        copy.map(|packet| Transit { packet, arrived: original.arrived, number: original.number })
    }

    /// Replaces a packet by `fragments` and counts them. Drops the packet if the path lacks room for all.
    pub(crate) fn fragment(&mut self, original: Transit<P>, fragments: Vec<P>) -> Vec<Transit<P>> {
        if self.in_flight - 1 + fragments.len() > self.limit.get() as usize {
            self.drop(original, DropReason::InFlightLimit);
            return Vec::new();
        }
        self.in_flight += fragments.len();
        self.in_flight -= 1;
        self.stats.fragmented += 1;
        self.stats.fragments += fragments.len() as u64;
        let Transit { arrived, number, .. } = original;
        fragments.into_iter().map(|packet| Transit { packet, arrived, number }).collect()
    }

    pub(crate) fn drop(&mut self, transit: Transit<P>, reason: DropReason) {
        self.in_flight -= 1;
        self.stats.drops.count(reason);
        self.outputs.push_back(Output::Dropped { packet: transit.packet, reason });
    }

    /// Returns true if there are outputs that were not polled yet.
    pub(crate) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    #[inline]
    pub(crate) fn release(&mut self, transit: Transit<P>, due: Instant) {
        let departure = self.depart(transit, due);
        self.outputs.push_back(Output::Released(departure));
    }

    /// Counts a packet that leaves.
    #[inline]
    pub(crate) fn depart(&mut self, transit: Transit<P>, due: Instant) -> Departure<P> {
        let Transit { packet, arrived, number } = transit;
        self.in_flight -= 1;
        self.stats.packets_out += 1;
        self.stats.bytes_out += packet.wire_len() as u64;
        self.stats.reordered += u64::from(number < self.latest);
        self.stats.delay.record_nanos(due.nanos_since(arrived));
        self.latest = self.latest.max(number);
        Departure { packet, arrived, due }
    }

    /// Counts packets of these lengths that arrive and leave at once. Leaves `latest` unchanged: with no
    /// packet in flight, no later packet is out of order.
    #[inline]
    pub(crate) fn count_passed(&mut self, lens: impl Iterator<Item = usize>) {
        let (packets, bytes) = lens.fold((0, 0), |(packets, bytes), len| (packets + 1, bytes + len as u64));
        if packets == 0 {
            return;
        }
        self.stats.packets_in += packets;
        self.stats.packets_out += packets;
        self.stats.bytes_in += bytes;
        self.stats.bytes_out += bytes;
        self.stats.delay.record_many(0, packets);
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }
}
