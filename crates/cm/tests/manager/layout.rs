//! Tests that structures have the sizes and offsets of the kernel's `rdma/rdma_user_cm.h`.

use std::fmt::Write;
use std::process::Command;

use nichrome_cm::ucma::LAYOUTS;

/// Returns a field's name in C; Rust keywords have a trailing underscore in the crate.
fn in_c(field: &str) -> &str {
    field.trim_end_matches('_')
}

/// Compiles and runs a C program that prints one size or offset per line.
fn according_to_c() -> String {
    let mut program = String::from(
        "#include <netinet/in.h>\n#include <rdma/rdma_user_cm.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n",
    );
    for layout in LAYOUTS {
        let name = layout.name;
        writeln!(program, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for field in layout.fields {
            let field = in_c(field.name);
            writeln!(program, "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));")
                .unwrap();
        }
    }
    program.push_str("return 0; }\n");
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc").arg("-o").arg(&binary).arg(&source).status().expect("cc");
    assert!(built.success(), "needs the headers of Debian's package linux-libc-dev");
    String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap()
}

#[test]
fn every_structure_has_the_c_layout() {
    let mut ours = String::new();
    for layout in LAYOUTS {
        writeln!(ours, "{} {}", layout.name, layout.size).unwrap();
        for field in layout.fields {
            writeln!(ours, "{}.{} {}", layout.name, in_c(field.name), field.offset).unwrap();
        }
    }
    let theirs = according_to_c();
    let wrong: Vec<_> = ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(wrong.is_empty(), "(crate, C compiler): {wrong:#?}");
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert!(ours.lines().count() > 200);
}
