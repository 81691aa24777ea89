//! The engine contract.

use std::cmp;

use nichrome_wire::{Engine, Instant};

use super::Manager;
use crate::exchange::{Input, Output};
use crate::host::Host;

impl<H: Host> Engine for Manager<H> {
    type Input = Input;
    type Output = Output;

    fn receive(&mut self, input: Input, now: Instant) {
        match input {
            Input::Datagram { source, destination, payload } => {
                if let Some(indication) = self.ib.receive(destination, source, &payload, now) {
                    self.indicate(indication, now);
                }
            }
            Input::AddressResolved(query, result) => self.address_resolved(query, result),
            Input::RouteResolved(query, result) => self.route_resolved(query, result),
            Input::GroupJoined(membership, result) => self.group_joined(membership, result),
            Input::Incoming { stream, local, peer, parameters } => {
                self.stream_arrived(stream, (local, peer), parameters);
            }
            Input::Replied { id, local, result } => self.stream_replied(id, local, result),
            Input::Accepted(stream, result) => self.stream_accepted(stream, result),
            Input::Closed(stream) => self.stream_closed(stream),
        }
    }

    fn poll(&mut self) -> Option<Output> {
        let transmit = || self.ib.poll_transmit().map(|transmit| Output::Transmit(Box::new(transmit)));
        self.outputs.pop_front().or_else(transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.deadlines.next(), self.ib.next_timeout(), self.held.next_timeout()];
        timeouts.into_iter().flatten().reduce(cmp::min)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.deadlines.due(now) {
            self.set_deadline(id, None);
            self.query_timed_out(id);
        }
        while let Some(indication) = self.ib.handle_timeout(now) {
            if let Some(indication) = indication {
                self.indicate(indication, now);
            }
        }
        self.stop_holding(now);
    }
}
