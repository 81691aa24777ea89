//! Small crates as samples: every form of import, and one violation each that must be reported.

use super::arrows::Arrows;
use super::circles::circles;
use super::direction::direction;
use super::layers::{Layers, Siblings};
use super::modules::{ModuleTree, Sources};

fn sources(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(file, source)| ((*file).to_owned(), (*source).to_owned())).collect()
}

fn arrows(files: &[(&str, &str)]) -> Arrows {
    Arrows::of(&ModuleTree::read(&sources(files)))
}

/// Returns the imports of a crate: importing file, imported file, names.
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let described = |((from, to), names): (&(String, String), &super::arrows::Names)| {
        let names: Vec<&str> = names.keys().map(String::as_str).collect();
        format!("{from} -> {to}: {}", names.join(" "))
    };
    arrows(files).0.iter().map(described).collect()
}

/// Returns the imports of a library with modules `a`, `b` and `c`, whose first two have these sources.
fn with_c(a: &str, b: &str) -> Vec<String> {
    let c = "pub struct C; pub fn make() -> C { C } #[macro_export] macro_rules! c { () => {}; }";
    imports(&[("lib.rs", "mod a; mod b; mod c; pub use c::C;"), ("a.rs", a), ("b.rs", b), ("c.rs", c)])
}

#[test]
fn imports_are_found_however_they_are_written() {
    let forms = [
        "use crate::c::C;",
        "use super::c::C;",
        "use crate::{b, c::{C}};",
        "use crate::c::C as Other;",
        "use crate::C;",
        "use super::C;",
        "use crate::c; fn f(_: c::C) {}",
        "use crate::c::{self}; fn f(_: c::C) {}",
        "use crate::c::*; fn f(_: C) {}",
        "fn f() -> crate::c::C { todo!() }",
        "fn f() { println!(\"{}\", crate::c::C); }",
        "#[derive(Debug)] struct S { #[arg(value_parser = crate::c::C)] field: u8 }",
        "macro_rules! m { () => { $crate::c::C }; }",
        "mod inner { use super::super::c::C; }",
        "pub use crate::c::C;",
    ];
    for form in forms {
        assert_eq!(with_c(form, ""), ["a.rs -> c.rs: C"], "{form}");
    }
}

#[test]
fn a_name_counts_for_the_file_that_defines_it() {
    assert_eq!(with_c("use crate::b::C;", "pub use crate::c::C;"), ["a.rs -> c.rs: C", "b.rs -> c.rs: C"]);
    assert_eq!(with_c("use crate::b::Other;", "pub use crate::c::C as Other;").len(), 2);
    assert_eq!(with_c("use crate::b::C;", "pub use crate::c::*;"), ["a.rs -> c.rs: C"]);
    assert_eq!(with_c("use crate::b::made;", "made! { struct X; }"), ["a.rs -> b.rs: made"]);
    assert_eq!(with_c("use crate::b::X;", "made! { struct X; }"), ["a.rs -> b.rs: X"]);
}

#[test]
fn other_crates_tests_and_modules_alone_are_no_imports() {
    let others = [
        "use std::fmt::Debug;",
        "use crate::c;",
        "#[cfg(test)] mod tests { use crate::c::C; }",
        "#[cfg(test)] use crate::c::C;",
        "struct S; impl S { #[cfg(test)] fn f(_: crate::c::C) {} }",
        "fn f(c: S) -> u8 { c.make() }",
        "//! See [`crate::c::C`].",
    ];
    for other in others {
        assert_eq!(with_c(other, ""), [""; 0], "{other}");
    }
}

#[test]
fn a_parent_may_declare_and_reexport_its_children() {
    let child = ("a/child.rs", "use super::Parent;");
    let handing_on =
        [("lib.rs", "mod a;"), ("a/mod.rs", "mod child; pub use child::Child; pub struct Parent;"), child];
    assert_eq!(imports(&handing_on), ["a/child.rs -> a/mod.rs: Parent"]);
    let using = [
        ("lib.rs", "mod a;"),
        ("a.rs", "mod child; pub use child::Child; pub struct Parent(Child);"),
        ("a/child.rs", "pub struct Child; use super::Parent;"),
    ];
    assert_eq!(circles("sample", &arrows(&using)).len(), 1);
}

