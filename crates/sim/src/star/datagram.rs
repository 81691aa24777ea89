//! Unreliable datagrams: a queue pair for all, whose context never leaves the chip; the server's software takes every
//! request and answers it, WRITEs too. Nothing is sent again.

use super::connection::State;
use super::lengths::packet_len;
use super::network::{Event, Network};
use super::packet::{Kind, Packet, Side};
use crate::EventQueue;

impl Network {
    pub(super) fn post_datagram(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let message = self.message(side);
        let kind = if side == Side::Client { Kind::Request } else { Kind::Response };
        for sequence in 0..message.packets {
            let len = packet_len(kind, message.payload(sequence), false);
            self.transmit(Packet { connection, sequence, kind, to: side.other(), marked: false, len }, queue);
        }
    }

    pub(super) fn receive_datagram(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Packet { connection, sequence, to, .. } = packet;
        let this = &self.connections[connection as usize];
        if !matches!(this.state, State::Datagram) || !self.message(to.other()).ends_with(sequence) {
            return;
        }
        if to == Side::Client {
            return self.complete(connection, queue);
        }
        let cores = &mut self.nodes[this.nodes[to as usize] as usize].cores;
        let core = connection as usize % cores.len().max(1);
        let served = cores.get_mut(core).map(|core| core.serve(self.config.request_time, queue.now()));
        if let Some(Ok(done)) = served {
            let posted = done.plus_nanos(self.config.post);
            queue.schedule(posted, Event::Posted { connection, side: Side::Server });
        }
    }
}
