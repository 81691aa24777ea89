//! The book's pages and the fenced blocks in them.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of the book's pages.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src").canonicalize().unwrap()
}

/// Returns the paths of all pages of the book itself, relative to its folder.
pub(crate) fn pages() -> Vec<PathBuf> {
    let source = source();
    let mut pages = Vec::new();
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            // docs/ is a link to the repository's documents.
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "md") {
                pages.push(entry.path().strip_prefix(&source).unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its language.
    pub(crate) language: String,
    pub(crate) text: String,
    pub(crate) note: Note,
}

/// The note in the comment above a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Note {
    None,
    /// The block cannot be run, for this reason.
    NotRun(String),
    /// The block is a file of this name.
    File(String),
}

impl Note {
    fn of(line: &str) -> Self {
        let comment = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        match comment.and_then(|comment| comment.split_once(": ")) {
            Some(("not run", why)) => Self::NotRun(why.into()),
            Some(("file", name)) => Self::File(name.into()),
            _ => Self::None,
        }
    }
}

/// Returns the fenced blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| *line != "```");
            let text = inside.map(|line| format!("{line}\n")).collect();
            blocks.push(Block { language: language.to_owned(), text, note: Note::of(before) });
        }
        before = line;
    }
    blocks
}

#[test]
fn blocks_have_the_note_above_them() {
    let page = "a\n```sh\none\ntwo\n```\n<!-- not run: needs root -->\n```sh\nthree\n```\n<!-- file: x.toml -->\n```toml\n```\n";
    let block =
        |language: &str, text: &str, note| Block { language: language.into(), text: text.into(), note };
    let expected = [
        block("sh", "one\ntwo\n", Note::None),
        block("sh", "three\n", Note::NotRun("needs root".into())),
        block("toml", "", Note::File("x.toml".into())),
    ];
    assert_eq!(blocks(page), expected);
}
