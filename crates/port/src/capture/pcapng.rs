//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks. Skips blocks and options that do not
//! affect a packet's bytes, length, timestamp, interface, comments, flags or drop count, except the names of
//! interfaces and of the program that wrote the section.

use super::block::{self, Block, OwnedOptions};
use super::clock::{Clock, Tick};
use super::source::{ByteOrder, Source};
use super::{LinkType, MAX_INTERFACES, MAX_RECORD, PacketOptions, ReadError, Record};
use nichrome_wire::Instant;
use std::collections::BTreeMap;
use std::io::Read;

/// The first four bytes of a file: the type of the Section Header Block, a palindrome.
pub(super) const MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// The maximum length of an interface's name, in bytes; longer ones are ignored. Bounds memory, as
/// [`MAX_INTERFACES`] does.
const MAX_NAME: u16 = 255;

/// The state of the current section.
#[derive(Debug)]
pub(super) struct PcapNg {
    order: ByteOrder,
    /// Name of the program that wrote the section; empty if unknown.
    application: String,
    interfaces: Vec<Interface>,
    /// Names of the interfaces; empty if unknown.
    names: Vec<Box<str>>,
    /// The interface of the last record, within the section.
    last_interface: usize,
    /// Interfaces of earlier sections.
    earlier_interfaces: u32,
    /// The timestamp of the last record, for blocks without one.
    last_time: Instant,
    /// The options of the last record.
    options: OwnedOptions,
    /// Packets of interfaces whose link type is not supported, by its code.
    skipped: BTreeMap<u16, u64>,
    /// The link type code of the first skipped packet.
    first_skipped: Option<u16>,
    /// True if an interface of any section has a supported link type.
    has_supported: bool,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_code: u16,
    /// The maximum captured length; 0 for no limit.
    snap_len: u32,
    clock: Clock,
}

impl PcapNg {
    /// Reads the rest of the first Section Header Block, after its type.
    pub(super) fn start<R: Read>(source: &mut Source<R>) -> Result<Self, ReadError> {
        let mut this = Self {
            order: ByteOrder::Little,
            application: String::new(),
            interfaces: Vec::new(),
            names: Vec::new(),
            last_interface: 0,
            earlier_interfaces: 0,
            last_time: Instant::ZERO,
            options: OwnedOptions::default(),
            skipped: BTreeMap::new(),
            first_skipped: None,
            has_supported: false,
        };
        let mut length = [0; 4];
        source.fill(&mut length)?;
        this.section_header(source, length)?;
        Ok(this)
    }

