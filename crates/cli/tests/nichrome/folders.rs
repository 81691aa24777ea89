//! Folders of captures as inputs.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nichrome_port::capture::LinkType;
use nichrome_wire::Instant;
use tempfile::tempdir;

use crate::installed;
use crate::run::{
    Given, PROFILES, capture, nichrome, number, printed, records, stderr, summary, text, write_capture,
};

/// Writes a capture as several files into a folder; the order of their names differs from that of their
/// packets.
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
fn captures_of_subfolders_are_read_and_everything_else_is_named() {
    let (folder, outputs) = (tempdir().unwrap(), tempdir().unwrap());
    let (input, within) = (capture("tcp-loss"), |name: &str| folder.path().join(name));
    fs::create_dir_all(within("b/deeper")).unwrap();
    split(&input, folder.path(), &["b/trace2", "b/deeper/trace1", "trace3"]);
    let [parts, whole] = ["parts", "whole"].map(|name| outputs.path().join(name));
    printed(&["coalesce", &text(folder.path()), &text(&parts)]);
    printed(&["coalesce", &input, &text(&whole)]);
    let bytes = |path: &Path| records(path).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert!(bytes(&parts) == bytes(&whole));

    symlink("../..", within("b/deeper/circle")).unwrap();
    symlink("nothing", within("b/dangling")).unwrap();
    symlink("trace3", within("trace4")).unwrap();
    installed::run(Command::new("mkfifo").arg(within("pipe")), "coreutils");
    let _socket = UnixListener::bind(within("socket")).unwrap();
    let deep = within(&vec!["d"; 18].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let output = nichrome(&["coalesce", "--json", &text(folder.path())]);
    let found = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&found, "packets_in"), records(Path::new(&input)).len() as u64);
    let warning = |name: &str, why| format!("nichrome: warning: {}: {why}: skipped", within(name).display());
    let expected = [
        warning("b/dangling", "No such file or directory (os error 2)"),
        warning("b/deeper/circle", "a symbolic link to a folder"),
        warning(&vec!["d"; 17].join("/"), "more than 16 folders deep"),
        warning("pipe", "not a regular file"),
        warning("socket", "not a regular file"),
        warning("trace4", "a link to another file of the folder"),
    ];
    assert_eq!(stderr(&output).lines().collect::<Vec<_>>(), expected);
    assert!(output.status.success());
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

#[test]
fn each_part_that_ends_early_is_reported_once_and_a_corrupt_one_fails() {
    let (folder, outputs) = (tempdir().unwrap(), tempdir().unwrap());
    split(&capture("tcp-loss"), folder.path(), &["a", "b", "c", "d"]);
    let within = |name: &str| folder.path().join(name);
    for name in ["a", "b", "c"] {
        let mut bytes = fs::read(within(name)).unwrap();
        match name {
            "a" => bytes.truncate(bytes.len() - 3),
            // A block's length is repeated at its end.
            _ => *bytes.last_mut().unwrap() ^= 1,
        }
        fs::write(within(name), bytes).unwrap();
    }
    let (parts, cut) = (text(folder.path()), text(&outputs.path().join("cut.pcapng")));
    for arguments in
        [&["coalesce", &parts][..], &["coalesce", &parts, "--compare"], &["segment", &parts, &cut]]
    {
        let output = nichrome(arguments);
        let lines: Vec<_> = stderr(&output).lines().collect();
        let path = |name| within(name).display().to_string();
        for (line, start) in lines.iter().zip([
            format!("nichrome: warning: {}: the capture is cut off after", path("a")),
            format!("nichrome: warning: {}: the capture is corrupt", path("c")),
            format!("nichrome: {}: the capture is corrupt", path("b")),
        ]) {
            assert!(line.starts_with(&start), "{line}");
        }
        assert_eq!((output.status.code(), lines.len()), (Some(1), 3), "{arguments:?}: {lines:?}");
    }
    for name in ["a", "b", "c"] {
        let bytes = fs::read(within(name)).unwrap();
        // Behind the section header.
        let section = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        fs::write(within(name), &bytes[..section + 2]).unwrap();
    }
    fs::remove_file(within("d")).unwrap();
    let output = nichrome(&["coalesce", &parts]);
    let count = |what: &str| stderr(&output).lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (count("cut off after 0 whole records"), count("warning"), output.status.code()),
        (3, 2, Some(1))
    );
}

#[test]
fn a_part_of_another_link_type_is_skipped_and_many_skipped_files_are_counted() {
    let folder = tempdir().unwrap();
    let input = capture("tcp-loss");
    split(&input, folder.path(), &["a", "b"]);
    for number in 0..25 {
        fs::write(folder.path().join(format!("c{number:02}")), "no capture").unwrap();
    }
    let mut wireless = fs::read(folder.path().join("a")).unwrap();
    // The link type of the first interface, behind the section header.
    let section = u32::from_le_bytes(wireless[4..8].try_into().unwrap()) as usize;
    wireless[section + 8] = 105;
    fs::write(folder.path().join("b2"), wireless).unwrap();
    let output = nichrome(&["coalesce", "--json", &text(folder.path())]);
    let found = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&found, "packets_in"), records(Path::new(&input)).len() as u64);
    let lines: Vec<_> = stderr(&output).lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 21));
    assert!(lines[0].contains("b2: link type 105 (IEEE 802.11) is not supported"), "{}", lines[0]);
    assert!(lines[20].ends_with(": 6 other files are skipped"), "{}", lines[20]);
}
