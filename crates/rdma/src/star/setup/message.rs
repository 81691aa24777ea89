//! Encoding and decoding of set-up messages.

use std::net::{IpAddr, Ipv6Addr};

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::{PathMtu, QpNumber, RKey};
use nichrome_wire::star::{Epoch, GrantCode, Lease, Registration, Stamp};

use super::terms::{
    Admission, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, SetupError, Timers,
    VERSION, Wish,
};
use crate::core::access::Access;
use crate::star::tag::ConnectionKey;

/// The first bytes of every message.
const MAGIC: [u8; 4] = *b"StaR";

const HEADER_LEN: usize = 12;
const OFFER_LEN: usize = 44;
const ADMISSION_LEN: usize = 52;
const REGION_LEN: usize = 32;
const REFUSAL_LEN: usize = 4;

/// Flags of an offer.
const HAS_ROOM: u8 = 1;
const SHARES_RECEIVES: u8 = 2;
const NAMES_PEER: u8 = 4;

/// A message of set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SetupMessage {
    Offer(Offer),
    Admission(Admission),
    Ready,
    Refusal(Refusal),
}

/// Removes the first message from `input`; `None` if it is incomplete.
pub(super) fn read(input: &mut Vec<u8>) -> Result<Option<SetupMessage>, SetupError> {
    let known = input.len().min(MAGIC.len());
    if input[..known] != MAGIC[..known] {
        return Err(SetupError::Garbage);
    }
    if let Some(version) = input.get(4).filter(|version| **version != VERSION) {
        return Err(SetupError::Version(*version));
    }
    let Some(header) = input.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let kind = header[5];
    let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let possible = match kind {
        1 => len == OFFER_LEN,
        2 => {
            let regions = len.checked_sub(ADMISSION_LEN);
            regions.is_some_and(|regions| {
                regions.is_multiple_of(REGION_LEN) && regions / REGION_LEN <= MAX_REGIONS
            })
        }
        3 => len == 0,
        4 => len == REFUSAL_LEN,
        _ => false,
    };
    if !possible {
        return Err(SetupError::Garbage);
    }
    if input.len() < HEADER_LEN + len {
        return Ok(None);
    }
    let mut reader = Reader(&input[HEADER_LEN..HEADER_LEN + len]);
    let message = match kind {
        1 => reader.offer().map(SetupMessage::Offer),
        2 => reader.admission().map(SetupMessage::Admission),
        3 => Some(SetupMessage::Ready),
        _ => reader.refusal().map(SetupMessage::Refusal),
    };
    input.drain(..HEADER_LEN + len);
    message.map(Some).ok_or(SetupError::Garbage)
}

/// Appends a message to `output`.
pub(super) fn write(message: &SetupMessage, output: &mut Vec<u8>) {
    let (kind, len) = match message {
        SetupMessage::Offer(_) => (1, OFFER_LEN),
        SetupMessage::Admission(admission) => (2, ADMISSION_LEN + admission.regions.len() * REGION_LEN),
        SetupMessage::Ready => (3, 0),
        SetupMessage::Refusal(_) => (4, REFUSAL_LEN),
    };
    output.extend(MAGIC);
    output.extend([VERSION, kind, 0, 0]);
    output.extend((len as u32).to_be_bytes());
    match message {
        SetupMessage::Offer(offer) => write_offer(offer, output),
        SetupMessage::Admission(admission) => write_admission(admission, output),
        SetupMessage::Ready => {}
        SetupMessage::Refusal(refusal) => output.extend([*refusal as u8, 0, 0, 0]),
    }
}

fn write_offer(offer: &Offer, output: &mut Vec<u8>) {
    let room = if offer.room == Room::Free { HAS_ROOM } else { 0 };
    let shares = if offer.receives == Receives::Shared { SHARES_RECEIVES } else { 0 };
    let names = if offer.peer_connection.is_some() { NAMES_PEER } else { 0 };
    let mtu = PathMtu::ALL.into_iter().position(|mtu| mtu == offer.path_mtu).unwrap_or_default() as u8;
    let address = match offer.address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    output.extend([offer.wish as u8, room | shares | names, mtu, offer.access.star_bits()]);
    output.extend(offer.connection.value().to_be_bytes());
    output.extend(offer.peer_connection.unwrap_or_default().value().to_be_bytes());
    output.extend(offer.first_element.0.to_be_bytes());
    output.extend(address.octets());
    output.extend(offer.depth.sends.to_be_bytes());
    output.extend(offer.depth.receives.to_be_bytes());
    let Timers { timeout, retry_count, rnr_retry, min_rnr_timer } = offer.timers;
    output.extend([timeout, retry_count, rnr_retry, min_rnr_timer]);
}

