//! The capture writer: pcapng, little-endian, nanosecond timestamps.

use super::block::{
    self, begin_block, end_block, put_end_of_options, put_option, put_packet_options, put_padding,
    put_text_option, put_u32, set_u32,
};
use super::{LinkType, MAX_INTERFACES, MAX_SNAP_LEN, PacketOptions, WriteError};
use crate::uninterrupted;
use nichrome_wire::Instant;
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Size at which buffered blocks are written to the output, in bytes.
const WRITE_AT: usize = 64 * 1024;

/// Writes a capture record by record. Only whole blocks reach the output, so that a concurrent reader sees no
/// truncated record. Dropping the writer flushes it and ignores errors; [`Writer::finish`] returns them.
pub struct Writer<W: Write> {
    output: W,
    /// The output's name in error messages.
    destination: String,
    /// The name of the writing program.
    application: String,
    /// Whole blocks not yet written to the output.
    blocks: Vec<u8>,
    /// Snap length of each interface of the section, in bytes.
    snap_lens: Vec<u32>,
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("destination", &self.destination).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Creates a writer; `application` is recorded as the writing program. Issues large writes: `output` need
    /// not be buffered.
    pub fn new(output: W, application: &str) -> Self {
        Self::with_destination(output, application, "the capture".to_owned())
    }

    pub(super) fn with_destination(output: W, application: &str, destination: String) -> Self {
        let mut blocks = Vec::with_capacity(2 * WRITE_AT);
        put_section_header(&mut blocks, application);
        Self { output, destination, application: application.to_owned(), blocks, snap_lens: Vec::new() }
    }

    /// Begins a new section: the interfaces so far end, and further ones are counted from 0 again.
    pub fn begin_section(&mut self) -> Result<(), WriteError> {
        self.make_room()?;
        put_section_header(&mut self.blocks, &self.application);
        self.snap_lens.clear();
        Ok(())
    }

    /// Adds an interface and returns its index in the section, counted from 0. Packets are truncated to
    /// `snap_len` bytes; 0 for no limit. A section has at most [`MAX_INTERFACES`].
    pub fn add_interface(
        &mut self,
        link_type: LinkType,
        name: &str,
        snap_len: u32,
    ) -> Result<u32, WriteError> {
        if self.snap_lens.len() == MAX_INTERFACES {
            return Err(WriteError::TooManyInterfaces { destination: self.destination.clone() });
        }
        self.make_room()?;
        let start = begin_block(&mut self.blocks, block::INTERFACE_DESCRIPTION);
        put_u32(&mut self.blocks, u32::from(link_type.code()));
        put_u32(&mut self.blocks, snap_len);
        put_text_option(&mut self.blocks, block::OPTION_IF_NAME, name);
        // 10⁻⁹ seconds.
        put_option(&mut self.blocks, block::OPTION_TSRESOL, &[9]);
        put_end_of_options(&mut self.blocks);
        end_block(&mut self.blocks, start);
        let interface = self.snap_lens.len() as u32;
        self.snap_lens.push(if snap_len == 0 { u32::MAX } else { snap_len });
        Ok(interface)
    }

    /// Writes a packet, the concatenation of `parts`. `original_len` is the length on the wire if it differs
    /// from that of the parts. Comments are truncated to 65,535 bytes.
    pub fn write<P>(
        &mut self,
        interface: u32,
        time: Instant,
        original_len: Option<u32>,
        parts: P,
        options: PacketOptions<'_>,
    ) -> Result<(), WriteError>
    where
        P: IntoIterator<Item: AsRef<[u8]>>,
    {
        let Some(&snap_len) = self.snap_lens.get(interface as usize) else {
            return Err(WriteError::NoInterface { destination: self.destination.clone(), interface });
        };
        self.make_room()?;
        let start = begin_block(&mut self.blocks, block::ENHANCED_PACKET);
        put_u32(&mut self.blocks, interface);
        put_u32(&mut self.blocks, (time.as_nanos() >> 32) as u32);
        put_u32(&mut self.blocks, time.as_nanos() as u32);
        let lengths = self.blocks.len();
        self.blocks.extend([0; 8]);
        let Some(packet) = put_packet(&mut self.blocks, parts, snap_len) else {
            self.blocks.truncate(start);
            return Err(WriteError::TooLong { destination: self.destination.clone() });
        };
        set_u32(&mut self.blocks, lengths, packet.captured_len);
        set_u32(&mut self.blocks, lengths + 4, original_len.unwrap_or(packet.len));
        put_packet_options(&mut self.blocks, options);
        end_block(&mut self.blocks, start);
        Ok(())
    }

