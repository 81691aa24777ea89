//! Operations without an engine: their flights, and the contexts that they take on demand.

use super::baselines::{ContextUse, Flight, Sender};
use super::network::{Event, Network};
use super::packet::{Kind, Packet};
use super::side::Side;
use crate::EventQueue;

impl Network {
    /// Sends a flight of an operation.
    pub(super) fn send_flight(&mut self, connection: u32, flight: u8, queue: &mut EventQueue<Event>) {
        let Some(outline) = self.outline.clone() else { return };
        let Flight { from, packets, .. } = &outline.flights[flight as usize];
        for (nth, (len, context)) in packets.iter().enumerate() {
            let kind = Kind::Outline { flight, context: *context, is_last: nth + 1 == packets.len() };
            self.transmit(Packet::outline(connection, from.other(), kind, *len), queue);
        }
    }

    /// Receives a packet of a flight; sends the next flight if it was the last.
    pub(super) fn receive_outline(
        &mut self,
        connection: u32,
        to: Side,
        (flight, context, is_last): (u8, ContextUse, bool),
        queue: &mut EventQueue<Event>,
    ) {
        let has_context = self.use_context(connection, to, context);
        if !has_context && context == ContextUse::Opens {
            self.refuse(connection, queue);
        }
        let Some(outline) = self.outline.clone().filter(|_| has_context && is_last) else { return };
        if outline.flights[flight as usize].completes {
            self.complete(connection, queue);
        }
        let next = flight + 1;
        match outline.flights.get(next as usize).map(|flight| flight.sender) {
            Some(Sender::Card) => self.send_flight(connection, next, queue),
            Some(Sender::Software) => {
                let done = self.work_on_core(connection, self.config.request_time, queue.now());
                queue.schedule(done.plus_nanos(self.config.post), Event::Flight { connection, flight: next });
            }
            None => {}
        }
    }

    /// Applies a packet's effect on the connection's context; returns false if the packet needs a context and
    /// has none.
    fn use_context(&mut self, connection: u32, to: Side, context: ContextUse) -> bool {
        let this = &mut self.connections[connection as usize];
        let pool = &mut self.nodes[this.nodes[to as usize]].pool;
        match context {
            ContextUse::None => true,
            ContextUse::Needs => this.is_open,
            ContextUse::Opens => {
                this.is_open = pool.take();
                this.is_open
            }
            ContextUse::Closes => {
                this.is_open = false;
                pool.release();
                true
            }
        }
    }

    fn refuse(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        self.counters.refused += 1;
        let len = self.outline.as_ref().map_or(0, |outline| outline.baseline.refusal_len());
        self.transmit(Packet::outline(connection, Side::Client, Kind::Refused, len), queue);
    }

    /// Schedules a refused operation again, after the retry time.
    pub(super) fn refused(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        queue.schedule_in(self.config.retry, Event::Flight { connection, flight: 0 });
    }
}
