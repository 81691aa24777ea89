//! A server with some registered memory, and packets for its card.

use std::net::Ipv4Addr;

use nichrome_rdma::star::*;
use nichrome_rdma::{Access, ByteMemory, Datagram, Instant, QpNumber, RKey};
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{
    Atomic, Capability, Epoch, Flags, GrantCode, Lease, Message, PacketCheck, PacketWriter, Registration,
    Repr, Rights, Span, Stamp,
};
use nichrome_wire::{AddressPair, SeqNumber, TrafficClass};

pub(crate) const BASE: u64 = 0x1_0000;
pub(crate) const EPOCH: Epoch = Epoch(0xC0FF_EE00);
/// The lease of the packets that tests build.
pub(crate) const LEASE: Lease = Lease(160);
/// Microseconds from [`NOW`] to the expiry of packets that tests build.
pub(crate) const LIFETIME: u32 = 4000;

/// The clock of the card at [`NOW`].
pub(crate) const CLOCK: u32 = 100_000_000;
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The time of the tests: 100 s after the server's start.
pub(crate) const NOW: Instant = Instant::from_nanos(100_000_000_000);

/// The key of 1000 bytes from [`BASE`] on that peers may read and write.
pub(crate) const SHARED: u32 = 0x0000_0111;
/// The key of the 1000 bytes after them, which only the server's own program may write.
pub(crate) const PRIVATE: u32 = 0x0000_0222;

pub(crate) fn secret() -> ServerSecret {
    ServerSecret::new([0x5E; 16])
}

pub(crate) fn connection(number: u32) -> QpNumber {
    QpNumber::new(number).unwrap()
}

pub(crate) fn regions() -> [Registration; 2] {
    let shared = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let region = |key, address, rights: Access| Registration {
        key: RKey(key),
        address,
        len: 1000,
        rights: rights.star_bits(),
        code: GrantCode(0),
    };
    [region(SHARED, BASE, shared), region(PRIVATE, BASE + 1000, Access::LOCAL_WRITE)]
}

/// The two ends of the connection of the packets that tests build.
pub(crate) fn ends() -> Ends {
    Ends { address: CLIENT.into(), client: connection(17), server: connection(33) }
}

/// Returns a span with the capability of the key's region; for other keys, a capability of all memory.
pub(crate) fn span(key: u32, address: u64) -> Span {
    let (base, len) = match key {
        SHARED => (BASE, 1000),
        PRIVATE => (BASE + 1000, 1000),
        _ => (0, u64::MAX),
    };
    let (rights, server) = (Rights::STORE | Rights::FETCH, connection(33));
    Span { address, key, capability: Capability { base, len, rights, server, lease: LEASE } }
}

pub(crate) fn to_server() -> UdpFlow {
    UdpFlow::to_star(AddressPair::V4 { src: CLIENT, dst: SERVER }, 0xC123)
}

pub(crate) struct Server {
    pub(crate) card: StatelessCard,
    pub(crate) memory: ByteMemory,
    pub(crate) table: MemoryTable,
    pub(crate) slots: ResultSlots,
    pub(crate) now: Instant,
}

/// A card's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) repr: Repr,
    pub(crate) payload: Vec<u8>,
    pub(crate) datagram: Vec<u8>,
}

impl Server {
    pub(crate) fn new(authentication: Option<CardAuthentication>) -> Self {
        let config = CardConfig { epoch: EPOCH, max_payload: 1024, hop_limit: 64, authentication };
        let mut memory = ByteMemory::new(BASE, 2000);
        for (at, byte) in memory.bytes_mut().iter_mut().enumerate() {
            *byte = at as u8;
        }
        let table = regions().into_iter().collect();
        let mut slots = ResultSlots::default();
        slots.open(connection(33));
        Self { card: StatelessCard::new(config), memory, table, slots, now: NOW }
    }

    /// Creates a server that accepts only authenticated packets.
    pub(crate) fn authenticating() -> Self {
        Self::new(Some(CardAuthentication { secret: secret() }))
    }

