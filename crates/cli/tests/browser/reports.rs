//! The pages that `--html` writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::chromium::Browser;

const SWEEP: &str = r#"
experiment = "lro-netfpga-cpu"
seeds = [1, 2]

[sweep]
frame = ["64B", "1514B"]
warm-up = [0]
duration = ["1ms"]
interrupt-cost = ["1us", "2us"]
"#;

/// Runs the command, which writes a page, and opens that.
fn open(browser: &mut Browser, folder: &Path, arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(arguments.split_whitespace()).args(["--html", "page.html"]).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    browser.open(&format!("file://{}/page.html", folder.display()));
}

/// What must hold of every page.
fn check(browser: &mut Browser, arguments: &str) {
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    let origin = format!("nichrome {arguments} --html page.html");
    assert!(text.contains(&origin) && text.contains("seed") && text.contains("Linux"), "{origin}: {text}");
    let empty = "[...document.querySelectorAll('.figure')].filter(of => !of.querySelector('polyline, g rect')).length";
    assert_eq!(browser.evaluate(empty), 0, "{arguments}: figures without lines");
    let figures = browser.evaluate("document.querySelectorAll('.figure svg').length").as_u64().unwrap();
    assert!(figures > 0, "{arguments}");
    let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.evaluate(wide), false, "{arguments}: the page is wider than the window");
    zooms(browser);
    reads(browser);
    sorts(browser);
    assert_eq!(browser.requests(), [] as [&str; 0], "{arguments}");
    assert_eq!(browser.complaints(), [] as [&Value; 0], "{arguments}");
}

/// The numbers along both axes of the first figure.
const MARKS: &str = "[...document.querySelectorAll('.figure')[0].querySelectorAll('.x-mark, .y-mark')].map(of => of.textContent).join()";

/// A place in the first figure, as parts of its width and height.
fn place(browser: &mut Browser, (x, y): (f64, f64)) -> (f64, f64) {
    let edges = "(() => { const svg = document.querySelector('.figure svg'); svg.scrollIntoView(); \
                 const at = svg.getBoundingClientRect(); return [at.left, at.top, at.width, at.height]; })()";
    let edges = browser.evaluate(edges);
    let edge = |nth: usize| edges[nth].as_f64().unwrap();
    (edge(0) + edge(2) * x, edge(1) + edge(3) * y)
}

fn zooms(browser: &mut Browser) {
    let all = browser.evaluate(MARKS);
    let (from, to) = (place(browser, (0.3, 0.3)), place(browser, (0.5, 0.6)));
    browser.drag(from, to);
    let part = browser.evaluate(MARKS);
    assert_ne!(all, part, "a figure that zooms has other numbers along its axes");
    browser.evaluate("document.querySelector('.figure [aria-label=\"show all\"]').click()");
    assert_eq!(browser.evaluate(MARKS), all);
    browser.evaluate("document.querySelector('.figure [aria-label=\"zoom in\"]').click()");
    assert_ne!(browser.evaluate(MARKS), all);
    browser.evaluate("document.querySelector('.figure [aria-label=\"show all\"]').click()");
}

fn reads(browser: &mut Browser) {
    let (x, y) = place(browser, (0.5, 0.5));
    browser.mouse("mouseMoved", x, y);
    let read = browser.evaluate("document.querySelector('.figure output').textContent");
    assert!(read.as_str().unwrap().contains(": "), "{read}");
    let line = browser
        .evaluate("document.querySelectorAll('.figure')[0].querySelector('.legend button').textContent");
    browser.evaluate("document.querySelector('.legend button').click()");
    let hidden = browser.evaluate("document.querySelector('.legend button').getAttribute('aria-pressed')");
    assert_eq!(hidden, "false", "{line}");
    browser.evaluate("document.querySelector('.legend button').click()");
}

/// Sorts the longest table by each of its columns, in both directions.
fn sorts(browser: &mut Browser) {
    let sorted = "(() => {
        const table = [...document.querySelectorAll('table.sorts')].sort((a, b) => b.rows.length - a.rows.length)[0];
        const wrong = [];
        for (const [nth, head] of [...table.tHead.rows[0].cells].entries())
            for (const direction of [1, -1]) {
                head.querySelector('button').click();
                const cells = [...table.tBodies[0].rows].map(row => row.cells[nth]);
                const values = cells.every(of => of.className === 'number')
                    ? cells.map(of => Number(of.textContent.match(/[-+]?[\\d,.]+(e[-+]?\\d+)?/)[0].replaceAll(',', '')))
                    : null;
                if (values && !values.every((value, at) => at === 0 || direction * (values[at - 1] - value) <= 0))
                    wrong.push(head.textContent);
            }
        return wrong.join();
    })()";
    assert_eq!(browser.evaluate(sorted), "");
}

#[test]
fn captures_become_pages() {
    let (folder, mut browser) = (tempfile::tempdir().unwrap(), Browser::new());
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures");
    fs::copy(format!("{captures}/tcp-loss.pcap"), folder.path().join("in.pcap")).unwrap();
    for arguments in ["coalesce in.pcap --profile npu", "coalesce in.pcap --compare", "bench lro in.pcap"] {
        open(&mut browser, folder.path(), arguments);
        check(&mut browser, arguments);
    }
}

#[test]
fn experiments_and_sweeps_become_pages() {
    let (folder, mut browser) = (tempfile::tempdir().unwrap(), Browser::new());
    fs::write(folder.path().join("sweep.toml"), SWEEP).unwrap();
    for arguments in [
        "sim run lro-netfpga-cpu --set duration=1ms --seed 7",
        "sim sweep sweep.toml --store store",
        "bench sim",
        "bench checksum",
    ] {
        open(&mut browser, folder.path(), arguments);
        check(&mut browser, arguments);
    }
    let text = browser.evaluate("document.body.innerText");
    assert!(text.as_str().unwrap().contains("CRC-32C"));
}

#[test]
fn live_measurements_become_pages() {
    let (folder, mut browser) = (tempfile::tempdir().unwrap(), Browser::new());
    for arguments in [
        "demo --quick --delay 1ms",
        "bench rdma --quick",
        "bench star --quick",
        "bench overip --quick --figure iwarp-latency-delay --delays 0,1ms",
    ] {
        open(&mut browser, folder.path(), arguments);
        check(&mut browser, arguments);
    }
}
