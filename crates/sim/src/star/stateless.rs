//! StaR: the client's card keeps everything; the server's card answers RDP and GD from what is in them, and hands elements to
//! its driver, which is software.
//!
//! | operation | packets (Figure 3 of the paper) |
//! |---|---|
//! | WRITE by the client | RDP, RA |
//! | request of an RPC | RDP, RA; CQEP and its EA |
//! | response of an RPC | WQEP and its EA; GD, SDP; CQEP and its EA |
//! | RECV posted for the next request | WQEP and its EA |

use super::config::Operation;
use super::connection::State;
use super::elements::Elements;
use super::exchange::Exchange;
use super::lengths::packet_len;
use super::network::{Event, Network};
use super::packet::{Kind, Packet, Side};
use crate::EventQueue;

/// A client's state.
struct Client<'c> {
    out: &'c mut Exchange,
    back: &'c mut Exchange,
    work: &'c mut Elements,
    completions: &'c mut Elements,
}

impl Network {
    fn star(&mut self, connection: u32) -> Option<Client<'_>> {
        match &mut self.connections[connection as usize].state {
            State::Stateless { out, back, work, completions } => {
                Some(Client { out, back, work, completions })
            }
            _ => None,
        }
    }

    /// Work reaches the card: of the client, which sends; of the server, which tells the client of it.
    pub(super) fn post_stateless(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        if side == Side::Server {
            return self.send_work(connection, queue);
        }
        let packets = self.config.request.packets;
        if let Some(client) = self.star(connection) {
            client.out.post(packets);
        }
    }

    /// The server's driver: the response, and the RECV for the next request.
    fn send_work(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        let to_client = (connection, Side::Client);
        for _ in 0..self.elements_for_each() {
            let Some(client) = self.star(connection) else { return };
            let sequence = client.work.send();
            self.tell(to_client, Kind::Wqep, sequence, false, queue);
        }
        self.set_timer(connection, Side::Server, queue);
    }

    /// WQEPs for each RPC; the response's is the first of them.
    fn elements_for_each(&self) -> u32 {
        match self.config.operation {
            Operation::Rpc { reposts: true, .. } => 2,
            _ => 1,
        }
    }

    /// The client's card sends one RDP or GD.
    pub(super) fn send_stateful(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        let request = self.config.request;
        let Some(client) = self.star(connection) else { return };
        let (kind, sent) = match client.out.send() {
            Some(sent) => (Kind::Rdp, sent),
            None => match client.back.send() {
                Some(sent) => (Kind::Gd, sent),
                None => return,
            },
        };
        let (sequence, is_repeat) = sent;
        self.counters.repeated += u64::from(is_repeat);
        let payload = if kind == Kind::Rdp { request.payload(sequence) } else { 0 };
        let len = packet_len(kind, payload, false);
        let to = Side::Server;
        self.transmit(Packet { connection, sequence, kind, to, marked: false, len }, queue);
    }

    /// What the server's card does with a packet, without any context, and what its driver does with an element.
    pub(super) fn answer_statelessly(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Packet { connection, sequence, kind, marked, .. } = packet;
        let to_client = (connection, Side::Client);
        match kind {
            Kind::Rdp => self.tell(to_client, Kind::Ra, sequence, marked, queue),
            Kind::Gd => {
                let len = packet_len(Kind::Sdp, self.message(Side::Server).payload(sequence), false);
                let to = Side::Client;
                self.transmit(
                    Packet { connection, sequence, kind: Kind::Sdp, to, marked: false, len },
                    queue,
                );
            }
            Kind::Ea => {
                if let Some(client) = self.star(connection) {
                    client.work.acknowledge(sequence);
                }
            }
            Kind::Cqep => {
                let Some(client) = self.star(connection) else { return };
                // Of each RPC, the first says that the request is there, and the second that the response was sent.
                let is_request = client.completions.receive(sequence) && sequence.is_multiple_of(2);
                let expected = client.completions.expected();
                self.tell(to_client, Kind::Ea, expected, false, queue);
                if is_request {
                    queue.schedule_in(self.config.post, Event::Posted { connection, side: Side::Server });
                }
            }
            _ => {}
        }
    }

    /// What the client's card does with a packet.
    pub(super) fn receive_stateful(&mut self, packet: Packet, queue: &mut EventQueue<Event>) {
        let Packet { connection, sequence, kind, marked, .. } = packet;
        self.connections[connection as usize].active[Side::Client as usize] = queue.now();
        let elements = self.elements_for_each();
        let response = self.message(Side::Server).packets;
        let Some(client) = self.star(connection) else { return };
        match kind {
            Kind::Ra | Kind::Sdp => {
                let exchange = if kind == Kind::Ra { client.out } else { client.back };
                let is_done = exchange.answer(sequence, marked) && exchange.is_done();
                if is_done {
                    self.message_moved(connection, kind, queue);
                }
            }
            Kind::Wqep => {
                if client.work.receive(sequence) && sequence.is_multiple_of(elements) {
                    client.back.post(response);
                }
                let expected = client.work.expected();
                self.tell((connection, Side::Server), Kind::Ea, expected, false, queue);
            }
            Kind::Ea => client.completions.acknowledge(sequence),
            _ => {}
        }
        self.wants_to_send(connection, Side::Client);
    }

    /// A message is in memory: the server's driver is told of what it has posted for, and a WRITE or a response ends an
    /// operation.
    fn message_moved(&mut self, connection: u32, answer: Kind, queue: &mut EventQueue<Event>) {
        let is_write = self.config.operation == Operation::Write;
        if !is_write {
            self.send_completion(connection, queue);
        }
        if is_write || answer == Kind::Sdp {
            self.complete(connection, queue);
        }
    }

    fn send_completion(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        let Some(client) = self.star(connection) else { return };
        let sequence = client.completions.send();
        self.tell((connection, Side::Server), Kind::Cqep, sequence, false, queue);
        self.set_timer(connection, Side::Client, queue);
    }

    /// Nothing was heard for too long: a side sends again what is not answered.
    pub(super) fn repeat_stateless(&mut self, connection: u32, side: Side, queue: &mut EventQueue<Event>) {
        let Some(client) = self.star(connection) else { return };
        let (kind, elements) = match side {
            Side::Client => {
                for exchange in [client.out, client.back] {
                    if exchange.is_under_way() {
                        exchange.time_out();
                    }
                }
                (Kind::Cqep, client.completions.unacknowledged())
            }
            Side::Server => (Kind::Wqep, client.work.unacknowledged()),
        };
        for sequence in elements {
            self.counters.repeated += 1;
            self.tell((connection, side.other()), kind, sequence, false, queue);
        }
    }
}