    /// Reads blocks up to and including the next packet of an interface with a supported link type; `None` at
    /// the end of the file. A file in which no interface has one fails at its end.
    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let record = self.next_supported(source, data);
        if matches!(record, Ok(None) | Err(ReadError::Truncated { .. }))
            && !self.has_supported
            && let Some(code) = self.first_skipped
        {
            self.skipped.clear();
            return Err(ReadError::UnsupportedLinkType { code: code.into() });
        }
        record
    }

    /// Returns the number of skipped packets by the code of their unsupported link type.
    pub(super) const fn skipped(&self) -> &BTreeMap<u16, u64> {
        &self.skipped
    }

    /// Reads blocks up to and including the next packet of an interface with a supported link type, if any.
    fn next_supported<R: Read>(
        &mut self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let mut header = [0; 8];
        self.options.clear();
        while source.begin(&mut header)? {
            let [t0, t1, t2, t3, length @ ..] = header;
            let block_type = self.order.u32([t0, t1, t2, t3]);
            if block_type == block::SECTION_HEADER {
                self.section_header(source, length)?;
                continue;
            }
            let mut block = Block::start(source, self.order, length, 8)?;
            let record = match block_type {
                block::INTERFACE_DESCRIPTION => {
                    self.interface_description(source, &mut block)?;
                    None
                }
                block::ENHANCED_PACKET => self.enhanced_packet(source, &mut block, data)?,
                block::PACKET => self.packet(source, &mut block, data)?,
                block::SIMPLE_PACKET => self.simple_packet(source, &mut block, data)?,
                _ => None,
            };
            block.end(source)?;
            if let Some(record) = record {
                source.end_record();
                self.last_time = record.time;
                return Ok(Some(record));
            }
            source.end_unit();
        }
        Ok(None)
    }

    /// Returns the name of the program that wrote the last record's section; empty if unknown.
    pub(super) fn application(&self) -> &str {
        &self.application
    }

    /// Returns the name of the last record's interface; empty if unknown.
    pub(super) fn interface_name(&self) -> &str {
        self.names.get(self.last_interface).map_or("", |name| name)
    }

    /// Returns the options of the last record.
    pub(super) fn options(&self) -> PacketOptions<'_> {
        self.options.borrowed()
    }

    /// Reads a Section Header Block (section 4.1), which resets the byte order and the interfaces.
    fn section_header<R: Read>(&mut self, source: &mut Source<R>, length: [u8; 4]) -> Result<(), ReadError> {
        let mut byte_order = [0; 4];
        source.fill(&mut byte_order)?;
        self.order = match byte_order {
            [0x4D, 0x3C, 0x2B, 0x1A] => ByteOrder::Little,
            [0x1A, 0x2B, 0x3C, 0x4D] => ByteOrder::Big,
            _ => return Err(source.corrupt("a section header without a byte-order magic number")),
        };
        let mut block = Block::start(source, self.order, length, 12)?;
        let [major0, major1, minor0, minor1, ..]: [u8; 12] = block.read(source)?;
        let (major, minor) = (self.order.u16([major0, major1]), self.order.u16([minor0, minor1]));
        if major != 1 {
            let what = format!("version {major}.{minor} of pcapng, where 1 is the only one known");
            return Err(source.corrupt(what));
        }
        self.application = block.application(source)?;
        block.end(source)?;
        source.end_unit();
        self.earlier_interfaces = self.earlier_interfaces.saturating_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        self.names.clear();
        Ok(())
    }

    /// Reads an Interface Description Block (section 4.2).
    fn interface_description<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
    ) -> Result<(), ReadError> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(source.corrupt(format!("more than {MAX_INTERFACES} interfaces in one section")));
        }
        let [link0, link1, _, _, snap_len @ ..]: [u8; 8] = block.read(source)?;
        let link_code = self.order.u16([link0, link1]);
        let snap_len = self.order.u32(snap_len);
        let mut clock = Clock { tick: Tick::MICROSECOND, offset: 0 };
        let mut name = Box::from("");
        while let Some(option) = block.option(source)? {
            match (option.code, option.len) {
                (block::OPTION_TSRESOL, 1) => {
                    let [tsresol, ..]: [u8; 4] = block.read(source)?;
                    clock.tick = Tick::from_tsresol(tsresol);
                }
                (block::OPTION_IF_NAME, ..=MAX_NAME) => {
                    name = String::from_utf8_lossy(&block.value(source, &option)?).into();
                }
                (block::OPTION_TSOFFSET, 8) => clock.offset = self.order.i64(block.read(source)?),
                (block::OPTION_TSRESOL | block::OPTION_TSOFFSET, len) => {
                    return Err(source.corrupt(format!("an interface whose time option has {len} bytes")));
                }
                _ => block.skip(source, option.padded_len())?,
            }
        }
        self.has_supported |= LinkType::from_code(link_code.into()).is_some();
        self.interfaces.push(Interface { link_code, snap_len, clock });
        self.names.push(name);
        Ok(())
    }

    /// Reads an Enhanced Packet Block (section 4.3).
    fn enhanced_packet<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let [interface, ticks @ .., captured_len, original_len] = self.words::<_, 5>(source, block)?;
        let packet = Packet { interface, ticks: Some(ticks), captured_len, original_len };
        let record = self.record(source, block, packet, data)?;
        if record.is_some() {
            self.read_options(source, block, data)?;
        }
        Ok(record)
    }

    /// Reads an obsolete Packet Block (appendix A): 16-bit interface index and a drop count, 0xFFFF if it is
    /// unknown.
    fn packet<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let [i0, i1, d0, d1]: [u8; 4] = block.read(source)?;
        let interface = u32::from(self.order.u16([i0, i1]));
        let dropped = self.order.u16([d0, d1]);
        let [ticks @ .., captured_len, original_len] = self.words::<_, 4>(source, block)?;
        let packet = Packet { interface, ticks: Some(ticks), captured_len, original_len };
        let record = self.record(source, block, packet, data)?;
        if record.is_some() {
            self.options.dropped = (dropped != u16::MAX).then_some(dropped.into());
            self.read_options(source, block, data)?;
        }
        Ok(record)
    }

    /// Reads the options behind a packet.
    fn read_options<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        packet: &[u8],
    ) -> Result<(), ReadError> {
        block.skip_padding(source, packet.len() as u32)?;
        block.packet_options(source, &mut self.options)
    }

    /// Reads a Simple Packet Block (section 4.4): interface 0, no timestamp, no captured length.
    fn simple_packet<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let [original_len] = self.words::<_, 1>(source, block)?;
        let snap_len = self.interface(source, 0)?.snap_len;
        let captured_len = if snap_len == 0 { original_len } else { original_len.min(snap_len) };
        let packet = Packet { interface: 0, ticks: None, captured_len, original_len };
        self.record(source, block, packet, data)
    }

    /// Reads the bytes of a packet after validating its fields against the block and the interface. Counts
    /// and skips it, and returns `None`, if the link type of the interface is not supported.
    fn record<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: &mut Block,
        packet: Packet,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let Packet { interface, ticks, captured_len, original_len } = packet;
        let described = self.interface(source, interface)?;
        let Some(link_type) = LinkType::from_code(described.link_code.into()) else {
            block.skip(source, captured_len)?;
            self.first_skipped.get_or_insert(described.link_code);
            *self.skipped.entry(described.link_code).or_default() += 1;
            return Ok(None);
        };
        if captured_len > MAX_RECORD {
            return Err(source.corrupt(format!("a record of {captured_len} bytes, more than {MAX_RECORD}")));
        }
        block.claim(source, captured_len)?;
        source.fill_vec(data, captured_len)?;
        let time = ticks.map_or(self.last_time, |[high, low]| {
            described.clock.time(u64::from(high) << 32 | u64::from(low))
        });
        self.last_interface = interface as usize;
        let interface = self.earlier_interfaces.saturating_add(interface);
        Ok(Some(Record { time, interface, link_type, original_len }))
    }

    /// Returns an interface of the section by its index.
    fn interface<R: Read>(&self, source: &Source<R>, interface: u32) -> Result<Interface, ReadError> {
        self.interfaces.get(interface as usize).copied().ok_or_else(|| {
            let described = self.interfaces.len();
            source.corrupt(format!("a packet of interface {interface}, after the description of {described}"))
        })
    }

    /// Reads 32-bit numbers.
    fn words<R: Read, const N: usize>(
        &self,
        source: &mut Source<R>,
        block: &mut Block,
    ) -> Result<[u32; N], ReadError> {
        let mut words = [[0; 4]; N];
        block.claim(source, 4 * N as u32)?;
        source.fill(words.as_flattened_mut())?;
        Ok(words.map(|word| self.order.u32(word)))
    }
}

