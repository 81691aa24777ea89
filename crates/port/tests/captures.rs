//! The capture reader and writer compared with other implementations: `pcap-file` and Wireshark's programs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use nichrome_port::capture::{self, LinkType, PacketOptions, Record};
use nichrome_wire::Instant;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../tests/installed.rs"]
mod installed;
use installed::tshark;

/// Returns the captures in the repository: classic pcap with microseconds.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let entries = folder.read_dir().expect("tests/captures is in the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension() == Some(OsStr::new("pcap")));
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn read(path: &Path) -> Vec<(Record, Vec<u8>)> {
    let mut reader = capture::open(path).unwrap();
    let (mut records, mut data) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next(&mut data).unwrap() {
        records.push((record, data.clone()));
    }
    let progress = reader.position();
    assert_eq!((progress.records, progress.bytes), (records.len() as u64, path.metadata().unwrap().len()));
    records
}

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn classic_captures_read_as_pcap_file_reads_them() {
    for path in captures() {
        let mut oracle = pcap_file::pcap::PcapReader::new(File::open(&path).unwrap()).unwrap();
        let mut reader = capture::open(&path).unwrap();
        let mut data = Vec::new();
        while let Some(record) = reader.next(&mut data).unwrap() {
            let expected = oracle.next_packet().expect("pcap-file has fewer records").unwrap();
            assert_eq!(u128::from(record.time.as_nanos()), expected.timestamp.as_nanos());
            assert_eq!((record.interface, record.link_type), (0, LinkType::Ethernet));
            assert_eq!((record.original_len, &data[..]), (expected.orig_len, &expected.data[..]));
        }
        assert!(oracle.next_packet().is_none(), "pcap-file has more records");
    }
}

#[test]
fn captures_converted_by_editcap_read_the_same() {
    for path in captures() {
        let expected = read(&path);
        for format in ["pcapng", "nsecpcap"] {
            let name = path.file_name().unwrap().to_str().unwrap();
            let converted = temporary(&format!("{name}.{format}"));
            let mut editcap = Command::new("editcap");
            installed::run(editcap.args(["-F", format]).arg(&path).arg(&converted), "wireshark-common");
            assert!(read(&converted) == expected, "{}", converted.display());
        }
    }
}

/// A packet as written, and as tshark prints it: interface, time, original length, bytes, comment.
type Packet = (u32, u64, u32, Vec<u8>, Option<&'static str>);

#[test]
fn a_written_capture_reads_the_same_in_wireshark() {
    let path = temporary("written.pcapng");
    let packets: Vec<Packet> = (0..2000u32)
        .map(|number| {
            let time = 1_700_000_000_123_456_789 + u64::from(number) * 1_000_000_007;
            let comment = number.is_multiple_of(3).then_some("coalesced from 44 segments, naïvely");
            let bytes = vec![0xAB; 60 + number as usize % 97];
            (number % 2, time, bytes.len() as u32 + number % 5, bytes, comment)
        })
        .collect();
    let mut writer = capture::create(&path, "nichrome test").unwrap();
    writer.add_interface(LinkType::Ethernet, "veth0", 262_144).unwrap();
    writer.add_interface(LinkType::Ethernet, "wan 1", 0).unwrap();
    for (interface, time, original_len, bytes, comment) in &packets {
        let (head, tail) = bytes.split_at(54);
        let time = Instant::from_nanos(*time);
        writer
            .write(
                *interface,
                time,
                Some(*original_len),
                [head, tail],
                PacketOptions { comment: *comment, ..PacketOptions::default() },
            )
            .unwrap();
    }
    writer.finish().unwrap();

    let fields = ["time_epoch", "len", "cap_len", "interface_name", "comment"];
    let fields: Vec<String> =
        fields.iter().flat_map(|field| ["-e".into(), format!("frame.{field}")]).collect();
    let mut arguments = vec!["-r", path.to_str().unwrap(), "-T", "fields"];
    arguments.extend(fields.iter().map(String::as_str));
    let expected = packets.iter().map(|(interface, time, original_len, bytes, comment)| {
        let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
        let name = ["veth0", "wan 1"][*interface as usize];
        let (len, comment) = (bytes.len(), comment.unwrap_or_default());
        format!("{seconds}.{nanos:09}\t{original_len}\t{len}\t{name}\t{comment}")
    });
    let printed = tshark(&arguments);
    assert!(printed.iter().cloned().eq(expected), "{:?}", printed.first());

    let mut capinfos = Command::new("capinfos");
    capinfos.args(["-c", "-u", "-t", "-A", "-M", "-S"]).arg(&path).env("TZ", "UTC");
    let printed = installed::run(&mut capinfos, "wireshark-common");
    let printed = String::from_utf8(printed.stdout).unwrap();
    let value = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{printed}"));
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    assert!(value("File type").contains("pcapng"));
    assert_eq!(value("Number of packets"), "2000");
    assert_eq!(value("Number of interfaces in file"), "2");
    assert_eq!(value("File timestamp precision"), "nanoseconds (9)");
    assert_eq!(value("Capture application"), "nichrome test");
    assert_eq!(value("First packet time"), "1700000000.123456789");
    assert_eq!(value("Last packet time"), "1700001999.123470782");
}
