//! What a device is made with, and what it can do at most.

use std::net::IpAddr;

use nichrome_wire::rdma::PathMtu;
use nichrome_wire::star::{Epoch, STAR_PORT};
use thiserror::Error;

use crate::core::protection::Protection;
use crate::roce::dcqcn::Dcqcn;
use crate::star::CardAuthentication;

/// Bounds on what a program may ask of a device. Memory is taken as objects are made, up to these bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub domains: usize,
    /// Memory regions and windows together, at most 2²³: more would be in the way of random keys.
    pub keys: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Completions in one queue.
    pub cqes: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Requests in one send, receive or shared receive queue.
    pub wrs: usize,
    /// Buffers in one request, at most 255.
    pub sges: usize,
    /// Inline bytes in one request.
    pub inline: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// Address handles.
    pub addresses: usize,
    /// READs and atomics outstanding on one queue pair, each way.
    pub rd_atomic: u8,
    /// Bytes in one message, at most 2³⁰: its packets must have numbers of their own.
    pub message: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            domains: 1 << 20,
            keys: 1 << 20,
            cqs: 1 << 20,
            cqes: 1 << 20,
            qps: 1 << 20,
            wrs: 1 << 20,
            sges: 32,
            inline: 512,
            srqs: 1 << 20,
            addresses: 1 << 20,
            rd_atomic: 128,
            message: 1 << 30,
        }
    }
}

/// How fast a queue pair sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    /// Packets outstanding at first.
    pub initial: u32,
    /// Packets outstanding at most.
    pub max: u32,
    /// Packets that one READ request asks for at most; longer READs are asked for in parts. No more than `initial`.
    pub read: u32,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { initial: 64, max: 256, read: 32 }
    }
}

/// Whether lost packets are repeated one by one where the peer is one of ours too. The offer is a bit of each packet
/// that the standard reserves and that others ignore; towards them, all after a loss is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SelectiveRepeat {
    /// It is offered, and used with peers that offer it.
    #[default]
    Offered,
    /// It is neither offered nor used.
    Never,
}

/// What a congestion notification does to its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Congestion {
    /// It halves the window, as a loss does.
    #[default]
    Window,
    /// It sets the rate, by DCQCN.
    Dcqcn(Dcqcn),
}

/// How a device takes part in StaR.
#[derive(Clone, Debug)]
pub struct StarConfig {
    /// Connections whose state the device keeps: of RoCE, and of StaR as the stateful side. `None` for any number; beyond
    /// it, new connections want to be stateless here (section 3.3 of the paper, auto adaption).
    pub connection_budget: Option<usize>,
    /// The UDP source port of what is sent.
    pub source_port: u16,
    /// This start of the device as a stateless side, best chosen at random: packets of before it are refused.
    pub epoch: Epoch,
    /// Packets to the stateless side must be authenticated, by keys that follow from the secret.
    pub authentication: Option<CardAuthentication>,
    /// Nanoseconds that the network holds a packet at most, when it has lost it by all appearances. Operations complete no
    /// earlier, so that a copy of their bytes that comes after all changes nothing that was written later.
    pub packet_lifetime: u64,
    /// Packets that wait for the answer of the stateless card, of all connections together; others are dropped.
    pub waiting_packets: usize,
}

