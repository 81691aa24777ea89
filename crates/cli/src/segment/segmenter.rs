//! Decides which records are super-packets, and segments them.

use std::num::NonZeroU16;

use nichrome_port::capture::{LinkType, Record};
use nichrome_tso::{Limit, SegmentError, Segments};
use nichrome_wire::{EtherType, EthernetHeader, LinkHeader};

use crate::capture_files::{Capture, Merged, application};

/// Default MTU, in bytes.
const MTU: u16 = 1500;

/// Length of Ethernet's frame check sequence, which some captures have, in bytes.
const FCS_LEN: usize = 4;

/// Returns the maximum length of a link header, with two VLAN tags, in bytes.
const fn most_link_len(link_type: LinkType) -> u32 {
    match link_type {
        LinkType::LinuxCookedV2 => 28,
        LinkType::LinuxCooked => 24,
        LinkType::Ethernet | LinkType::RawIp | LinkType::Null | LinkType::Loop => 22,
    }
}

/// Classifies the records of a capture.
pub(super) struct Segmenter {
    /// The user's limit.
    limit: Option<Limit>,
    /// Buffer for a packet behind an Ethernet header, for captures with another link type.
    frame: Vec<u8>,
}

/// The class of a record.
pub(super) enum Found<'a> {
    /// A packet that fits, or that `nichrome coalesce` did not merge.
    Packet,
    /// A super-packet that cannot be segmented, with the reason.
    Unsegmentable(&'static str),
    SuperPacket {
        segments: Box<Segments<'a>>,
        /// The original link header, which replaces the first `skipped` bytes of each segment.
        header: &'a [u8],
        skipped: usize,
        /// The comments of the first segment.
        comment: Option<&'a str>,
    },
}

impl Segmenter {
    pub(super) fn new(mtu: Option<u16>, mss: Option<NonZeroU16>) -> Self {
        let limit = mss.map(Limit::Payload).or(mtu.map(Limit::Packet));
        Self { limit, frame: Vec::new() }
    }

    pub(super) fn classify<'a>(
        &'a mut self,
        record: &Record,
        bytes: &'a [u8],
        capture: &'a Capture,
    ) -> Found<'a> {
        let comment = capture.comment();
        let (merged, comment) = match comment.and_then(Merged::parse) {
            Some((merged, rest)) => (Some(merged), rest),
            None => (None, comment),
        };
        let of_merged = merged.and_then(|merged| NonZeroU16::new(merged.mss)).map(Limit::Payload);
        let Some(limit) = of_merged.or_else(|| self.limit_of_others(capture.application())) else {
            return Found::Packet;
        };
        // Most packets fit and need no parsing.
        let most = u32::from(match limit {
            Limit::Packet(mtu) => mtu,
            Limit::Payload(mss) => mss.get(),
        });
        if record.original_len <= most {
            return Found::Packet;
        }
        if record.original_len as usize > bytes.len() {
            return self.classify_part(record, bytes, merged, limit);
        }
        let (header, frame, skipped) = match record.link_type {
            LinkType::Ethernet if lacks_length(bytes) => {
                self.frame.clear();
                self.frame.extend_from_slice(bytes);
                add_length(&mut self.frame);
                (&[][..], &self.frame[..], 0)
            }
            LinkType::Ethernet => (&[][..], bytes, 0),
            other => {
                let header = put_behind_ethernet(&mut self.frame, other, bytes);
                if lacks_length(&self.frame) {
                    add_length(&mut self.frame);
                }
                (header, &self.frame[..], EthernetHeader::LEN)
            }
        };
        let mut segments = match self.smallest(frame, merged, limit) {
            Ok(segments) if segments.remaining() > 1 => Box::new(segments),
            Ok(_) => return Found::Packet,
            Err(error) if fits(record, &error, limit) => return Found::Packet,
            Err(error) => return Found::Unsegmentable(reason(&error)),
        };
        if merged.is_some_and(|merged| merged.has_fixed_identification) {
            segments.fix_identification();
        }
        if merged.is_some_and(|merged| merged.has_fixed_tunnel_identification) {
            segments.fix_tunnel_identification();
        }
        if merged.is_some_and(|merged| merged.has_accurate_ecn) {
            segments.repeat_cwr();
        }
        Found::SuperPacket { segments, header, skipped, comment }
    }

    /// Classifies a record that the capture's snap length cut: by its headers, with zeros for the missing
    /// bytes. Headers of a packet that is shorter than the record, by more than an FCS, do not show that the
    /// record is a plain packet.
    fn classify_part<'a>(
        &mut self,
        record: &Record,
        bytes: &[u8],
        merged: Option<Merged<'_>>,
        limit: Limit,
    ) -> Found<'a> {
        match record.link_type {
            LinkType::Ethernet => {
                self.frame.clear();
                self.frame.extend_from_slice(bytes);
            }
            other => _ = put_behind_ethernet(&mut self.frame, other, bytes),
        }
        let missing = (record.original_len as usize - bytes.len()).min(usize::from(u16::MAX));
        self.frame.resize(self.frame.len() + missing, 0);
        let is_packet = match self.smallest(&self.frame, merged, limit) {
            Ok(segments) => {
                segments.remaining() == 1 && segments.bytes_remaining() + FCS_LEN >= self.frame.len()
            }
            Err(error) => fits(record, &error, limit),
        };
        if is_packet { Found::Packet } else { Found::Unsegmentable("cut short by the capture") }
    }

    /// Segments a frame within `limit`, or within the user's limit if that is smaller.
    fn smallest<'a>(
        &self,
        frame: &'a [u8],
        merged: Option<Merged<'_>>,
        limit: Limit,
    ) -> Result<Segments<'a>, SegmentError> {
        // `nichrome coalesce` merges datagrams of VXLAN and Geneve like any others.
        let within = |limit| match merged {
            Some(_) => Segments::within(frame, limit),
            None => Segments::within_any_tunnel(frame, limit),
        };
        let segments = within(limit)?;
        match self.limit.filter(|own| *own != limit) {
            Some(own) => within(own)
                .map(|smaller| if smaller.packet_len() < segments.packet_len() { smaller } else { segments }),
            None => Ok(segments),
        }
    }

    /// Returns the limit for packets without an aggregate's comment; `None` if they stay as they are, because
    /// `nichrome coalesce` received them with this length.
    fn limit_of_others(&self, application: Option<&str>) -> Option<Limit> {
        let is_coalesced = application.is_some_and(application::is_coalesce);
        self.limit.or((!is_coalesced).then_some(Limit::Packet(MTU)))
    }
}

