//! The version of the crates, in the files outside the workspace that hold it.

use std::fs;
use std::path::Path;

/// The repository's folder.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Lock files of the workspaces beside this one, whose packages depend on the crates.
const LOCKS: [&str; 3] = ["bench/quic/Cargo.lock", "fuzz/Cargo.lock", "hw/lro/cosim/Cargo.lock"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the crates of `names` that a lock file has in another version, and that version.
fn other_versions<'a>(lock: &'a str, names: &[String], version: &str) -> Vec<(&'a str, &'a str)> {
    let entries =
        lock.split("[[package]]").filter_map(|entry| Some((field(entry, "name")?, field(entry, "version")?)));
    entries.filter(|(name, its)| names.iter().any(|of| of == name) && *its != version).collect()
}

/// Returns the value of `key = "VALUE"` in the first line that begins so.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

#[test]
fn other_versions_are_found() {
    let lock =
        "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\n";
    assert_eq!(other_versions(lock, &["a".to_owned(), "b".to_owned()], "1.0.0"), [("b", "2.0.0")]);
    assert_eq!(other_versions(lock, &["a".to_owned()], "1.0.0"), []);
}

#[test]
fn lock_files_and_the_debian_package_have_the_version_of_the_crates() {
    let manifest = read("Cargo.toml");
    let version = field(&manifest, "version").unwrap();
    let names: Vec<String> =
        crate::entries(Path::new(crate::CRATES)).map(|name| format!("nichrome-{name}")).collect();
    for path in LOCKS {
        let lock = read(path);
        assert!(
            names.iter().any(|name| lock.contains(&format!("name = \"{name}\""))),
            "{path} names no crate"
        );
        assert_eq!(other_versions(&lock, &names, version), [], "{path}: cargo update --workspace");
    }
    let debian = read("dist/debian/changelog");
    let newest = debian.lines().next().unwrap();
    assert!(
        newest.starts_with(&format!("nichrome ({version}-")),
        "dist/debian/changelog begins with {newest}"
    );
}
