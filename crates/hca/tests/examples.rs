//! Runs the examples and checks their output.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

/// Returns the output of an example, which was built beside this test.
fn output_of(example: &str) -> String {
    let this = std::env::current_exe().unwrap();
    let path = this.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(example);
    let output = Command::new(&path).output().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_ping_is_followed_by_a_pong() {
    let said = output_of("ping_pong");
    let words: Vec<_> = said.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(words, ["ping", "pong"]);
}

#[test]
fn a_client_finds_its_server_by_address_and_port() {
    assert!(output_of("by_address").lines().any(|line| line == "client: hello, world"));
}

#[test]
fn keys_are_looked_up_by_reads_only() {
    assert!(output_of("key_value_store").starts_with("20000 lookups"));
}
