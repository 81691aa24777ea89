//! The security module of a card's egress (section 3.2 of the paper): what of StaR may leave this host.
//!
//! A stateless card does what a packet says, so its clients' cards see to it that packets say only what is allowed. The
//! module knows nothing at first and lets nothing through. Its entries come from servers alone: one with each
//! [`Admission`] at set-up, changed by the server's elements, removed with the connection.
//!
//! | packet | leaves |
//! |---|---|
//! | RDP, GD | where the connection has an entry for this destination, with a region whose rights and bounds allow it |
//! | CQEP, EA to a server | where some connection has an entry for this destination |
//! | WQEP, EA to a client, RA, SDP | where this host has taken the stateless role for any connection |

use std::collections::HashMap;
use std::net::IpAddr;

use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{Element, Flags, Message, Reason, Repr, Span};

use super::memory_table::{KeyKind, MemoryTable, Reach, RegisteredMemory};
use super::setup::Admission;
use crate::core::access::Access;

/// Why a packet may not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// The bytes are no StaR packet.
    Malformed,
    /// This host has no such role: the connection has no entry, or the host serves nobody.
    Role,
    /// The connection's server is another.
    Destination,
    /// The memory may not be reached so.
    Memory(Reason),
}

/// What has left, and what has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Packets that left.
    pub passed: u64,
    /// Blocked: no StaR packets.
    pub blocked_malformed: u64,
    /// Blocked: no entry.
    pub blocked_role: u64,
    /// Blocked: to another than the connection's server.
    pub blocked_destination: u64,
    /// Blocked: key, right or bounds.
    pub blocked_memory: u64,
}

/// What one connection may do.
struct Entry {
    server: IpAddr,
    /// The connection's remote rights: those of the server's queue pair.
    access: Access,
    memory: MemoryTable,
}

/// The security module.
#[derive(Default)]
pub struct EgressModule {
    entries: HashMap<QpNumber, Entry>,
    /// Entries for each server.
    servers: HashMap<IpAddr, usize>,
    /// Whether this host is the stateless side of a connection: one bit, not one entry for each.
    serves: bool,
    counters: EgressCounters,
}

impl EgressModule {
    /// The server at this address has admitted the client's `connection`, whose queue pair there gives `access`.
    pub fn admit(&mut self, connection: QpNumber, server: IpAddr, access: Access, admission: &Admission) {
        self.remove(connection);
        let memory = admission.regions.iter().copied().collect();
        self.entries.insert(connection, Entry { server, access, memory });
        *self.servers.entry(server).or_default() += 1;
    }

    /// The connection's server has sent this element; one from another address changes nothing.
    pub fn apply(&mut self, connection: QpNumber, from: IpAddr, element: &Element) {
        let Some(entry) = self.entries.get_mut(&connection).filter(|entry| entry.server == from) else {
            return;
        };
        match element {
            Element::Register(region) => entry.memory.register(*region),
            Element::Deregister(key) => entry.memory.deregister(*key),
            Element::Close(_) => self.remove(connection),
            Element::Work(_) => {}
        }
    }

    /// The connection is closed on this side.
    pub fn remove(&mut self, connection: QpNumber) {
        let Some(entry) = self.entries.remove(&connection) else { return };
        if let Some(count) = self.servers.get_mut(&entry.server) {
            *count -= 1;
            if *count == 0 {
                self.servers.remove(&entry.server);
            }
        }
    }

    /// The local driver has taken the stateless role, for its first connection.
    pub fn serve(&mut self) {
        self.serves = true;
    }

    /// Connections that have an entry.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no connection has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What it has let through and blocked.
    pub const fn counters(&self) -> &EgressCounters {
        &self.counters
    }

    /// Whether a datagram may leave, whoever has built it.
    ///
    /// # Errors
    /// Why not; it is counted.
    #[inline]
    pub fn check(&mut self, flow: &UdpFlow, datagram: &[u8]) -> Result<(), Blocked> {
        let verdict = match Repr::parse(datagram) {
            Ok((repr, payload, _)) => self.judge(flow, &repr, payload.len()),
            Err(_) => Err(Blocked::Malformed),
        };
        let counter = match verdict {
            Ok(()) => &mut self.counters.passed,
            Err(Blocked::Malformed) => &mut self.counters.blocked_malformed,
            Err(Blocked::Role) => &mut self.counters.blocked_role,
            Err(Blocked::Destination) => &mut self.counters.blocked_destination,
            Err(Blocked::Memory(_)) => &mut self.counters.blocked_memory,
        };
        *counter += 1;
        verdict
    }

    #[inline]
    fn judge(&self, flow: &UdpFlow, repr: &Repr, payload_len: usize) -> Result<(), Blocked> {
        let key = if repr.flags.contains(Flags::LOCAL_KEY) { KeyKind::Local } else { KeyKind::Remote };
        let to = flow.addresses.dst();
        match repr.message {
            Message::Rdp(span) => {
                let len = u16::try_from(payload_len).map_err(|_| Blocked::Malformed)?;
                self.judge_reach(repr.connection, to, span, len, key, Reach::storing(key))
            }
            Message::Gd(span, len) => {
                self.judge_reach(repr.connection, to, span, len, key, Reach::fetching(key))
            }
            _ if repr.flags.contains(Flags::TO_SERVER) => {
                if self.servers.contains_key(&to) {
                    Ok(())
                } else {
                    Err(Blocked::Destination)
                }
            }
            Message::Wqep(_) | Message::Ea | Message::Ra(_) | Message::Sdp(_) if self.serves => Ok(()),
            _ => Err(Blocked::Role),
        }
    }

    #[inline]
    fn judge_reach(
        &self,
        connection: QpNumber,
        to: IpAddr,
        span: Span,
        len: u16,
        key: KeyKind,
        right: Access,
    ) -> Result<(), Blocked> {
        let entry = self.entries.get(&connection).ok_or(Blocked::Role)?;
        if entry.server != to {
            return Err(Blocked::Destination);
        }
        if key == KeyKind::Remote && !entry.access.contains(right) {
            return Err(Blocked::Memory(Reason::Right));
        }
        let reach = Reach { span, len, right, domain: None };
        entry.memory.resolve(&reach).map(|_| ()).map_err(Blocked::Memory)
    }
}
