//! Tests that the structures have the sizes and offsets of the headers of libibverbs-dev and linux-libc-dev.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::process::Command;

use nichrome_abi::header::{LAYOUTS, Layout};

/// Returns a field's name in C; Rust keywords have a trailing underscore in the crate.
fn in_c(field: &str) -> &str {
    match field {
        "type_" => "type",
        "priv_" => "priv",
        field => field,
    }
}

/// Compiles and runs a C program that prints one size or offset per line.
fn according_to_c(layouts: &[Layout]) -> String {
    let mut program = String::from(
        "#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <rdma/ib_user_sa.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n",
    );
    for Layout { name, fields, .. } in layouts {
        let _ = writeln!(program, "printf(\"{name} %zu\\n\", sizeof({}));", kind(name));
        for field in *fields {
            let (kind, c) = (kind(name), in_c(field.name));
            let _ = writeln!(program, "printf(\"{name}.{c} %zu\\n\", offsetof({kind}, {c}));");
        }
    }
    program.push_str("return 0; }\n");
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc").arg("-o").arg(&binary).arg(&source).status().expect("cc");
    assert!(built.success(), "needs the headers of Debian's package libibverbs-dev");
    String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap()
}

fn kind(name: &str) -> String {
    format!("struct {name}")
}

fn according_to_us(layouts: &[Layout]) -> String {
    let mut lines = String::new();
    for Layout { name, size, fields } in layouts {
        let _ = writeln!(lines, "{name} {size}");
        for field in *fields {
            let _ = writeln!(lines, "{name}.{} {}", in_c(field.name), field.offset);
        }
    }
    lines
}

#[test]
fn every_structure_has_the_c_layout() {
    let layouts: Vec<Layout> = LAYOUTS.concat();
    let (ours, theirs) = (according_to_us(&layouts), according_to_c(&layouts));
    let wrong: Vec<_> = ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(wrong.is_empty(), "(crate, C compiler): {wrong:#?}");
    assert_eq!(ours.lines().count(), theirs.lines().count());
}
