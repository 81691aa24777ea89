//! Folders of captures as inputs.

use std::fs;
use std::path::Path;

use nichrome_port::capture::LinkType;
use nichrome_wire::Instant;
use tempfile::tempdir;

use crate::run::{
    Given, PROFILES, capture, nichrome, number, printed, records, stderr, summary, text, write_capture,
};

/// Writes a capture as several files into a folder; the order of their names differs from that of their packets.
fn split(input: &str, folder: &Path, names: &[&str]) {
    let all = records(Path::new(input));
    for (part, name) in all.chunks(all.len().div_ceil(names.len())).zip(names) {
        let given = part.iter().map(|(record, bytes)| Given {
            interface: 0,
            nanos: record.time.nanos_since(Instant::ZERO),
            original_len: Some(record.original_len),
            bytes,
        });
        write_capture(&folder.join(name), &[LinkType::Ethernet], given);
    }
}

#[test]
fn the_captures_of_a_folder_are_parts_of_one() {
    let (folder, outputs) = (tempdir().unwrap(), tempdir().unwrap());
    let input = capture("tcp-loss");
    split(&input, folder.path(), &["trace2", "trace10", "trace1"]);
    let parts = text(folder.path());
    let [whole, of_parts, cut] = ["whole", "parts", "cut"].map(|name| outputs.path().join(name));
    let bytes = |path: &Path| records(path).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    for profile in PROFILES {
        let options = ["--verify", "--hold", "5ms", "--profile", profile];
        let one = summary(&[&[&*input, &text(&whole)], &options[..]].concat());
        let several = summary(&[&[&*parts, &text(&of_parts)], &options[..]].concat());
        assert_eq!(one, several);
        assert!(bytes(&whole) == bytes(&of_parts), "{profile}");
    }
    assert!(printed(&["coalesce", &parts, "--compare"]).contains("through every profile"));
    printed(&["segment", &parts, &text(&cut)]);
    assert!(bytes(&cut) == bytes(Path::new(&input)));

    fs::write(folder.path().join("notes.txt"), "no capture").unwrap();
    let warned = nichrome(&["coalesce", &parts]);
    let warnings = stderr(&warned);
    assert!(
        warned.status.success() && warnings.contains("notes.txt: not a pcap or pcapng file"),
        "{warnings}"
    );
    let same = text(&folder.path().join("trace1"));
    let refused = nichrome(&["coalesce", &parts, &same]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("IN and OUT are the same file"));
    let empty = tempdir().unwrap();
    let refused = nichrome(&["coalesce", &text(empty.path())]);
    assert!(
        refused.status.code() == Some(1) && stderr(&refused).contains("there is no capture in this folder")
    );
}

#[test]
fn a_part_that_is_cut_off_does_not_end_the_others() {
    let folder = tempdir().unwrap();
    let input = capture("tcp-loss");
    split(&input, folder.path(), &["a", "b"]);
    let first = folder.path().join("a");
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 3]).unwrap();
    let output = nichrome(&["coalesce", "--json", &text(folder.path()), "--verify"]);
    assert!(output.status.success() && stderr(&output).contains("a: the capture is cut off"));
    let found = serde_json::from_slice(&output.stdout).unwrap();
    let all = records(Path::new(&input)).len() as u64;
    assert_eq!((number(&found, "packets_in"), &found["truncated"]), (all - 1, &serde_json::json!(true)));
}
