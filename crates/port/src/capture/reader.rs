//! The capture reader, for all formats.

use super::compression::Plain;
use super::pcap::{self, Pcap};
use super::pcapng::{self, PcapNg};
use super::source::Source;
use super::{PacketOptions, Progress, ReadError, Record, Skipped};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Magic numbers of unsupported compressed files, with the name of the compression program.
const COMPRESSED: [(&[u8], &str); 3] =
    [(&[0xFD, b'7', b'z', b'X'], "xz"), (b"BZh", "bzip2"), (&[0x04, 0x22, 0x4D, 0x18], "lz4")];

/// Opens the capture at `path`, possibly compressed by gzip or zstd; `-` is the standard input.
pub fn open(path: &Path) -> Result<Reader<Box<dyn Read + Send>>, ReadError> {
    let file = if path.as_os_str() == "-" {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::open(path)
    };
    file.map_err(ReadError::Io).and_then(Reader::decompressing)
}

/// Reads a capture record by record.
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    is_compressed: bool,
    /// Set after the end or an error has been returned.
    ended: bool,
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("is_compressed", &self.is_compressed)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl Reader<Box<dyn Read + Send>> {
    /// Reads the file header as [`Reader::new`] does, of an input possibly compressed by gzip or zstd.
    /// Buffers the input.
    pub fn decompressing(input: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let Plain { bytes, was_compressed } = Plain::new(input).map_err(ReadError::Io)?;
        Ok(Self { is_compressed: was_compressed, ..Self::new(bytes)? })
    }
}

impl<R: Read> Reader<R> {
    /// Reads the file header and detects the format. Issues small reads: `input` should be buffered.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut source = Source::new(input);
        let mut magic = [0; 4];
        let len = source.read(&mut magic)?;
        let format = if let Some(&(_, order, tick)) = pcap::MAGICS.iter().find(|(known, ..)| *known == magic)
        {
            Format::Pcap(Pcap::start(&mut source, order, tick)?)
        } else if magic == pcapng::MAGIC {
            Format::PcapNg(PcapNg::start(&mut source)?)
        } else {
            return Err(unrecognized(magic.get(..len).unwrap_or_default()));
        };
        Ok(Self { source, format, is_compressed: false, ended: false })
    }

    /// Reads the next record of a supported link type and replaces `data` by its bytes. Returns `None` at the
    /// end of the capture and after an error. Allocates only if the capacity of `data` is too small.
    pub fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Record>, ReadError> {
        if self.ended {
            data.clear();
            return Ok(None);
        }
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source, data),
            Format::PcapNg(pcapng) => pcapng.next(&mut self.source, data),
        };
        if !matches!(record, Ok(Some(_))) {
            self.ended = true;
            data.clear();
        }
        record
    }

    /// Returns the options of the last record. Its comments are joined by line breaks, except a comment that
    /// would exceed 65,535 bytes in total.
    pub fn options(&self) -> PacketOptions<'_> {
        match &self.format {
            Format::Pcap(_) => PacketOptions::default(),
            Format::PcapNg(pcapng) => pcapng.options(),
        }
    }

    /// Returns the comments of the last record, as [`Reader::options`] does.
    pub fn comment(&self) -> Option<&str> {
        self.options().comment
    }

    /// Returns the name of the last record's interface, as the capture gives it.
    pub fn interface_name(&self) -> Option<&str> {
        match &self.format {
            Format::Pcap(_) => None,
            Format::PcapNg(pcapng) => Some(pcapng.interface_name()).filter(|name| !name.is_empty()),
        }
    }

    /// Returns the name of the program that wrote the capture, as it names itself; for a pcapng capture of
    /// several sections, the name in the last record's section.
    pub fn application(&self) -> Option<&str> {
        match &self.format {
            Format::Pcap(_) => None,
            Format::PcapNg(pcapng) => Some(pcapng.application()).filter(|name| !name.is_empty()),
        }
    }

    /// Returns the packets skipped so far because the link type of their interface is not supported, by link
    /// type.
    pub fn skipped(&self) -> impl Iterator<Item = Skipped> {
        let skipped = match &self.format {
            Format::Pcap(_) => None,
            Format::PcapNg(pcapng) => Some(pcapng.skipped()),
        };
        let skipped = skipped.into_iter().flatten();
        skipped.map(|(code, packets)| Skipped { link_code: *code, packets: *packets })
    }

    /// Returns true if [`Reader::position`] counts decompressed bytes of a compressed file.
    pub const fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    /// Returns the position in the capture; in decompressed bytes if the file is compressed.
    pub const fn position(&self) -> Progress {
        self.source.progress()
    }
}

