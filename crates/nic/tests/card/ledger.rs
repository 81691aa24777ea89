//! A ledger of TCP connections: bytes handed to the receiving kernel, and bytes acknowledged to the sending
//! kernel, as the cards of both ends observe them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use nichrome_nic::Observer;
use nichrome_wire::{EtherType, Ipv4Header, Ipv6Header, LinkHeader, SeqNumber, TcpFlags, TcpHeader};

/// The account of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// All bytes before this were handed to the receiving kernel, or to its interface while that is down.
    pub(crate) handed: Option<SeqNumber>,
    /// The receiving kernel itself has acknowledged all bytes before this.
    pub(crate) acknowledged: Option<SeqNumber>,
    /// The sending kernel has received an ACK for all bytes before this.
    pub(crate) promised: Option<SeqNumber>,
    /// Bytes that were acknowledged to the sending kernel before they were handed to the receiving one.
    pub(crate) too_early: u32,
}

impl Account {
    /// Returns the bytes acknowledged to the sending kernel that the receiving kernel has not acknowledged.
    pub(crate) fn unconfirmed(&self) -> u32 {
        ahead(self.promised, self.acknowledged)
    }

    /// Returns the bytes acknowledged to the sending kernel since `before`.
    pub(crate) fn promised_since(&self, before: Self) -> u32 {
        ahead(self.promised, before.promised)
    }
}

/// Returns how far `one` is ahead of `other`; 0 if it is behind.
fn ahead(one: Option<SeqNumber>, other: Option<SeqNumber>) -> u32 {
    match (one, other) {
        (Some(one), Some(other)) if one.after(other) => one.0.wrapping_sub(other.0),
        _ => 0,
    }
}

fn later(one: Option<SeqNumber>, other: SeqNumber) -> Option<SeqNumber> {
    Some(one.map_or(other, |one| one.later(other)))
}

/// The accounts, by the sender's port.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<u16, Account>>>);

impl Ledger {
    fn accounts(&self) -> MutexGuard<'_, HashMap<u16, Account>> {
        self.0.lock().unwrap()
    }

    /// Returns the account of the connection from this port of the sender.
    pub(crate) fn account(&self, port: u16) -> Account {
        self.accounts().get(&port).copied().unwrap_or_default()
    }

    /// Returns the observer of the receiver's card.
    pub(crate) fn of_receiver(&self) -> Box<dyn Observer> {
        Box::new(OfReceiver(self.clone()))
    }

    /// Returns the observer of the sender's card.
    pub(crate) fn of_sender(&self) -> Box<dyn Observer> {
        Box::new(OfSender(self.clone()))
    }
}

struct OfReceiver(Ledger);

impl Observer for OfReceiver {
    fn received(&mut self, _: &[u8]) {}

    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) {
        let packet: Vec<u8> = parts.flatten().copied().collect();
        let Some(tcp) = tcp(&packet) else { return };
        let mut accounts = self.0.accounts();
        let account = accounts.entry(tcp.src_port()).or_default();
        if tcp.flags().contains(TcpFlags::SYN) {
            *account = Account { handed: Some(tcp.seq() + 1), ..Account::default() };
            return;
        }
        let end = tcp.seq() + tcp.payload().map_or(0, <[u8]>::len) as u32;
        if account.handed.is_some_and(|handed| !tcp.seq().after(handed)) {
            let fin = u32::from(tcp.flags().contains(TcpFlags::FIN));
            account.handed = later(account.handed, end + fin);
        }
    }

    fn transmitted(&mut self, packet: &[u8]) {
        let Some(tcp) = tcp(packet).filter(|tcp| tcp.flags().contains(TcpFlags::ACK)) else { return };
        let mut accounts = self.0.accounts();
        let account = accounts.entry(tcp.dst_port()).or_default();
        account.acknowledged = later(account.acknowledged, tcp.ack());
    }
}

struct OfSender(Ledger);

impl Observer for OfSender {
    fn received(&mut self, _: &[u8]) {}

    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) {
        let packet: Vec<u8> = parts.flatten().copied().collect();
        let Some(tcp) = tcp(&packet).filter(|tcp| tcp.flags().contains(TcpFlags::ACK)) else { return };
        let mut accounts = self.0.accounts();
        let account = accounts.entry(tcp.dst_port()).or_default();
        account.promised = later(account.promised, tcp.ack());
        account.too_early = account.too_early.max(ahead(account.promised, account.handed));
    }

    fn transmitted(&mut self, _: &[u8]) {}
}

fn tcp(packet: &[u8]) -> Option<TcpHeader<'_>> {
    let link = LinkHeader::new(packet)?;
    let segment = match link.ethertype() {
        EtherType::IPV4 => Ipv4Header::new(link.payload())?.payload()?,
        EtherType::IPV6 => Ipv6Header::new(link.payload())?.payload()?,
        _ => return None,
    };
    // In these tests only TCP has these ports.
    TcpHeader::new(segment).filter(|tcp| [tcp.src_port(), tcp.dst_port()].contains(&crate::hosts::PORT))
}