fn write_admission(admission: &Admission, output: &mut Vec<u8>) {
    let (flag, key, lease, lease_key) = match admission.credentials {
        Some(Credentials { key, lease: (lease, lease_key) }) => (1, key.bytes(), lease, lease_key.bytes()),
        None => (0, [0; 16], Lease::default(), [0; 16]),
    };
    output.extend(admission.epoch.0.to_be_bytes());
    output.extend(admission.clock.0.to_be_bytes());
    output.extend([flag, 0, 0, 0]);
    output.extend(key);
    output.extend(lease.0.to_be_bytes());
    output.extend(lease_key);
    output.extend((admission.regions.len() as u32).to_be_bytes());
    for region in &admission.regions {
        output.extend(region.key.0.to_be_bytes());
        output.extend([region.rights, 0, 0, 0]);
        output.extend(region.address.to_be_bytes());
        output.extend(region.len.to_be_bytes());
        output.extend(region.code.0.to_be_bytes());
    }
}

/// The unread rest of a message's body.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn be32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn be64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    fn offer(&mut self) -> Option<Offer> {
        let [wish, flags, mtu, access] = self.bytes()?;
        if flags & !(HAS_ROOM | SHARES_RECEIVES | NAMES_PEER) != 0 {
            return None;
        }
        let connection = QpNumber::new(self.be32()?)?;
        let peer_connection = QpNumber::new(self.be32()?)?;
        let first_element = SeqNumber(self.be32()?);
        let address = Ipv6Addr::from(self.bytes::<16>()?).to_canonical();
        let depth = QueueDepth { sends: self.be32()?, receives: self.be32()? };
        let [timeout, retry_count, rnr_retry, min_rnr_timer] = self.bytes()?;
        let timers = Timers { timeout, retry_count, rnr_retry, min_rnr_timer };
        Some(Offer {
            wish: Wish::new(wish)?,
            room: if flags & HAS_ROOM == 0 { Room::Full } else { Room::Free },
            receives: if flags & SHARES_RECEIVES == 0 { Receives::Own } else { Receives::Shared },
            connection,
            peer_connection: (flags & NAMES_PEER != 0).then_some(peer_connection),
            address,
            path_mtu: *PathMtu::ALL.get(usize::from(mtu))?,
            access: Access::from_bits(access.into())?,
            first_element,
            depth,
            timers: timers.checked()?,
        })
    }

    fn admission(&mut self) -> Option<Admission> {
        let (epoch, clock) = (Epoch(self.be32()?), Stamp(self.be32()?));
        let [flag, ..] = self.bytes::<4>()?;
        let key = ConnectionKey::new(self.bytes()?);
        let lease = (Lease(self.be32()?), ConnectionKey::new(self.bytes()?));
        let credentials = match flag {
            0 => None,
            1 => Some(Credentials { key, lease }),
            _ => return None,
        };
        let count = self.be32()? as usize;
        if count != self.0.len() / REGION_LEN {
            return None;
        }
        let regions = (0..count).map(|_| self.region()).collect::<Option<_>>()?;
        Some(Admission { epoch, clock, credentials, regions })
    }

    fn region(&mut self) -> Option<Registration> {
        let key = RKey(self.be32()?);
        let [rights, ..] = self.bytes::<4>()?;
        let (address, len, code) = (self.be64()?, self.be64()?, GrantCode(self.be64()?));
        Some(Registration { key, rights, address, len, code })
    }

    fn refusal(&mut self) -> Option<Refusal> {
        let [code, ..] = self.bytes::<4>()?;
        Refusal::new(code)
    }
}