/// The common fields of the packet blocks.
#[derive(Clone, Copy)]
struct Packet {
    interface: u32,
    /// The upper and lower half of the timestamp.
    ticks: Option<[u32; 2]>,
    captured_len: u32,
    original_len: u32,
}

#[cfg(test)]
mod tests {
    use super::super::Reader;
    use super::super::testing::{Section, message, read_all};
    use super::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
    const BYTES: &[u8] = &[1, 2, 3, 4, 5];

    fn record(nanos: u64, interface: u32, link_type: LinkType, original_len: u32) -> Record {
        Record { time: Instant::from_nanos(nanos), interface, link_type, original_len }
    }

    #[test]
    fn every_packet_block_is_read_in_both_byte_orders() {
        for order in ORDERS {
            let mut section = Section::new(order);
            section.interface(1, 0, &[]).interface(101, 0, &[]);
            section.enhanced(1, 1 << 32 | 7, 60, BYTES, &[(1, b"a comment")]);
            section.simple(BYTES, 5);
            section.obsolete(1, 1 << 33, 61, &BYTES[..4], None, &[]);
            let (records, error, progress) = read_all(&section.bytes);
            assert!(error.is_none(), "{order:?}: {error:?}");
            let time = ((1 << 32) + 7) * 1000;
            assert_eq!(
                records,
                [
                    (record(time, 1, LinkType::RawIp, 60), BYTES.to_vec()),
                    (record(time, 0, LinkType::Ethernet, 5), BYTES.to_vec()),
                    (record((1 << 33) * 1000, 1, LinkType::RawIp, 61), BYTES[..4].to_vec()),
                ]
            );
            assert_eq!((progress.records, progress.bytes), (3, section.bytes.len() as u64));
        }
    }

