//! Handles received messages.

use std::net::IpAddr;

use nichrome_wire::Instant;
use nichrome_wire::cm::{Mad, Message};

use super::connections::Connections;
use super::indication::Indication;

impl Connections {
    /// Handles a datagram that arrived at queue pair 1 of address `own` from queue pair 1 of `peer`.
    pub(crate) fn receive(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        payload: &[u8],
        now: Instant,
    ) -> Option<Indication> {
        self.counters.received += 1;
        let Ok(Mad { transaction, message }) = Mad::parse(payload) else {
            self.counters.malformed += 1;
            return None;
        };
        match &message {
            Message::Req(req) => self.receive_req(own, peer, transaction, req, now),
            Message::Rep(rep) => self.receive_rep(own, peer, rep, now),
            Message::Rtu(rtu) => self.receive_rtu(own, peer, rtu),
            Message::Rej(rej) => self.receive_rej(own, peer, rej, now),
            Message::Dreq(dreq) => self.receive_dreq(own, peer, transaction, dreq, now),
            Message::Drep(drep) => self.receive_drep(own, peer, drep, now),
            Message::SidrReq(req) => self.receive_sidr_req(own, peer, transaction, req),
            Message::SidrRep(rep) => self.receive_sidr_rep(own, peer, rep),
            Message::Mra(mra) => {
                self.receive_mra(own, peer, mra, now);
                None
            }
            // Path migration is not supported; Linux ignores a LAP that it cannot serve.
            Message::Lap(_) | Message::Apr(_) => {
                self.counters.unexpected += 1;
                None
            }
        }
    }
}