    pub(crate) fn respond(&mut self, flow: UdpFlow, traffic_class: u8, bytes: &[u8]) -> Option<Answered> {
        let mut buffer = vec![0xA5; 2000];
        let datagram = Datagram { flow, traffic_class: TrafficClass(traffic_class), bytes };
        let Self { card, memory, table, slots, now } = self;
        let answer = card.respond(&datagram, *now, table, (memory, slots), &mut buffer)?;
        buffer.truncate(answer.len);
        let (repr, payload, authentication) = Repr::parse(&buffer).unwrap();
        assert!(authentication.is_some() || PacketCheck::new(EPOCH).is_valid(&answer.route.flow, &buffer));
        let payload = payload.to_vec();
        Some(Answered { answer, repr, payload, datagram: buffer })
    }

    /// Returns the answer to a packet of the client.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> Option<Answered> {
        self.respond(to_server(), 0, bytes)
    }
}

/// A packet to be built, with all fields that tests forge.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) repr: Repr,
    pub(crate) payload: Vec<u8>,
    pub(crate) epoch: Epoch,
    pub(crate) flow: UdpFlow,
    pub(crate) tag: Tag,
}

/// The tag of an authenticated packet.
#[derive(Clone, Copy)]
pub(crate) enum Tag {
    /// The valid tag by this key and for this grant.
    Of(ConnectionKey, GrantCode),
    /// This value.
    Fixed(u64),
}

impl Packet {
    pub(crate) fn new(message: Message, payload: &[u8]) -> Self {
        let (sequence, stamp) = (SeqNumber(5), Stamp(CLOCK + LIFETIME));
        let repr = Repr { flags: Flags::NONE, connection: connection(17), sequence, stamp, message };
        let (payload, flow) = (payload.to_vec(), to_server());
        Self { repr, payload, epoch: EPOCH, flow, tag: Tag::Fixed(0) }
    }

    pub(crate) fn rdp(key: u32, address: u64, payload: &[u8]) -> Self {
        Self::new(Message::Rdp(span(key, address)), payload)
    }

    pub(crate) fn gd(key: u32, address: u64, len: u16) -> Self {
        Self::new(Message::Gd(span(key, address), len), &[])
    }

    /// Returns an AOP whose capability grants the atomic right.
    pub(crate) fn aop(key: u32, address: u64, atomic: Atomic) -> Self {
        let packet = Self::new(Message::Aop(span(key, address), atomic), &[]);
        packet.changed(|capability| capability.rights = capability.rights | Rights::ATOMIC)
    }

    pub(crate) fn tag(mut self, tag: Tag) -> Self {
        self.tag = tag;
        self
    }

    pub(crate) fn flags(mut self, flags: Flags) -> Self {
        self.repr.flags = flags;
        self
    }

    /// Changes the capability.
    pub(crate) fn changed(mut self, change: impl FnOnce(&mut Capability)) -> Self {
        if let Some(span) = self.repr.message.span_mut() {
            change(&mut span.capability);
        }
        self
    }

    /// Makes the capability that of an element.
    pub(crate) fn of_element(self) -> Self {
        self.changed(|capability| capability.rights = capability.rights | Rights::ELEMENT)
    }

    /// Authenticates the packet by the lease of its connection, as if the server had granted its capability.
    pub(crate) fn authenticated(mut self) -> Self {
        self.repr.flags = self.repr.flags | Flags::AUTHENTICATED;
        let Some(span) = self.repr.message.span() else { return self };
        let Capability { base, len, rights, server, lease } = span.capability;
        let ends = Ends { address: self.flow.addresses.src(), client: self.repr.connection, server };
        let code = secret().grant_code(&ends, span.key, (base, len), rights);
        self.tag = Tag::Of(secret().lease_key(&ends, lease), code);
        self
    }

    pub(crate) fn built(&self) -> Vec<u8> {
        let mut datagram = vec![0; self.repr.datagram_len(self.payload.len())];
        let mut writer = PacketWriter::new(&self.repr, self.payload.len(), &mut datagram).unwrap();
        writer.payload().copy_from_slice(&self.payload);
        if !self.repr.flags.contains(Flags::AUTHENTICATED) {
            writer.finish(&self.flow, PacketCheck::new(self.epoch));
            return datagram;
        }
        writer.finish_authenticated(&self.flow, |addresses, covered| match self.tag {
            Tag::Of(key, code) => key.tag(code, addresses, covered),
            Tag::Fixed(tag) => tag,
        });
        datagram
    }
}