    #[test]
    fn an_obsolete_packet_has_its_options_and_its_drop_count() {
        for order in ORDERS {
            let mut section = Section::new(order);
            let flags = if order == ByteOrder::Big { [0, 0, 0, 2] } else { [2, 0, 0, 0] };
            section.interface(1, 0, &[]);
            section.obsolete(0, 1, 5, BYTES, Some(7), &[(1, b"a comment"), (2, &flags), (3, b"a hash")]);
            section.obsolete(0, 1, 5, BYTES, None, &[]).obsolete(0, 1, 5, BYTES, Some(0), &[(1, b"")]);
            let mut reader = Reader::new(&*section.bytes).unwrap();
            for expected in [
                PacketOptions { comment: Some("a comment"), flags: Some(2), dropped: Some(7) },
                PacketOptions::default(),
                PacketOptions { dropped: Some(0), ..PacketOptions::default() },
            ] {
                let mut data = Vec::new();
                reader.next(&mut data).unwrap();
                assert_eq!((&*data, reader.options()), (BYTES, expected), "{order:?}");
            }
        }
    }

    #[test]
    fn each_interface_has_its_own_clock() {
        for order in ORDERS {
            let mut section = Section::new(order);
            let offset = section.i64(-2);
            section.interface(1, 0, &[(2, b"eth0"), (9, &[9]), (14, &offset)]);
            section.interface(1, 0, &[(9, &[0x80 | 10]), (3, b"unknown to us")]);
            section.interface(1, 0, &[(0, &[]), (9, &[9])]);
            section.enhanced(0, 3_000_000_001, 5, BYTES, &[]);
            section.enhanced(1, 1024 + 512, 5, BYTES, &[]);
            section.enhanced(2, 5, 5, BYTES, &[]);
            let (records, error, _) = read_all(&section.bytes);
            assert!(error.is_none(), "{error:?}");
            let times: Vec<u64> = records.iter().map(|(record, _)| record.time.as_nanos()).collect();
            assert_eq!(times, [1_000_000_001, 1_500_000_000, 5_000]);
        }
    }

    #[test]
    fn a_section_starts_anew_and_interfaces_are_counted_through() {
        let mut file = Vec::new();
        for (order, link) in [(ByteOrder::Big, 1), (ByteOrder::Little, 101), (ByteOrder::Big, 1)] {
            let mut section = Section::new(order);
            section.interface(link, 0, &[]).interface(link, 0, &[]);
            section.enhanced(1, 7, 5, BYTES, &[]);
            file.extend(section.bytes);
        }
        let (records, error, _) = read_all(&file);
        assert!(error.is_none(), "{error:?}");
        let interfaces: Vec<_> =
            records.iter().map(|(record, _)| (record.interface, record.link_type)).collect();
        let (ethernet, ip) = (LinkType::Ethernet, LinkType::RawIp);
        assert_eq!(interfaces, [(1, ethernet), (3, ip), (5, ethernet)]);

        file.extend(Section::new(ByteOrder::Big).enhanced(1, 7, 5, BYTES, &[]).bytes.iter());
        assert!(message(&file).ends_with("a packet of interface 1, after the description of 0"));
    }

    #[test]
    fn unknown_blocks_are_skipped_whatever_their_length() {
        let mut section = Section::new(ByteOrder::Little);
        section.block(5, &[0; 12]).interface(1, 0, &[]).block(0x8000_0BAD, &vec![9; 1_000_000]);
        section.enhanced(0, 1, 5, BYTES, &[]).block(4, &[]);
        let (records, error, progress) = read_all(&section.bytes);
        assert!(error.is_none(), "{error:?}");
        assert_eq!((records.len(), progress.bytes), (1, section.bytes.len() as u64));
    }

