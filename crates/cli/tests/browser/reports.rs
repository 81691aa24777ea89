//! The pages that `--html` writes, in a browser.

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

/// Runs a command that writes a page, and opens the page.
fn open(browser: &mut Browser, folder: &Path, arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(arguments.split_whitespace()).args(["--html", "page.html"]).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    browser.open(&format!("file://{}/page.html", folder.display()));
}

/// Sizes of the window and color schemes in which pages are checked; the last one remains for the other
/// checks.
const SHOWN: [((u32, u32), &str); 4] =
    [((400, 800), "light"), ((1900, 1000), "light"), ((1200, 900), "dark"), ((1200, 900), "light")];

/// Checks for every page.
fn check(browser: &mut Browser, arguments: &str) {
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    let origin = format!("nichrome {arguments} --html page.html");
    assert!(text.contains(&origin) && text.contains("seed") && text.contains("Linux"), "{origin}: {text}");
    let empty = "[...document.querySelectorAll('.figure')].filter(of => !of.querySelector('polyline, g rect')).length";
    assert_eq!(browser.evaluate(empty), 0, "{arguments}: figures without lines");
    for (size, scheme) in SHOWN {
        browser.show_as(size, scheme);
        let wrong = browser.evaluate(LAYOUT);
        assert_eq!(wrong, serde_json::json!([]), "{arguments}: {size:?}, {scheme}");
    }
    let figures = browser.evaluate("document.querySelectorAll('.figure svg').length").as_u64().unwrap();
    assert!(figures > 0, "{arguments}");
    for nth in 0..figures {
        zooms(browser, nth);
        ends_with_a_scroll(browser, nth);
        reads(browser, nth);
    }
    sorts(browser);
    assert_eq!(browser.requests(), [] as [&str; 0], "{arguments}");
    assert_eq!(browser.complaints(), [] as [&Value; 0], "{arguments}");
}

/// Returns the faults of the layout: a page wider than the window, text of a figure outside the figure or
/// over other text, and colors with too little contrast to the background (WCAG 2: 4.5 for text; 1.9 here for
/// lines, which the legend also names).
const LAYOUT: &str = "(() => {
    const wrong = [], box = of => of.getBoundingClientRect();
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth) wrong.push('wider than the window');
    const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const luminance = color => {
        const parts = color.match(/[\\d.]+/g).slice(0, 3).map(of => of / 255).map(of => of <= 0.03928 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4);
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const paper = luminance(getComputedStyle(document.body).backgroundColor);
    const contrast = color => { const of = luminance(color); return (Math.max(of, paper) + 0.05) / (Math.min(of, paper) + 0.05); };
    for (const of of document.querySelectorAll('p, td, th, caption, h1, h2, h3, small, button, output'))
        if (contrast(getComputedStyle(of).color) < 4.5) wrong.push(`faint: ${of.textContent}`);
    for (const of of document.querySelectorAll('.legend i'))
        if (contrast(getComputedStyle(of).backgroundColor) < 1.9) wrong.push(`faint line: ${of.parentElement.textContent}`);
    for (const svg of document.querySelectorAll('.figure svg')) {
        const edges = box(svg), texts = [...svg.querySelectorAll('text')];
        for (const of of texts) {
            const at = box(of);
            if (contrast(getComputedStyle(of).fill) < 4.5) wrong.push(`faint: ${of.textContent}`);
            if (at.left < edges.left - 1 || at.right > edges.right + 1 || at.top < edges.top - 1 || at.bottom > edges.bottom + 1)
                wrong.push(`outside: ${of.textContent}`);
        }
        // The bounding boxes of slanted labels overlap, although the labels do not.
        const level = texts.filter(of => !of.getAttribute('transform')?.includes('-50'));
        level.forEach((a, nth) => level.slice(nth + 1).forEach(b =>
            overlap(box(a), box(b)) && wrong.push(`'${a.textContent}' over '${b.textContent}'`)));
    }
    return wrong;
})()";

/// Returns the numbers along both axes of a figure.
fn marks(browser: &mut Browser, nth: u64) -> Value {
    browser.evaluate(&format!(
        "[...document.querySelectorAll('.figure')[{nth}].querySelectorAll('.x-mark, .y-mark')].map(of => of.textContent).join()"
    ))
}

/// Returns the coordinates of a place in a figure, given as fractions of its width and height.
fn place(browser: &mut Browser, nth: u64, (x, y): (f64, f64)) -> (f64, f64) {
    let edges = browser.evaluate(&format!(
        "(() => {{ const svg = document.querySelectorAll('.figure svg')[{nth}]; svg.scrollIntoView(); \
         const at = svg.getBoundingClientRect(); return [at.left, at.top, at.width, at.height]; }})()"
    ));
    let edge = |nth: usize| edges[nth].as_f64().unwrap();
    (edge(0) + edge(2) * x, edge(1) + edge(3) * y)
}

