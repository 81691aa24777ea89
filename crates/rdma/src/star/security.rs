//! The egress module: checks StaR packets before they leave (section 3.2 of the paper, "Security mechanism").
//!
//! A stateless card executes any valid packet, so its clients' cards block packets that the server has not
//! allowed. The module is empty at first and blocks everything. Servers alone make its entries: each
//! [`Admission`] at set-up adds one, the server's elements change it, and the end of the connection removes
//! it.
//!
//! | packet | leaves if |
//! |---|---|
//! | RDP, GD, AOP | its connection has an entry for the destination; by a remote key, with a region whose rights and bounds allow the access; by the key of an element, within a capability |
//! | a retransmitted AOP | the same, with the region that allowed it before, even if that was deregistered since: the card answers with the kept result |
//! | CQEP, EA to a server | some connection has an entry for the destination |
//! | WQEP, EA to a client, RA, SDP | this host has taken the stateless role for any connection |

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{Atomic, Element, Flags, Message, Reason, Registration, Repr, Rights, Span};

use super::memory_table::{MemoryTable, Reach, region_allows};
use super::setup::Admission;
use crate::core::access::Access;
use crate::core::qp_map::QpMap;

/// The reason for blocking a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// Not a StaR packet.
    Malformed,
    /// The connection has no entry, or the host has no stateless connection.
    Role,
    /// The connection has another server.
    Destination,
    /// The server's memory table does not allow the access.
    Memory(Reason),
}

/// Packets that passed and that were blocked, and regions that were ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Packets that passed.
    pub passed: u64,
    /// [`Blocked::Malformed`].
    pub blocked_malformed: u64,
    /// [`Blocked::Role`].
    pub blocked_role: u64,
    /// [`Blocked::Destination`].
    pub blocked_destination: u64,
    /// [`Blocked::Memory`].
    pub blocked_memory: u64,
    /// Regions beyond [`MAX_TABLE_REGIONS`](super::MAX_TABLE_REGIONS) of a server, which its client cannot
    /// reach.
    pub ignored_regions: u64,
}

/// The rights of one connection.
struct Entry {
    server: IpAddr,
    /// The remote rights of the server's queue pair.
    access: Access,
    memory: MemoryTable,
    /// Only EAs and CQEPs may leave.
    is_closed: bool,
}

/// The security module.
#[derive(Default)]
pub struct EgressModule {
    entries: QpMap<Entry>,
    /// The last AOP of each connection that has sent one: its ticket, and the region that allowed it.
    atomics: QpMap<(u32, Registration)>,
    /// Entries for each server.
    servers: HashMap<IpAddr, usize>,
    /// Whether this host is the stateless side of any connection.
    serves: bool,
    counters: EgressCounters,
}