    /// Writes all buffered records to the output.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_out()?;
        self.output.flush().map_err(|error| self.failed(error))
    }

    /// Flushes and closes the capture.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.flush()
    }

    /// Writes the buffered blocks to the output if they exceed [`WRITE_AT`].
    #[inline]
    fn make_room(&mut self) -> Result<(), WriteError> {
        if self.blocks.len() >= WRITE_AT { self.write_out() } else { Ok(()) }
    }

    /// Writes the buffered blocks to the output. After an error, keeps the unwritten rest for the next
    /// attempt.
    fn write_out(&mut self) -> Result<(), WriteError> {
        let mut written = 0;
        let result = loop {
            let rest = self.blocks.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match uninterrupted(|| self.output.write(rest)) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) => break Err(error),
            }
        };
        self.blocks.drain(..written.min(self.blocks.len()));
        result.map_err(|error| self.failed(error))
    }

    #[cold]
    fn failed(&self, error: io::Error) -> WriteError {
        WriteError::Io { destination: self.destination.clone(), error }
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// Appends the header of a section.
fn put_section_header(blocks: &mut Vec<u8>, application: &str) {
    let start = begin_block(blocks, block::SECTION_HEADER);
    put_u32(blocks, 0x1A2B_3C4D);
    // Version 1.0; section length unspecified.
    blocks.extend([1, 0, 0, 0]);
    blocks.extend([0xFF; 8]);
    put_text_option(blocks, block::OPTION_USERAPPL, application);
    put_end_of_options(blocks);
    end_block(blocks, start);
}

/// A packet's original and captured length.
struct Lengths {
    captured_len: u32,
    len: u32,
}

/// Appends at most `snap_len` bytes of a packet and the padding; `None` if the result exceeds
/// [`MAX_SNAP_LEN`].
fn put_packet<P>(blocks: &mut Vec<u8>, parts: P, snap_len: u32) -> Option<Lengths>
where
    P: IntoIterator<Item: AsRef<[u8]>>,
{
    let start = blocks.len();
    let mut room = snap_len as usize;
    let mut len = 0u32;
    for part in parts {
        let part = part.as_ref();
        let kept = &part[..part.len().min(room)];
        room -= kept.len();
        if blocks.len() - start + kept.len() > MAX_SNAP_LEN as usize {
            return None;
        }
        blocks.extend_from_slice(kept);
        len = len.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
    }
    let captured_len = (blocks.len() - start) as u32;
    put_padding(blocks, start);
    Some(Lengths { captured_len, len })
}

#[cfg(test)]
mod tests {
    use super::super::testing::read_all;
    use super::super::{Reader, Record, create};
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::path::PathBuf;

    const NO_PARTS: [&[u8]; 0] = [];

    /// A packet to write: the interface is the remainder by the number of interfaces.
    #[derive(Clone, Debug)]
    struct Packet {
        interface: u32,
        nanos: u64,
        original_len: Option<u32>,
        parts: Vec<Vec<u8>>,
        comment: Option<String>,
        flags: Option<u32>,
        dropped: Option<u64>,
    }

    impl Packet {
        fn options(&self) -> PacketOptions<'_> {
            PacketOptions { comment: self.comment.as_deref(), flags: self.flags, dropped: self.dropped }
        }
    }

    prop_compose! {
        fn packet()(
            interface in 0u32..3,
            nanos: u64,
            original_len: Option<u32>,
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..4),
            comment: Option<String>,
            flags: Option<u32>,
            dropped: Option<u64>,
        ) -> Packet {
            Packet { interface, nanos, original_len, parts, comment, flags, dropped }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            packets in proptest::collection::vec(packet(), 0..20),
            application: String,
            names: [String; 3],
        ) {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file, &application);
            let types = [LinkType::Ethernet, LinkType::RawIp, LinkType::Ethernet];
            for ((number, link_type), name) in (0..).zip(types).zip(&names) {
                prop_assert_eq!(writer.add_interface(link_type, name, 0).unwrap(), number);
            }
            let mut expected = Vec::new();
            for packet in &packets {
                let Packet { interface, nanos, original_len, parts, .. } = packet;
                let time = Instant::from_nanos(*nanos);
                writer.write(*interface, time, *original_len, parts, packet.options()).unwrap();
                let bytes = parts.concat();
                let original_len = original_len.unwrap_or(bytes.len() as u32);
                let link_type = types[*interface as usize];
                expected.push((Record { time, interface: *interface, link_type, original_len }, bytes));
            }
            writer.finish().unwrap();
            let (records, error, progress) = read_all(&file);
            prop_assert!(error.is_none(), "{:?}", error);
            prop_assert_eq!(records, expected);
            prop_assert_eq!(progress.bytes, file.len() as u64);
            let mut reader = Reader::new(&file[..]).unwrap();
            for packet in &packets {
                reader.next(&mut Vec::new()).unwrap();
                let mut options = packet.options();
                options.comment = options.comment.filter(|comment| !comment.is_empty());
                prop_assert_eq!(reader.options(), options);
            }
        }
    }

    /// An output that counts writes, checks that each ends with a whole block, and can be full.
    struct Disk {
        file: Vec<u8>,
        writes: usize,
        free: usize,
    }

    impl Disk {
        const fn new(free: usize) -> Self {
            Self { file: Vec::new(), writes: 0, free }
        }

        fn records(&self) -> usize {
            let (records, error, _) = read_all(&self.file);
            assert!(error.is_none(), "{error:?}");
            records.len()
        }
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.free);
            if len == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.file.extend(&bytes[..len]);
            self.free -= len;
            self.writes += 1;
            if self.free > 0 {
                self.records();
            }
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_output_always_holds_whole_blocks() {
        let mut disk = Disk::new(usize::MAX);
        let mut writer = Writer::new(&mut disk, "test");
        writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap();
        for number in 0..1000 {
            writer.write(0, Instant::from_nanos(number), None, [[7; 999]], PacketOptions::default()).unwrap();
        }
        drop(writer);
        assert_eq!(disk.records(), 1000);
        let written = disk.file.len();
        assert!(
            (written / (2 * WRITE_AT)..=written / WRITE_AT + 1).contains(&disk.writes),
            "{}",
            disk.writes
        );
    }

    #[test]
    fn a_flush_writes_out_every_record() {
        let mut disk = Disk::new(usize::MAX);
        let mut writer = Writer::new(&mut disk, "test");
        writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap();
        writer.write(0, Instant::ZERO, None, NO_PARTS, PacketOptions::default()).unwrap();
        assert!(writer.output.file.is_empty());
        writer.flush().unwrap();
        assert_eq!(writer.output.records(), 1);
    }

    #[test]
    fn a_full_disk_is_reported_by_name_and_nothing_is_lost_or_doubled() {
        let mut disk = Disk::new(70_000);
        let mut writer = Writer::with_destination(&mut disk, "test", "out.pcapng".to_owned());
        writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap();
        let (mut written, mut failed) = (0, 0);
        for _ in 0..300 {
            match writer.write(0, Instant::ZERO, None, [[7; 999]], PacketOptions::default()) {
                Ok(()) => written += 1,
                Err(error) => {
                    assert_eq!(error.to_string(), "cannot write out.pcapng: no storage space");
                    assert!(writer.blocks.len() < WRITE_AT + 2000);
                    failed += 1;
                }
            }
        }
        assert!(failed > 100, "{failed}");
        writer.output.free = usize::MAX;
        writer.finish().unwrap();
        assert_eq!(disk.records(), written);
    }

    /// Returns the path of a new file in the temporary folder.
    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nichrome-{name}-{}", std::process::id()))
    }

    #[test]
    fn flushed_records_are_in_the_file() {
        let path = temporary("flushed");
        let mut writer = create(&path, "test").unwrap();
        writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap();
        for number in 1..=100 {
            writer.write(0, Instant::from_nanos(7), None, [[7; 999]], PacketOptions::default()).unwrap();
            writer.flush().unwrap();
            let (records, error, _) = read_all(&std::fs::read(&path).unwrap());
            assert!(error.is_none() && records.len() == number, "{error:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_another_program_truncates_is_an_error() {
        let path = temporary("truncated");
        let mut writer = create(&path, "test").unwrap();
        writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap();
        let mut record = || {
            writer.write(0, Instant::ZERO, None, [[7; 99]], PacketOptions::default()).unwrap();
            writer.flush()
        };
        (0..100).for_each(|_| record().unwrap());
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let error = record().unwrap_err().to_string();
        assert_eq!(error, format!("cannot write {}: another program has truncated it", path.display()));
        assert_eq!(std::fs::read(&path).unwrap(), [0; 0], "no record without its section's header");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_packet_is_cut_to_the_snap_length() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test");
        writer.add_interface(LinkType::RawIp, "tun0", 6).unwrap();
        let parts: [&[u8]; 4] = [&[1, 2, 3, 4], &[], &[5, 6, 7], &[8]];
        writer.write(0, Instant::ZERO, None, parts, PacketOptions::default()).unwrap();
        writer.write(0, Instant::ZERO, Some(5), &parts[..1], PacketOptions::default()).unwrap();
        writer.finish().unwrap();
        let (records, ..) = read_all(&file);
        let read: Vec<_> = records.iter().map(|(record, data)| (record.original_len, &data[..])).collect();
        assert_eq!(read, [(8, &[1, 2, 3, 4, 5, 6][..]), (5, &[1, 2, 3, 4])]);
    }

    #[test]
    fn a_record_that_readers_refuse_is_not_written() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test");
        writer.add_interface(LinkType::RawIp, "tun0", 0).unwrap();
        let most = vec![7; MAX_SNAP_LEN as usize];
        writer.write(0, Instant::ZERO, None, [&most[..]], PacketOptions::default()).unwrap();
        let error =
            writer.write(0, Instant::ZERO, None, [&most[..], &[1]], PacketOptions::default()).unwrap_err();
        let message = "cannot write a record to the capture: it is longer than 262144 bytes";
        assert_eq!(error.to_string(), message);
        let error = writer.write(1, Instant::ZERO, None, NO_PARTS, PacketOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "cannot write a record to the capture: it has no interface 1");
        writer.finish().unwrap();
        let (records, error, _) = read_all(&file);
        assert!(error.is_none() && records.len() == 1, "{error:?}");
    }

    #[test]
    fn a_section_has_the_interfaces_that_readers_accept() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test");
        for _ in 0..MAX_INTERFACES {
            writer.add_interface(LinkType::RawIp, "tun0", 0).unwrap();
        }
        let error = writer.add_interface(LinkType::RawIp, "tun0", 0).unwrap_err().to_string();
        assert_eq!(error, "cannot write to the capture: a section has at most 65536 interfaces");
        writer.write(65_535, Instant::ZERO, None, NO_PARTS, PacketOptions::default()).unwrap();
        writer.begin_section().unwrap();
        assert!(writer.write(0, Instant::ZERO, None, NO_PARTS, PacketOptions::default()).is_err());
        assert_eq!(writer.add_interface(LinkType::Ethernet, "eth0", 0).unwrap(), 0);
        writer.write(0, Instant::ZERO, None, NO_PARTS, PacketOptions::default()).unwrap();
        writer.finish().unwrap();
        let (records, error, _) = read_all(&file);
        assert!(error.is_none(), "{error:?}");
        let interfaces: Vec<_> =
            records.iter().map(|(record, _)| (record.interface, record.link_type)).collect();
        assert_eq!(interfaces, [(65_535, LinkType::RawIp), (65_536, LinkType::Ethernet)]);
        let mut reader = Reader::new(&file[..]).unwrap();
        while reader.next(&mut Vec::new()).unwrap().is_some() {
            assert_eq!(reader.application(), Some("test"));
        }
    }

    #[test]
    fn a_long_comment_is_cut_between_characters() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test");
        writer.add_interface(LinkType::RawIp, "tun0", 0).unwrap();
        let comment = "é".repeat(40_000);
        writer
            .write(
                0,
                Instant::ZERO,
                None,
                NO_PARTS,
                PacketOptions { comment: Some(&comment), ..PacketOptions::default() },
            )
            .unwrap();
        writer.finish().unwrap();
        let (records, error, _) = read_all(&file);
        assert!(error.is_none() && records.len() == 1);
        // The option's code and its length, 65,534.
        assert!(file.windows(6).any(|bytes| bytes == [1, 0, 0xFE, 0xFF, 0xC3, 0xA9]));
    }
}