fn press(browser: &mut Browser, nth: u64, label: &str) {
    browser.evaluate(&format!(
        "document.querySelectorAll('.figure')[{nth}].querySelector('[aria-label=\"{label}\"]').click()"
    ));
}

fn zooms(browser: &mut Browser, nth: u64) {
    let all = marks(browser, nth);
    let (from, to) = (place(browser, nth, (0.3, 0.3)), place(browser, nth, (0.5, 0.6)));
    browser.drag(from, to);
    assert_ne!(all, marks(browser, nth), "a figure that zooms has other numbers along its axes");
    press(browser, nth, "show all");
    assert_eq!(marks(browser, nth), all);
    press(browser, nth, "zoom in");
    assert_ne!(marks(browser, nth), all);
    for _ in 0..60 {
        press(browser, nth, "zoom in");
    }
    let closest = marks(browser, nth);
    assert!(!closest.as_str().unwrap().contains("NaN"), "{closest}");
    press(browser, nth, "show all");
    assert_eq!(marks(browser, nth), all);
}

/// Checks that a canceled pointer ends the selection of a part: browsers cancel a touch that scrolls the
/// page.
fn ends_with_a_scroll(browser: &mut Browser, nth: u64) {
    let left = browser.evaluate(&format!(
        "(() => {{ const svg = document.querySelectorAll('.figure svg')[{nth}], at = svg.getBoundingClientRect(); \
         const send = (type, x) => svg.dispatchEvent(new PointerEvent(type, {{ pointerId: 1, clientX: at.left + x, clientY: at.top + x }})); \
         send('pointerdown', 100); send('pointermove', 200); send('pointercancel', 200); \
         return svg.querySelectorAll('.part').length; }})()"
    ));
    assert_eq!(left, 0, "a rectangle is left");
}

/// Points at the middle of a figure's first mark and checks that the output shows the line's name and value;
/// then hides a line.
fn reads(browser: &mut Browser, nth: u64) {
    let at = browser.evaluate(&format!(
        "(() => {{ const of = document.querySelectorAll('.figure svg')[{nth}]; of.scrollIntoView(); \
         const at = of.querySelector('g circle, g path, g rect, g polyline').getBoundingClientRect(); \
         return [at.left + at.width / 2, at.top + at.height / 2]; }})()"
    ));
    browser.mouse("mouseMoved", at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    let read = browser.evaluate(&format!(
        "(() => {{ const figure = document.querySelectorAll('.figure')[{nth}], read = figure.querySelector('output').textContent; \
         const {{ lines }} = JSON.parse(figure.querySelector('script').textContent); \
         const is_there = lines.some(line => read.startsWith(line.name + ': ') && line.points.some(([, y]) => \
             y !== null && read.replace(/ \\(.*/, '').endsWith(`, ${{Number(y.toPrecision(6))}}`))); \
         return is_there || `'${{read}}' is no point of figure {nth}`; }})()"
    ));
    assert_eq!(read, true);
    let line = format!("document.querySelectorAll('.figure')[{nth}].querySelector('.legend button')");
    browser.evaluate(&format!("{line}.click()"));
    assert_eq!(browser.evaluate(&format!("{line}.getAttribute('aria-pressed')")), "false");
    browser.evaluate(&format!("{line}.click()"));
}

/// Sorts all tables by each of their columns, in both directions.
fn sorts(browser: &mut Browser) {
    let sorted = "(() => {
        const wrong = [];
        for (const table of document.querySelectorAll('table.sorts'))
            for (const [nth, head] of [...table.tHead.rows[0].cells].entries())
                for (const direction of [1, -1]) {
                    head.querySelector('button').click();
                    const cells = [...table.tBodies[0].rows].map(row => row.cells[nth]);
                    const values = cells.every(of => of.className === 'number')
                        ? cells.map(of => Number(of.textContent.match(/[-+]?[\\d,.]+(e[-+]?\\d+)?/)[0].replaceAll(',', '')))
                        : null;
                    if (values && !values.every((value, at) => at === 0 || direction * (values[at - 1] - value) <= 0))
                        wrong.push(`${table.caption.textContent}: ${head.textContent}`);
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
    for arguments in [
        "coalesce in.pcap --profile npu",
        "coalesce in.pcap --compare",
        "bench lro in.pcap --quick",
        "bench lro in.pcap --interleave --quick",
    ] {
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
        "bench sim --quick",
        "bench checksum --quick",
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
        "bench wan --quick",
        "bench rdma --quick",
        "bench rdma --quick --connect",
        "bench star --quick",
        "bench overip --quick --figure iwarp-latency-delay --delays 0,1ms",
    ] {
        open(&mut browser, folder.path(), arguments);
        check(&mut browser, arguments);
    }
}

#[test]
#[ignore = "takes minutes: ./check --full"]
fn long_measurements_become_pages() {
    let (folder, mut browser) = (tempfile::tempdir().unwrap(), Browser::new());
    for arguments in ["bench overip --quick", "bench rdma --quick --transport iwarp"] {
        open(&mut browser, folder.path(), arguments);
        check(&mut browser, arguments);
    }
}
