//! The book as HTML, which mdbook has generated in the folder NICHROME_BOOK.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::chromium::Browser;

/// Returns the HTML files below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
    pages
}

/// Collects link targets within the book, missing pictures, element IDs, the page's width and its length of
/// text.
const FOUND: &str = "({
    links: [...document.querySelectorAll('a[href]')].map(of => of.href).filter(of => of.startsWith('file:')),
    missing: [...document.images].filter(of => !of.complete || of.naturalWidth === 0).map(of => of.src),
    names: [...document.querySelectorAll('[id]')].map(of => of.id),
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    text: document.querySelector('main')?.innerText.trim().length ?? 0,
})";

#[test]
#[ignore = "needs mdbook: ./check --full"]
fn the_book_is_whole_in_a_browser() {
    let folder = PathBuf::from(std::env::var_os("NICHROME_BOOK").unwrap()).canonicalize().unwrap();
    let mut browser = Browser::new();
    let mut found = BTreeMap::new();
    // 404.html needs a server's root, and toc.html is only embedded in other pages.
    let left_out = ["404.html", "toc.html"];
    for page in pages(&folder) {
        let name = page.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        if left_out.contains(&&*name) {
            continue;
        }
        browser.open(&format!("file://{}", page.display()));
        browser.wait_until("document.readyState === 'complete'");
        let of_page = browser.evaluate(FOUND);
        assert_eq!(of_page["missing"], serde_json::json!([]), "{name}: pictures");
        assert_eq!(of_page["wide"], false, "{name} is wider than the window");
        assert!(of_page["text"].as_u64().unwrap() > 200, "{name} is empty");
        assert!(
            browser.requests().iter().all(|url| url.starts_with("file:")),
            "{name}: {:?}",
            browser.requests()
        );
        assert_eq!(browser.complaints(), [] as [&Value; 0], "{name}");
        found.insert(page, of_page);
    }
    assert!(found.len() > 20, "{} pages", found.len());
    let words = |of: &Value, key: &str| -> Vec<String> {
        of[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut broken = Vec::new();
    for (page, of_page) in &found {
        for link in words(of_page, "links") {
            let (path, anchor) = link.split_once('#').map_or((&*link, ""), |(path, anchor)| (path, anchor));
            let target = PathBuf::from(path.trim_start_matches("file://"));
            let is_there = found.get(&target).map_or_else(
                || target.exists(),
                |of| anchor.is_empty() || words(of, "names").iter().any(|name| name == anchor),
            );
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
