//! The links of the book and of the documents lead to existing files and headings.

use std::fs;
use std::path::{Path, PathBuf};

use crate::blocks::{pages, source};

/// Returns the targets of all links in a text, except those in code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") {
            continue;
        }
        let mut rest = line;
        while let Some((_, behind)) = rest.split_once("](") {
            let Some((target, after)) = behind.split_once(')') else { break };
            links.push(target.to_owned());
            rest = after;
        }
    }
    links
}

/// Returns the anchors of a text's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|of| of.is_alphanumeric() || " -_".contains(*of));
        kept.map(|of| if of == ' ' { '-' } else { of }).collect()
    };
    headings.map(name).collect()
}

/// Returns the broken links of a file.
fn broken(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut broken = Vec::new();
    for link in links(&text) {
        if link.contains("://") {
            continue;
        }
        let (path, anchor) =
            link.split_once('#').map_or((&*link, None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { file.to_owned() } else { file.parent().unwrap().join(path) };
        let is_right = match anchor {
            None => target.exists(),
            Some(anchor) => {
                fs::read_to_string(&target).is_ok_and(|text| anchors(&text).iter().any(|of| of == anchor))
            }
        };
        if !is_right {
            broken.push(format!("{}: {link}", file.display()));
        }
    }
    broken
}

#[test]
fn all_links_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let top = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md"].map(|name| root.join(name));
    let pages: Vec<PathBuf> = pages().iter().map(|page| source().join(page)).collect();
    let broken: Vec<_> =
        pages.into_iter().chain(documents).chain(top).flat_map(|file| broken(&file)).collect();
    assert_eq!(broken, [] as [String; 0]);
}

#[test]
fn the_summary_lists_every_page_and_document_once() {
    let summary = fs::read_to_string(source().join("SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort();
    let documents = fs::read_dir(source().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let documents = documents.map(|name| format!("docs/{}", name.to_str().unwrap()));
    let documents = documents.filter(|name| name.ends_with(".md"));
    let mut there: Vec<String> = pages().iter().map(|page| page.to_str().unwrap().to_owned()).collect();
    there.extend(documents);
    there.retain(|page| page != "SUMMARY.md");
    there.sort();
    assert_eq!(listed, there);
}

#[test]
fn a_broken_link_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.md");
    fs::write(&file, "# One, two\n[x](#one-two) [y](#three) [z](b.md)\n```sh\n[no](link)\n```\n").unwrap();
    let broken = broken(&file);
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(broken[0].ends_with("#three") && broken[1].ends_with("b.md"));
}