/// Returns true if a record that cannot be segmented is short enough not to be a super-packet.
fn fits(record: &Record, error: &SegmentError, limit: Limit) -> bool {
    record.original_len <= most_without(error, limit) + most_link_len(record.link_type)
}

/// Returns the maximum length at which a packet that cannot be segmented is no super-packet, in bytes without
/// its link header. A limit of payload does not apply to packets of other protocols, nor to fragments.
fn most_without(error: &SegmentError, limit: Limit) -> u32 {
    u32::from(match (limit, error) {
        (Limit::Packet(mtu), _) => mtu,
        (_, SegmentError::NotIp(_) | SegmentError::OtherProtocol(_) | SegmentError::Fragment) => MTU,
        (Limit::Payload(mss), _) => mss.get(),
    })
}

/// Writes to `frame` an Ethernet header and the packet of a record of another link type. Returns the record's
/// own link header, which the Ethernet header replaces.
fn put_behind_ethernet<'a>(frame: &mut Vec<u8>, link_type: LinkType, bytes: &'a [u8]) -> &'a [u8] {
    let (ethernet, len) = match link_type.cooked(bytes) {
        Some(cooked) => (cooked.to_ethernet(), cooked.header_len()),
        None => {
            let len = link_type.header_len(bytes);
            let is_v6 = bytes.get(len).is_some_and(|first| first >> 4 == 6);
            let EtherType(ethertype) = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let mut ethernet = [0; EthernetHeader::LEN];
            ethernet[12..].copy_from_slice(&ethertype.to_be_bytes());
            (ethernet, len)
        }
    };
    let (header, packet) = bytes.split_at(len);
    frame.clear();
    frame.extend_from_slice(&ethernet);
    frame.extend_from_slice(packet);
    header
}

/// Returns true for an IPv4 packet longer than the usual MTU with the total length 0: a card would have set
/// the length of each segment, as in captures of senders on Windows.
fn lacks_length(frame: &[u8]) -> bool {
    ipv4_packet(frame)
        .is_some_and(|at| frame.len() - at > usize::from(MTU) && frame.get(at + 2..at + 4) == Some(&[0, 0]))
}

/// Sets the total length of an IPv4 packet to the captured length, unless that exceeds 65,535 bytes.
fn add_length(frame: &mut [u8]) {
    if let Some(at) = ipv4_packet(frame)
        && let Ok(len) = u16::try_from(frame.len() - at)
    {
        frame[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// Returns the offset of a frame's IPv4 packet.
fn ipv4_packet(frame: &[u8]) -> Option<usize> {
    let link = LinkHeader::new(frame)?;
    (link.ethertype() == EtherType::IPV4).then(|| link.header_len())
}

/// Returns a short reason why a super-packet is not segmented.
fn reason(error: &SegmentError) -> &'static str {
    match error {
        SegmentError::Fragment => "IP fragments",
        SegmentError::NotIp(_) | SegmentError::OtherProtocol(_) => "neither TCP nor UDP",
        SegmentError::NoRoom { .. } => "headers longer than the MTU",
        _ => "broken or unusual headers",
    }
}