    #[test]
    fn a_simple_packet_ends_at_the_snap_length() {
        let mut section = Section::new(ByteOrder::Little);
        section.interface(1, 4, &[]).simple(&BYTES[..4], 60);
        section.simple(&BYTES[..3], 3);
        let (records, error, _) = read_all(&section.bytes);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records[0], (record(0, 0, LinkType::Ethernet, 60), BYTES[..4].to_vec()));
        assert_eq!(records[1], (record(0, 0, LinkType::Ethernet, 3), BYTES[..3].to_vec()));
    }

    #[test]
    fn packets_of_an_unsupported_link_type_are_skipped_and_counted() {
        let mut section = Section::new(ByteOrder::Little);
        section.interface(127, 0, &[]).interface(1, 0, &[]).interface(105, 0, &[]);
        section.enhanced(0, 1, 5, BYTES, &[(1, b"skipped")]).enhanced(1, 2, 5, BYTES, &[]);
        section.simple(BYTES, 5).enhanced(2, 3, 5, BYTES, &[]).obsolete(1, 4, 5, BYTES, None, &[]).obsolete(
            0,
            5,
            5,
            BYTES,
            Some(9),
            &[(1, b"skipped")],
        );
        let mut reader = Reader::new(&*section.bytes).unwrap();
        let (mut times, mut data) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next(&mut data).unwrap() {
            assert_eq!((record.interface, &*data, reader.comment()), (1, BYTES, None));
            times.push(record.time.as_nanos());
        }
        assert_eq!(times, [2000, 4000]);
        let skipped: Vec<_> = reader.skipped().map(|skipped| skipped.to_string()).collect();
        assert_eq!(
            skipped,
            [
                "1 packet of link type 105 (IEEE 802.11), which is not supported",
                "3 packets of link type 127 (IEEE 802.11 with radiotap header), which is not supported",
            ]
        );
        assert_eq!(reader.position().bytes, section.bytes.len() as u64);
    }

    #[test]
    fn a_file_without_a_supported_link_type_fails_at_its_end() {
        let mut section = Section::new(ByteOrder::Little);
        section.interface(105, 0, &[]).interface(9, 0, &[]);
        assert_eq!(message(&section.bytes), "");
        section.enhanced(0, 1, 5, BYTES, &[]).enhanced(1, 1, 5, BYTES, &[]);
        for file in [&*section.bytes, &[&*section.bytes, &[6, 0, 0]].concat()] {
            let (records, error, _) = read_all(file);
            assert!(records.is_empty());
            assert!(matches!(error, Some(ReadError::UnsupportedLinkType { code: 105 })), "{error:?}");
        }
        section.interface(1, 0, &[]);
        assert_eq!(message(&section.bytes), "");
    }

    #[test]
    fn the_largest_record_is_read_and_a_larger_one_is_corrupt() {
        let most = vec![7; MAX_RECORD as usize + 1];
        let mut section = Section::new(ByteOrder::Little);
        section.interface(1, 0, &[]).enhanced(0, 0, 0, &most[1..], &[]);
        assert_eq!(read_all(&section.bytes).0[0].1, most[1..]);
        section.enhanced(0, 0, 0, &most, &[]);
        assert!(message(&section.bytes).ends_with("a record of 266241 bytes, more than 266240"));
    }

    /// Packets of USB (link type 220) may have megabytes.
    #[test]
    fn a_skipped_packet_may_have_any_length() {
        let mut section = Section::new(ByteOrder::Little);
        section.interface(220, 0, &[]).interface(1, 0, &[]);
        section.enhanced(0, 0, 0, &vec![7; 1 << 20], &[]).enhanced(1, 2, 5, BYTES, &[]);
        let (records, error, _) = read_all(&section.bytes);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records, [(record(2000, 1, LinkType::Ethernet, 5), BYTES.to_vec())]);
    }

    #[test]
    fn the_interfaces_of_a_section_are_bounded() {
        let mut section = Section::new(ByteOrder::Little);
        for _ in 0..MAX_INTERFACES {
            section.interface(1, 0, &[]);
        }
        assert_eq!(message(&section.bytes), "");
        section.interface(1, 0, &[]);
        assert!(message(&section.bytes).ends_with("more than 65536 interfaces in one section"));
    }
}
