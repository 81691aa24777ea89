//! The parts of RTL and README that are generated from the Rust sources are up to date.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use nichrome_lro_cosim::package;

/// Compares a file with its wanted content; with `NICHROME_UPDATE` set, writes it first.
fn is_up_to_date(path: &str, wanted: &str) {
    if std::env::var_os("NICHROME_UPDATE").is_some() {
        fs::write(path, wanted).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{path} is stale: NICHROME_UPDATE=1 cargo test --test package writes it");
}

#[test]
fn the_package_of_constants_is_that_of_the_engine() {
    is_up_to_date("../rtl/lro_pkg.sv", &package::system_verilog());
}

#[test]
fn the_readme_has_the_registers() {
    const BEGIN: &str = "<!-- registers -->\n";
    const END: &str = "<!-- end of registers -->\n";
    let readme = fs::read_to_string("../README.md").unwrap();
    let (before, rest) = readme.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    is_up_to_date("../README.md", &format!("{before}{BEGIN}{}{END}{after}", package::register_table()));
}