#[test]
fn a_circle_is_reported_with_its_imports() {
    let ring = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "\nuse crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::{C, D}; pub struct B;"),
        ("c.rs", "pub struct C; pub struct D; fn f() { crate::a::A; }"),
        ("d.rs", "use crate::a::A;"),
    ];
    let report = "crates/sample: 3 files import each other in a circle\n    \
                  a.rs imports b.rs: B (line 2)\n    \
                  b.rs imports c.rs: C (line 1), D (line 1)\n    \
                  c.rs imports a.rs: A (line 1)";
    assert_eq!(circles("sample", &arrows(&ring)), [report]);
    let cut = ring.map(|(file, source)| (file, if file == "b.rs" { "pub struct B;" } else { source }));
    assert_eq!(circles("sample", &arrows(&cut)), [""; 0]);
}

/// The layers of a sample crate with three layers; the middle one has two siblings.
const LAYERS: Layers = &[&["low.rs"], &["left/", "right/"], &["high.rs"]];
const SIBLINGS: Siblings = &[&["left/", "right/"]];

/// Returns the report on a crate with these layers, in which `file` has this source.
fn reported(file: &str, source: &str) -> Vec<String> {
    let mut files = sources(&[
        ("lib.rs", "mod low; mod left; mod right; mod high;"),
        ("low.rs", "pub struct Low;"),
        ("left/mod.rs", "pub mod x; pub struct Left;"),
        ("left/x.rs", "use super::Left;"),
        ("right.rs", "pub mod y; use crate::low::Low;"),
        ("right/y.rs", "pub struct Right;"),
        ("high.rs", "use crate::low::Low; use crate::left::Left; pub struct High;"),
    ]);
    files.insert(file.into(), source.into());
    let arrows = Arrows::of(&ModuleTree::read(&files));
    direction("sample", LAYERS, SIBLINGS, &files, &arrows)
}

#[test]
fn an_import_that_goes_up_is_reported() {
    assert_eq!(reported("low.rs", "pub struct Low;"), [""; 0]);
    let report = "crates/sample: this import goes up a layer: low.rs imports high.rs: High (line 2)";
    assert_eq!(reported("low.rs", "pub struct Low;\nuse crate::high::High;"), [report]);
    assert_eq!(reported("right/y.rs", "pub struct Right; use crate::high::High;").len(), 1);
    assert_eq!(reported("right/y.rs", "pub struct Right; use crate::low::Low;"), [""; 0]);
}

#[test]
fn an_import_of_a_sibling_is_reported() {
    let report =
        "crates/sample: siblings must not import each other: left/x.rs imports right/y.rs: Right (line 1)";
    assert_eq!(reported("left/x.rs", "use crate::right::y::Right;"), [report]);
    assert_eq!(reported("right.rs", "pub mod y; use crate::left::Left;").len(), 1);
}

#[test]
fn a_file_without_a_layer_and_a_layer_without_a_file_are_reported() {
    let found = reported("new.rs", "");
    assert_eq!(found, ["crates/sample: new.rs is in no layer of the table"]);
    let files = sources(&[("lib.rs", "")]);
    let arrows = Arrows::of(&ModuleTree::read(&files));
    let found = direction("sample", &[&["gone.rs"]], &[], &files, &arrows);
    assert_eq!(found, ["crates/sample: the table has gone.rs, which holds no file"]);
}

#[test]
fn a_file_that_no_module_declares_is_found() {
    let files = sources(&[("lib.rs", "#[cfg(test)] mod tests;"), ("tests.rs", ""), ("forgotten.rs", "")]);
    assert_eq!(ModuleTree::read(&files).undeclared(&files), ["forgotten.rs"]);
}