impl fmt::Debug for EgressModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressModule")
            .field("serves", &self.serves)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl EgressModule {
    /// Adds the entry of a connection that a server has admitted with the rights `access`.
    pub fn admit(&mut self, connection: QpNumber, server: IpAddr, access: Access, admission: &Admission) {
        self.remove(connection);
        let memory = admission.regions.iter().copied().collect();
        self.entries.insert(connection, Entry { server, access, memory, is_closed: false });
        *self.servers.entry(server).or_default() += 1;
    }

    /// Applies an element to the connection's entry; ignores it if `from` is not the connection's server.
    pub fn apply(&mut self, connection: QpNumber, from: IpAddr, element: &Element) {
        let Some(entry) = self.entries.get_mut(&connection).filter(|entry| entry.server == from) else {
            return;
        };
        match element {
            Element::Register(region) => {
                self.counters.ignored_regions += u64::from(!entry.memory.register(*region));
            }
            Element::Deregister(key) => entry.memory.deregister(*key),
            Element::Rights(rights) => {
                entry.access = Access::from_bits((*rights).into()).unwrap_or(Access::NONE);
            }
            Element::Close(_) => (entry.is_closed, entry.memory) = (true, MemoryTable::default()),
            Element::Work(_) | Element::Lease(_) => {}
        }
    }

    /// Returns the region of a connection's server with this key.
    pub fn region(&self, connection: QpNumber, key: u32) -> Option<&Registration> {
        self.entries.get(&connection)?.memory.region(key)
    }

    /// Returns the region that an RDP, GD or AOP names; for a retransmitted AOP, even if the region was
    /// deregistered since.
    pub(super) fn region_of(&self, connection: QpNumber, message: &Message) -> Option<&Registration> {
        let key = message.span()?.key;
        self.region(connection, key).or_else(|| {
            let Message::Aop(_, Atomic { ticket, .. }) = message else { return None };
            let (last, region) = self.atomics.get(&connection)?;
            (last == ticket && region.key.0 == key).then_some(region)
        })
    }

    /// Removes the entry of a connection.
    pub fn remove(&mut self, connection: QpNumber) {
        self.atomics.remove(&connection);
        let Some(entry) = self.entries.remove(&connection) else { return };
        if let Some(count) = self.servers.get_mut(&entry.server) {
            *count -= 1;
            if *count == 0 {
                self.servers.remove(&entry.server);
            }
        }
    }

    /// Allows the packets of the stateless role.
    pub fn serve(&mut self) {
        self.serves = true;
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no connection has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the counters of packets that passed or were blocked, and of ignored regions.
    pub const fn counters(&self) -> &EgressCounters {
        &self.counters
    }

    /// Checks a datagram before it leaves, and counts it.
    ///
    /// # Errors
    /// The reason for blocking it.
    #[inline]
    pub fn check(&mut self, flow: &UdpFlow, datagram: &[u8]) -> Result<(), Blocked> {
        match Repr::parse(datagram) {
            Ok((repr, payload, _)) => self.check_headers(flow, &repr, payload.len()),
            Err(_) => self.count(Err(Blocked::Malformed)),
        }
    }

    /// Checks a packet of these headers before it is built, and counts it.
    ///
    /// # Errors
    /// The reason for blocking it.
    #[inline]
    pub fn check_headers(&mut self, flow: &UdpFlow, repr: &Repr, payload_len: usize) -> Result<(), Blocked> {
        let verdict = self.check_packet(flow, repr, payload_len);
        if let (Ok(()), Message::Aop(_, Atomic { ticket, .. })) = (verdict, repr.message)
            && let Some(region) = self.region_of(repr.connection, &repr.message).copied()
        {
            self.atomics.insert(repr.connection, (ticket, region));
        }
        self.count(verdict)
    }

    #[inline]
    fn count(&mut self, verdict: Result<(), Blocked>) -> Result<(), Blocked> {
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
    fn check_packet(&self, flow: &UdpFlow, repr: &Repr, payload_len: usize) -> Result<(), Blocked> {
        let to = flow.addresses.dst();
        match repr.message {
            Message::Rdp(span) => {
                let len = u16::try_from(payload_len).map_err(|_| Blocked::Malformed)?;
                self.check_span(repr, to, span, len, Rights::STORE)
            }
            Message::Gd(span, len) => self.check_span(repr, to, span, len, Rights::FETCH),
            Message::Aop(span, _) => self.check_span(repr, to, span, Atomic::WORD, Rights::ATOMIC),
            Message::Cqep(_) | Message::Ea if is_to_server(repr) => {
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
    fn check_span(
        &self,
        repr: &Repr,
        to: IpAddr,
        span: Span,
        len: u16,
        right: Rights,
    ) -> Result<(), Blocked> {
        let entry = self.entries.get(&repr.connection).filter(|entry| !entry.is_closed);
        let entry = entry.ok_or(Blocked::Role)?;
        if entry.server != to {
            return Err(Blocked::Destination);
        }
        if span.capability.rights.contains(Rights::ELEMENT) {
            return Reach::new(span, len, right).map(|_| ()).map_err(Blocked::Memory);
        }
        let region = self.region_of(repr.connection, &repr.message).ok_or(Blocked::Memory(Reason::Key))?;
        let reach = Reach::new(span, len, right).map_err(Blocked::Memory)?;
        if !entry.access.contains(reach.right) {
            return Err(Blocked::Memory(Reason::Right));
        }
        region_allows(region, &reach).map_err(Blocked::Memory)
    }
}

/// Returns true if a packet with these headers is for the server's driver.
#[inline]
fn is_to_server(repr: &Repr) -> bool {
    matches!(repr.message, Message::Cqep(_)) || repr.flags.contains(Flags::TO_SERVER)
}
