//! Unreliable datagrams: one queue pair for all connections, whose context stays on chip. The server's software
//! processes and answers every request, including WRITEs. No retransmission.

use super::lengths::datagram_len;
use super::network::{Event, Network};
use super::packet::{Kind, Packet, Side};
use crate::EventQueue;

impl Network {
    pub(super) fn post_datagram(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let message = self.message(side);
        for sequence in 0..message.packets {
            let is_last = message.ends_with(sequence);
            let kind = if side == Side::Client { Kind::Request(is_last) } else { Kind::Response(is_last) };
            let len = datagram_len(message.payload(sequence));
            self.transmit(Packet::of_software(connection, side.other(), kind, len), queue);
        }
    }

    /// Processes the last packet of a request or response.
    pub(super) fn receive_datagram(&mut self, connection: u32, to: Side, queue: &mut EventQueue<Event>) {
        if to == Side::Client {
            return self.complete(connection, queue);
        }
        let node = self.connections[connection as usize].nodes[to as usize];
        let cores = &mut self.nodes[node as usize].cores;
        let core = connection as usize % cores.len().max(1);
        let served = cores.get_mut(core).map(|core| core.serve(self.config.request_time, queue.now()));
        if let Some(Ok(done)) = served {
            let posted = done.plus_nanos(self.config.post);
            queue.schedule(posted, Event::Posted { connection, side: Side::Server });
        }
    }
}
