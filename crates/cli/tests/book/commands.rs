//! Every command block of the book runs, except those with a note that says why not.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::blocks::{Note, blocks, pages, source};

/// Returns a value of PATH with the folder of the command first.
fn path(folder: &Path) -> OsString {
    let nichrome = Path::new(env!("CARGO_BIN_EXE_nichrome")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = [nichrome, folder.to_owned()].into_iter().chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).unwrap()
}

/// Runs the blocks of a page in order, in a folder of their own.
fn run(page: &str) {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(source().join(page)).unwrap();
    for block in blocks(&text) {
        match (&*block.language, &block.note) {
            (_, Note::File(name)) => fs::write(folder.path().join(name), &block.text).unwrap(),
            ("sh", Note::None) => {
                let output = Command::new("sh")
                    .args(["-e", "-c", &block.text])
                    .current_dir(folder.path())
                    .env("PATH", path(folder.path()))
                    .env("CAPTURES", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures"))
                    .env("XDG_RUNTIME_DIR", folder.path())
                    .stdin(Stdio::null())
                    .output()
                    .unwrap();
                let (printed, errors) =
                    (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                assert!(output.status.success(), "{page}: {}\n{printed}{errors}", block.text);
            }
            _ => {}
        }
    }
}

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[test]
        fn $name() {
            run($page);
        })*

        /// The pages with blocks that tests run.
        const RUN: &[&str] = &[$($page),*];
    };
}

pages! {
    the_tutorial_of_receive_offload_runs: "tutorials/offload.md",
    the_tutorial_of_rdma_runs: "tutorials/rdma.md",
    the_tutorial_of_the_path_runs: "tutorials/wan.md",
    the_tutorial_of_experiments_runs: "tutorials/experiment.md",
    how_to_install_runs: "how-to/install.md",
    how_to_compare_cards_runs: "how-to/compare-cards.md",
    how_to_share_pages_runs: "how-to/pages.md",
    how_to_run_a_sweep_runs: "how-to/sweep.md",
}

#[test]
fn no_page_with_commands_is_left_out() {
    let has_commands = |page: &&PathBuf| {
        let text = fs::read_to_string(source().join(page)).unwrap();
        blocks(&text).iter().any(|block| block.language == "sh" && block.note == Note::None)
    };
    let pages = pages();
    let mut with_commands: Vec<_> =
        pages.iter().filter(has_commands).map(|page| page.to_str().unwrap()).collect();
    let mut run = RUN.to_vec();
    with_commands.sort_unstable();
    run.sort_unstable();
    assert_eq!(with_commands, run);
}

#[test]
fn blocks_are_of_known_kinds() {
    for page in pages() {
        let text = fs::read_to_string(source().join(&page)).unwrap();
        for block in blocks(&text) {
            let known = ["sh", "toml", "text", "python", "rust,ignore"].contains(&&*block.language);
            assert!(known, "{}: '{}'", page.display(), block.language);
        }
    }
}
