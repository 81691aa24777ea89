//! Reliable connections of RoCEv2: both cards keep the state of both streams, and acknowledge every packet.

use super::config::Operation;
use super::connection::State;
use super::lengths::packet_len;
use super::network::{Event, Network};
use super::packet::{Kind, Packet, Side};
use super::stream::{Arrival, Stream};
use crate::EventQueue;

impl Network {
    fn stream(&mut self, connection: u32, sender: Side) -> Option<&mut Stream> {
        match &mut self.connections[connection as usize].state {
            State::Reliable(streams) => Some(&mut streams[sender as usize]),
            _ => None,
        }
    }

    /// The work of a side is at its card: a request or a response.
    pub(super) fn post_reliable(&mut self, connection: u32, side: Side) {
        let packets = self.message(side).packets;
        if let Some(stream) = self.stream(connection, side) {
            stream.post(packets);
        }
    }

    pub(super) fn send_reliable(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let message = self.message(side);
        let Some((sequence, is_repeat)) = self.stream(connection, side).and_then(Stream::send) else {
            return;
        };
        self.counters.repeated += u64::from(is_repeat);
        let has_address = self.config.operation == Operation::Write && message.begins_with(sequence);
        let len = packet_len(Kind::Data, message.payload(sequence), has_address);
        let to = side.other();
        self.transmit(Packet { connection, sequence, kind: Kind::Data, to, marked: false, len }, queue);
    }

    pub(super) fn receive_reliable(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Packet { connection, sequence, kind, to, marked, .. } = packet;
        if kind == Kind::Data {
            return self.receive_data(packet, queue);
        }
        let Some(stream) = self.stream(connection, to) else { return };
        if kind == Kind::Nak {
            stream.go_back(sequence);
        }
        let is_new = kind == Kind::Ack && stream.acknowledge(sequence, marked);
        let is_done = stream.is_done();
        self.connections[connection as usize].active[to as usize] = queue.now();
        if is_new && is_done && to == Side::Client && self.config.operation == Operation::Write {
            self.complete(connection, queue);
        }
        self.wants_to_send(connection, to);
    }

    fn receive_data(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Packet { connection, sequence, to, marked, .. } = packet;
        let Some(stream) = self.stream(connection, to.other()) else { return };
        let arrival = stream.receive(sequence);
        let expected = stream.expected();
        let kind = match arrival {
            Arrival::Next | Arrival::Again => Kind::Ack,
            Arrival::Gap => Kind::Nak,
            Arrival::StillGap => return,
        };
        self.tell((connection, to.other()), kind, expected, marked, queue);
        if arrival == Arrival::Next && self.message(to.other()).ends_with(sequence) {
            match (self.config.operation, to) {
                (Operation::Rpc { .. }, Side::Server) => {
                    queue.schedule_in(self.config.post, Event::Posted { connection, side: Side::Server });
                }
                (Operation::Rpc { .. }, Side::Client) => self.complete(connection, queue),
                (Operation::Write, _) => {}
            }
        }
    }
}