impl Default for StarConfig {
    fn default() -> Self {
        Self {
            connection_budget: None,
            source_port: STAR_PORT,
            epoch: Epoch::default(),
            authentication: None,
            packet_lifetime: 10_000_000,
            waiting_packets: 4096,
        }
    }
}

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's addresses: its GID table. At least one.
    pub addresses: Vec<IpAddr>,
    /// The UDP source port of what it sends.
    pub source_port: u16,
    /// The largest path MTU.
    pub mtu: PathMtu,
    /// The lowest number of a queue pair, between 2 and 2²⁴ − 2. Queue pairs take `limits.qps` numbers from it on, one after
    /// the other from a number on that follows from the seed.
    pub first_qp: u32,
    /// Bounds on what programs may ask for.
    pub limits: Limits,
    /// How fast queue pairs send.
    pub window: SendWindow,
    /// What congestion notifications do.
    pub congestion: Congestion,
    /// Whether lost packets are repeated one by one.
    pub selective_repeat: SelectiveRepeat,
    /// Packets that arrived ahead of lost ones and are kept for all queue pairs together.
    pub held_packets: usize,
    /// Whether the driver sees IPv4 identifications, and has changed every ICRC to identification 0
    /// ([`IcrcChecker::change_ident`](nichrome_wire::rdma::IcrcChecker::change_ident)): then an ICRC is right or wrong.
    /// Otherwise one is right that some identification explains which is to be expected from the peer.
    pub sees_identifications: bool,
    /// How long an acknowledgement waits for a program that answers what arrives, to leave together with the answer;
    /// nanoseconds, 0 for never.
    pub acknowledgement_delay: u64,
    /// What memory keys and queue pair numbers follow from. A driver draws it from the kernel's random numbers: whoever
    /// knows it knows all keys of the device.
    pub seed: u128,
    /// StaR.
    pub star: StarConfig,
}

impl Config {
    /// A device with these addresses and otherwise common values.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            source_port: nichrome_wire::rdma::ROCE_PORT,
            mtu: PathMtu::B4096,
            first_qp: 0x11,
            limits: Limits::default(),
            window: SendWindow::default(),
            congestion: Congestion::default(),
            selective_repeat: SelectiveRepeat::default(),
            held_packets: 4096,
            sees_identifications: false,
            acknowledgement_delay: 0,
            seed: 0,
            star: StarConfig::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let ranges = [
            ("addresses", self.addresses.len(), 1, 256),
            ("first_qp", self.first_qp as usize, 2, 0xFF_FFFE),
            ("first_qp + limits.qps", self.first_qp as usize + limits.qps, 3, 0xFF_FFFF),
            ("limits.keys", limits.keys, 1, Protection::MAX_KEYS),
            ("limits.sges", limits.sges, 1, 255),
            ("limits.inline", limits.inline, 0, 1 << 16),
            ("limits.message", limits.message as usize, 1, 1 << 30),
            ("limits.rd_atomic", usize::from(limits.rd_atomic), 0, 255),
            ("window.initial", self.window.initial as usize, 1, self.window.max as usize),
            ("window.max", self.window.max as usize, 1, 1 << 20),
            ("window.read", self.window.read as usize, 1, self.window.initial as usize),
        ];
        for (name, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ConfigError { name, value, min, max });
            }
        }
        Ok(())
    }
}

/// A value of a [`Config`] that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is {value}, but must be between {min} and {max}")]
pub struct ConfigError {
    name: &'static str,
    value: usize,
    min: usize,
    max: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ibv_devinfo -v` says of rxe in Linux 6.1.
    #[test]
    fn limits_are_at_least_those_of_rxe() {
        let ours = Limits::default();
        for (name, ours, theirs) in [
            ("max_pd", ours.domains, 1_048_576),
            ("max_mr and max_mw", ours.keys, 524_287 + 524_287),
            ("max_cq", ours.cqs, 1_048_576),
            ("max_cqe", ours.cqes, 32_767),
            ("max_qp", ours.qps, 1_048_560),
            ("max_qp_wr and max_srq_wr", ours.wrs, 1_048_576),
            ("max_sge", ours.sges, 32),
            ("max_srq", ours.srqs, 917_503),
            ("max_ah", ours.addresses, 32_767),
            ("max_qp_rd_atom", ours.rd_atomic.into(), 128),
            ("max_msg_sz", ours.message as usize, 0x80_0000),
        ] {
            assert!(ours >= theirs, "{name}: {ours}");
        }
    }
}
