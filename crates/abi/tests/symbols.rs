//! Tests that the library exports the symbols of rdma-core's libibverbs with the same versions.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;

/// Returns the exported symbols as `name@version`, only default versions: the 1.0 forms date from before
/// 2006.
fn exported(library: &Path) -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--with-symbol-versions", "--defined-only"]).arg(library).output();
    let listed = String::from_utf8(output.expect("nm").stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    names.filter(|name| !name.starts_with("IBVERBS_")).filter_map(default_version).collect()
}

/// Returns `name@version` of a default version, which nm prints with two at signs; `None` for other versions.
fn default_version(symbol: &str) -> Option<String> {
    let (name, version) = symbol.split_once("@@")?;
    Some(format!("{name}@{version}"))
}

#[test]
fn every_symbol_of_the_stock_library_is_exported_with_its_version() {
    let stock = Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    assert!(stock.exists(), "the tests need Debian's package libibverbs1");
    let (ours, theirs) = (exported(common::library()), exported(stock));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(theirs.len() > 140, "{}", theirs.len());
}

/// Loads a library.
fn loaded(library: &Path) -> *mut c_void {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string; the libraries' constructors have no requirements.
    let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!loaded.is_null(), "{}", library.display());
    loaded
}

/// Returns the names that a function of a library gives to the codes −1 to 29.
fn names(library: *mut c_void, function: &CStr) -> Vec<&'static str> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(library, function.as_ptr()) };
    assert!(!found.is_null(), "{function:?}");
    // SAFETY: the functions that the tests name take a code and return a static string; no library is closed.
    unsafe {
        let name = std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(found);
        (-1..30).map(|code| CStr::from_ptr(name(code)).to_str().unwrap()).collect()
    }
}

#[test]
fn codes_have_the_names_that_the_stock_library_gives_them() {
    let [ours, theirs] =
        [common::library(), Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")].map(loaded);
    for function in [c"ibv_wc_status_str", c"ibv_event_type_str", c"ibv_node_type_str", c"ibv_port_state_str"]
    {
        // The events end at 19 in the stock library, and at 20 in newer ones.
        let codes = |library| names(library, function).into_iter().take(21).collect::<Vec<_>>();
        assert_eq!(codes(ours), codes(theirs), "{function:?}");
    }
    assert_eq!(names(ours, c"ibv_event_type_str")[21..23], ["Device link speed change", "unknown"]);
    assert_eq!(names(ours, c"ibv_wc_status_str")[21..26], names(theirs, c"ibv_wc_status_str")[21..26]);
    // The stock library has no names of opcodes yet.
    let opcodes = names(ours, c"ibv_wr_opcode_str");
    assert_eq!(opcodes[1..5], ["rdma-write", "rdma-write-with-imm", "send", "send-with-imm"]);
    assert_eq!(opcodes[12..18], ["driver1", "unknown", "unknown", "flush", "atomic-write", "unknown"]);
}

#[test]
fn nothing_is_exported_without_a_version() {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--with-symbol-versions", "--defined-only"]);
    let output = output_of(nm.arg(common::library()));
    let bare: Vec<_> = output.lines().filter(|line| !line.contains('@') && !line.contains(" A ")).collect();
    assert!(bare.is_empty(), "{bare:?}");
}

/// The library's thread, its signal handler and the redirected calls of librdmacm outlast the program's
/// handle.
#[test]
fn dlclose_does_not_unload_the_library() {
    let dynamic = output_of(Command::new("readelf").arg("-d").arg(common::library()));
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn every_symbol_that_driver_libraries_and_librdmacm_import_is_exported() {
    let ours = exported(common::library());
    for driver in ["libmlx5.so.1", "libefa.so.1", "librdmacm.so.1"] {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(driver);
        assert!(path.exists(), "the tests need Debian's packages ibverbs-providers and librdmacm1");
        let listed = output_of(Command::new("nm").args(["-D", "--with-symbol-versions", "-u"]).arg(path));
        let imported = listed.split_whitespace().filter(|name| name.contains("@IBVERBS_"));
        let missing: Vec<_> = imported.filter(|name| !ours.contains(*name)).collect();
        assert!(missing.is_empty(), "{driver} imports {missing:?}");
    }
}

fn output_of(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Returns the private symbols of a version node, without the one named after the node.
fn private_node(node: u32) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--with-symbol-versions", "--defined-only"]);
    let listed = output_of(nm.arg(common::library()));
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2)?.split_once('@'));
    let of_node =
        names.filter(|(_, version)| version.trim_start_matches('@') == format!("IBVERBS_PRIVATE_{node}"));
    let own = format!("verbs_register_driver_{node}");
    let found: BTreeSet<String> = of_node.map(|(name, _)| name.to_owned()).collect();
    assert!(found.contains(&own), "{own}");
    found.into_iter().filter(|name| *name != own).collect()
}

/// Each version node of rdma-core extends the one before, except that 57 dropped one symbol of 34.
#[test]
fn private_symbols_are_exported_with_the_versions_of_all_releases() {
    let dropped = ["ibv_cmd_query_device".to_owned()].into();
    let mut node: BTreeSet<String> = private_node(34).difference(&dropped).cloned().collect();
    assert_eq!(node.len(), 72);
    for (next, more) in [(57, 0), (59, 5), (64, 4), (65, 10)] {
        let wider = private_node(next);
        assert!(wider.is_superset(&node), "{next}: {:?}", node.difference(&wider));
        assert_eq!(wider.len(), node.len() + more, "{next}");
        node = wider;
    }
}
