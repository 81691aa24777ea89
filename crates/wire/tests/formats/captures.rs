//! Every frame of the captures: parsed, compared with etherparse and with tshark, and rebuilt byte for byte.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use nichrome_wire::TcpError;
use pcap_file::pcap::PcapReader;

use crate::installed::tshark;
use crate::oracle::{RebuildError, assert_etherparse_agrees, rebuild};

/// A capture, its TCP segments and those of them with a wrong checksum. tshark counts them as `tshark -r FILE
/// -o tcp.check_checksum:TRUE -T fields -e tcp.checksum.status | sort | uniq -c`: 0 is wrong, 1 right.
struct Capture {
    file: &'static str,
    segments: usize,
    wrong_checksums: usize,
}

const CAPTURES: [Capture; 7] = [
    Capture { file: "tcp-clean.pcap", segments: 720, wrong_checksums: 0 },
    Capture { file: "tcp-duplicate-corrupt.pcap", segments: 574, wrong_checksums: 3 },
    Capture { file: "tcp-ecn.pcap", segments: 445, wrong_checksums: 0 },
    Capture { file: "tcp-ipv6-reorder-loss.pcap", segments: 699, wrong_checksums: 0 },
    Capture { file: "tcp-loss.pcap", segments: 1039, wrong_checksums: 0 },
    Capture { file: "tcp-no-timestamps.pcap", segments: 537, wrong_checksums: 0 },
    Capture { file: "tcp-reorder.pcap", segments: 1001, wrong_checksums: 0 },
];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures"))
}

/// The parse results of a capture's TCP segments, by frame number from 1.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdicts {
    right: BTreeSet<usize>,
    wrong: BTreeSet<usize>,
}

fn our_verdicts(file: &str) -> Verdicts {
    let mut reader = PcapReader::new(File::open(folder().join(file)).unwrap()).unwrap();
    let mut verdicts = Verdicts::default();
    let mut number = 0;
    while let Some(packet) = reader.next_packet() {
        number += 1;
        let frame = packet.unwrap().data;
        match rebuild(&frame) {
            Ok(rebuilt) => {
                assert_eq!(rebuilt, *frame, "{file}, frame {number}");
                verdicts.right.insert(number);
            }
            Err(RebuildError::Tcp(TcpError::Checksum)) => {
                verdicts.wrong.insert(number);
            }
            Err(RebuildError::NotTcp) => continue,
            Err(error) => panic!("{file}, frame {number}: {error:?}"),
        }
        assert_etherparse_agrees(&frame);
    }
    verdicts
}

fn tshark_verdicts(file: &str) -> Verdicts {
    let file = folder().join(file);
    let fields = ["-T", "fields", "-e", "frame.number", "-e", "tcp.checksum.status"];
    let check = ["-r", file.to_str().unwrap(), "-o", "tcp.check_checksum:TRUE"];
    let lines = tshark(&[&check[..], &fields].concat());
    let mut verdicts = Verdicts::default();
    for line in lines {
        let (number, status) = line.split_once('\t').unwrap();
        let number = number.parse().unwrap();
        match status {
            "" => {}
            "0" => assert!(verdicts.wrong.insert(number)),
            "1" => assert!(verdicts.right.insert(number)),
            other => panic!("{file:?}, frame {number}: checksum status {other}"),
        }
    }
    verdicts
}

#[test]
fn every_segment_is_rebuilt_and_every_checksum_is_right_but_the_corrupted() {
    for Capture { file, segments, wrong_checksums } in CAPTURES {
        let verdicts = our_verdicts(file);
        assert_eq!(verdicts.wrong.len(), wrong_checksums, "{file}");
        assert_eq!(verdicts.right.len() + verdicts.wrong.len(), segments, "{file}");
    }
}

#[test]
fn tshark_finds_the_same_checksums_wrong() {
    for Capture { file, .. } in CAPTURES {
        assert_eq!(our_verdicts(file), tshark_verdicts(file), "{file}");
    }
}

#[test]
fn no_capture_is_left_out() {
    let entries = fs::read_dir(folder()).unwrap();
    let present: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tcp-") && name.ends_with(".pcap"))
        .collect();
    assert_eq!(present, CAPTURES.map(|capture| capture.file.to_owned()).into());
}