/// Returns the error for an unknown magic number of at most four bytes.
fn unrecognized(magic: &[u8]) -> ReadError {
    if magic.is_empty() {
        return ReadError::Empty;
    }
    if let Some((_, method)) = COMPRESSED.iter().find(|(known, _)| magic.starts_with(known)) {
        return ReadError::Compressed { method };
    }
    let mut known = pcap::MAGICS.iter().map(|(known, ..)| known).chain([&pcapng::MAGIC]);
    if known.any(|known| known.starts_with(magic)) {
        return ReadError::truncated(Progress::default(), 4 - magic.len() as u64);
    }
    ReadError::NotACapture { magic: magic.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::super::source::ByteOrder;
    use super::super::testing::{Section, classic, message, read_all};
    use super::*;
    use proptest::prelude::*;

    const PACKETS: [&[u8]; 3] = [&[1, 2, 3, 4, 5], &[], &[6; 70]];

    /// A file, the offsets at which it may end properly, and the number of records before each.
    struct Sample {
        file: Vec<u8>,
        ends: Vec<(usize, usize)>,
    }

    fn classic_sample((magic, order, _): ([u8; 4], ByteOrder, u32)) -> Sample {
        let records = PACKETS.map(|bytes| (1, 2, 90, bytes));
        let file = |count| classic(magic, order, 1, &records[..count]);
        Sample { file: file(3), ends: (0..=3).map(|count| (file(count).len(), count)).collect() }
    }

    fn pcapng_sample(order: ByteOrder) -> Sample {
        let mut section = Section::new(order);
        let mut ends = vec![(section.bytes.len(), 0)];
        let mut end = |section: &Section, records| ends.push((section.bytes.len(), records));
        end(section.interface(1, 0, &[(9, &[9]), (2, b"veth0")]), 0);
        end(section.enhanced(0, 5, 90, PACKETS[0], &[(1, b"first")]), 1);
        end(section.block(5, &[0; 12]), 1);
        end(section.simple(PACKETS[2], 70), 2);
        end(section.obsolete(0, 7, 80, PACKETS[0], None, &[]), 3);
        Sample { file: section.bytes, ends }
    }

    fn samples() -> impl Iterator<Item = Sample> {
        let orders = [ByteOrder::Little, ByteOrder::Big];
        pcap::MAGICS.into_iter().map(classic_sample).chain(orders.map(pcapng_sample))
    }

    #[test]
    fn a_file_cut_off_anywhere_gives_the_whole_records_before() {
        for Sample { file, ends } in samples() {
            let (all, error, _) = read_all(&file);
            assert!(error.is_none() && all.len() == 3, "{error:?}");
            for cut in 1..=file.len() {
                let (records, error, _) = read_all(&file[..cut]);
                let (end, whole) = ends.iter().copied().rfind(|(end, _)| *end <= cut).unwrap_or_default();
                assert_eq!(records, all[..whole], "cut at {cut}");
                match error {
                    None => assert_eq!(end, cut),
                    Some(ReadError::Truncated { records, bytes, needed }) => {
                        assert!(end != cut);
                        assert_eq!((records, bytes), (whole as u64, end as u64), "cut at {cut}");
                        let next = ends.iter().copied().find(|(end, _)| *end > cut).unwrap_or_default().0;
                        assert!(0 < needed && needed <= (next - cut) as u64, "cut at {cut}: {needed} needed");
                    }
                    error => panic!("cut at {cut}: {error:?}"),
                }
            }
        }
    }

    #[test]
    fn the_missing_bytes_of_a_truncated_record_are_known_once_its_length_is() {
        let (magic, order, _) = pcap::MAGICS[0];
        let file = classic(magic, order, 1, &[(1, 2, 90, &[7; 50])]);
        let needed = |cut: usize| match read_all(&file[..cut]).1 {
            Some(ReadError::Truncated { needed, .. }) => needed,
            error => panic!("{error:?}"),
        };
        assert_eq!([3, 4, 10, 25, 39, 40, 50, 89].map(needed), [1, 20, 14, 15, 1, 50, 40, 1]);
        let file = Section::new(ByteOrder::Big).interface(1, 0, &[(2, b"veth0")]).bytes.clone();
        let needed = |cut: usize| match read_all(&file[..cut]).1 {
            Some(ReadError::Truncated { needed, .. }) => needed,
            error => panic!("{error:?}"),
        };
        assert_eq!([4, 11, 12, 27, 35, 36, 40, 59].map(needed), [4, 1, 16, 1, 1, 24, 20, 1]);
    }

    #[test]
    fn comments_of_65535_bytes_are_read() {
        let most = vec![b'x'; 65_535];
        for (comments, expected) in [
            (&[&most[..]][..], 65_535),
            (&[&most[1..], b"", b"y"], 65_535),
            (&[&most[2..], b"y", b"z"], 65_535),
            (&[b"z", &most[1..], &most[2..]], 65_535),
            // Each byte that is no UTF-8 becomes a character of three bytes.
            (&[&[0xFF; 21_845]], 65_535),
            (&[&[0xFF; 21_846], b"y"], 1),
        ] {
            let options: Vec<_> = comments.iter().map(|comment| (1, *comment)).collect();
            let mut section = Section::new(ByteOrder::Big);
            section.interface(1, 0, &[]).enhanced(0, 1, 5, PACKETS[0], &options);
            let mut reader = Reader::new(&section.bytes[..]).unwrap();
            reader.next(&mut Vec::new()).unwrap();
            assert_eq!(reader.comment().map(str::len), Some(expected), "{}", comments.len());
        }
    }

    #[test]
    fn each_section_names_its_program() {
        let mut file = Vec::new();
        let long = vec![0xFF, 0xFF];
        for options in [
            &[(4, &b"the first"[..])][..],
            &[],
            &[(1, b"a comment"), (4, b"the third"), (4, b"ignored")],
            &[(4, &long)],
        ] {
            for order in [ByteOrder::Big, ByteOrder::Little] {
                let mut section = Section::with_options(order, options);
                section.interface(1, 0, &[]).enhanced(0, 1, 5, PACKETS[0], &[]);
                file.extend(section.bytes);
            }
        }
        let (mut reader, mut data, mut names) = (Reader::new(&file[..]).unwrap(), Vec::new(), Vec::new());
        while reader.next(&mut data).unwrap().is_some() {
            names.push(reader.application().unwrap_or_default().to_owned());
        }
        let expected = ["the first", "", "the third", "\u{FFFD}\u{FFFD}"];
        assert!(names.iter().eq(expected.iter().flat_map(|name| [name, name])), "{names:?}");
    }

    #[test]
    fn each_interface_has_its_name() {
        let mut file = Vec::new();
        let (long, longest) = ([b'n'; 256], [b'n'; 255]);
        for names in [[Some(&b"eth0"[..]), None], [Some(&long), Some(&longest)], [Some(b"\xFF"), Some(b"")]] {
            let mut section = Section::new(ByteOrder::Big);
            for name in names {
                let option = name.map(|name| (2, name));
                section.interface(1, 0, option.as_slice());
            }
            // The second interface's packet comes first: the name must be that of the record's interface.
            section.enhanced(1, 1, 5, PACKETS[0], &[]).enhanced(0, 1, 5, PACKETS[0], &[]);
            file.extend(section.bytes);
        }
        let (mut reader, mut names) = (Reader::new(&file[..]).unwrap(), Vec::new());
        while reader.next(&mut Vec::new()).unwrap().is_some() {
            names.push(reader.interface_name().map(str::to_owned));
        }
        let longest = "n".repeat(255);
        let expected = [None, Some("eth0"), Some(&*longest), None, None, Some("\u{FFFD}")];
        assert!(names.iter().map(Option::as_deref).eq(expected), "{names:?}");
    }

    #[test]
    fn memory_is_reused() {
        let Sample { file, .. } = pcapng_sample(ByteOrder::Little);
        let mut data = Vec::with_capacity(100);
        let memory = data.as_ptr();
        let mut reader = Reader::new(&file[..]).unwrap();
        while reader.next(&mut data).unwrap().is_some() {
            assert_eq!(data.as_ptr(), memory);
        }
    }

    /// An input that gives one byte at a time and is interrupted before each.
    struct Trickle<R> {
        rest: R,
        interrupted: bool,
    }

    impl<R: Read> Read for Trickle<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = buffer.len().min(1);
            self.rest.read(&mut buffer[..len])
        }
    }

    fn all_records(mut reader: Reader<impl Read>) -> Vec<(Record, Vec<u8>)> {
        let (mut records, mut data) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next(&mut data).unwrap() {
            records.push((record, data.clone()));
        }
        records
    }

    #[test]
    fn short_and_interrupted_reads_are_continued() {
        for Sample { file, .. } in samples() {
            let reader = Reader::new(Trickle { rest: &file[..], interrupted: false }).unwrap();
            assert_eq!(all_records(reader), read_all(&file).0);
        }
    }

    #[test]
    #[cfg(feature = "compression")]
    fn compression_is_detected_in_an_input_that_trickles() {
        use flate2::Compression;
        use flate2::read::GzEncoder;
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};

        let sample = classic_sample(pcap::MAGICS[0]);
        let mut gzip = Vec::new();
        GzEncoder::new(&sample.file[..], Compression::fast()).read_to_end(&mut gzip).unwrap();
        let zstd = compress_to_vec(&sample.file[..], CompressionLevel::Fastest);
        for (file, is_compressed) in [(sample.file.clone(), false), (gzip, true), (zstd, true)] {
            let input = Trickle { rest: io::Cursor::new(file), interrupted: false };
            let reader = Reader::decompressing(input).unwrap();
            assert_eq!(reader.is_compressed(), is_compressed);
            assert_eq!(all_records(reader), read_all(&sample.file).0);
        }
    }

    #[test]
    fn an_error_of_the_system_is_passed_on() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is on fire"))
            }
        }
        let error = Reader::new(Failing).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("cannot read the capture: the disk is on fire"));
    }

    #[test]
    fn files_other_than_captures_are_distinguished() {
        assert_eq!(message(&[]), "the file is empty");
        assert_eq!(message(b"BZh9"), "the file is compressed with bzip2: decompress it first");
        let xz = [0xFD, b'7', b'z', b'X', b'Z', 0];
        assert_eq!(message(&xz), "the file is compressed with xz: decompress it first");
        let neither = "not a pcap or pcapng file: it begins with 68 69";
        assert_eq!(message(b"hi"), neither);
        assert!(message(b"<html>").ends_with("3c 68 74 6d"));
    }

    #[test]
    fn a_missing_file_is_an_error_of_the_system() {
        let path = Path::new("/nonexistent/capture");
        assert!(matches!(open(path), Err(ReadError::Io(_))));
        let error = open(path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("cannot read the capture: No such file"), "{error}");
    }

    /// Reads to the end, and checks the invariants for any input.
    fn check_any(file: &[u8]) {
        let (records, _, progress) = read_all(file);
        assert!(progress.bytes <= file.len() as u64);
        assert!(records.iter().all(|(_, bytes)| bytes.len() <= file.len()));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check_any(&bytes);
            for Sample { file, ends } in samples() {
                for (end, _) in ends {
                    check_any(&[&file[..end], &bytes].concat());
                }
            }
        }

        #[test]
        fn damaged_files_never_panic(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            for Sample { mut file, .. } in samples() {
                for (at, byte) in &damage {
                    *at.get_mut(&mut file) = *byte;
                }
                check_any(&file);
            }
        }
    }
}
