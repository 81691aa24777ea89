//! The page of a running path in a browser.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::chromium::Browser;

/// A path with constant traffic; ended on drop.
struct Path {
    process: Child,
    _room: tempfile::TempDir,
    url: String,
}

impl Path {
    fn new(web: &str) -> Self {
        let room = tempfile::tempdir().unwrap();
        let send = "python3 -c 'import socket, os, time\nwhile True: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(1000), (os.environ[\"PEER\"], 7000)); time.sleep(0.01)'";
        let mut process = Command::new(env!("CARGO_BIN_EXE_nichrome"))
            .args(["wan", "--delay", "5ms", "--jitter", "2ms", "--web", web, "--right", send])
            .env("XDG_RUNTIME_DIR", room.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("the path has ended").unwrap();
            if let Some(url) = line.strip_prefix("nichrome: page at ") {
                break url.replace("0.0.0.0", "127.0.0.1");
            }
        };
        // Keeps the pipe of its output open.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, _room: room, url }
    }
}

impl Drop for Path {
    /// Sends SIGTERM instead of SIGKILL, so that the command stops its programs.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Checks that the page shows the state of a path, and that its sliders change it.
fn is_followed_and_changed(web: &str) {
    let (path, mut browser) = (Path::new(web), Browser::new());
    browser.open(&path.url);
    let slider = |name: &str| format!("document.querySelector('[data-direction=to_left][data-name={name}]')");
    let delay = slider("delay");
    browser.wait_until(&format!("{delay}.value === '5'"));
    browser.wait_until(&format!("{}.value === '2'", slider("jitter")));
    browser.wait_until("document.querySelectorAll('.figure polyline').length >= 12");
    browser
        .wait_until("[...document.querySelectorAll('#totals .number')].some(of => of.textContent !== '0')");
    for (name, place) in [("delay", "20"), ("jitter", "3"), ("loss", "1"), ("rate", "40")] {
        let of = slider(name);
        browser.evaluate(&format!("{of}.value = {place}; {of}.dispatchEvent(new Event('input'))"));
    }
    browser.wait_until("!is_sending && samples.at(-1).to_left.impairments.rate !== undefined");
    let of = slider("queue");
    assert_eq!(
        browser.evaluate("document.querySelector('[data-direction=to_right][data-name=queue]').disabled"),
        true
    );
    browser.wait_until(&format!("!{of}.disabled && {of}.value === '30'"));
    browser.evaluate(&format!("{of}.value = 20; {of}.dispatchEvent(new Event('input'))"));
    browser.wait_until("!is_sending && samples.at(-1).to_left.impairments.queue === '100p'");
    let state = browser.evaluate("samples.at(-1)");
    let impairments = json!({
        "delay": "20ms", "jitter": "uniform:3ms", "loss": "1%", "rate": "640mbit", "queue": "100p", "aqm": "tail-drop",
    });
    assert_eq!(state["to_left"]["impairments"], impairments);
    assert_eq!(state["to_right"]["impairments"], json!({ "delay": "5ms", "jitter": "uniform:2ms" }));
    let of = slider("rate");
    browser.evaluate(&format!("{of}.value = 51; {of}.dispatchEvent(new Event('input'))"));
    browser.wait_until("samples.at(-1).to_left.impairments.rate === undefined");
    assert_eq!(browser.evaluate("message.textContent"), "");
    let origin = path.url.split('#').next().unwrap();
    assert!(browser.requests().iter().all(|url| url.starts_with(origin)), "{:?}", browser.requests());
    assert_eq!(browser.complaints(), [] as [&Value; 0]);
    let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.evaluate(wide), false);
    drop(path);
    browser.wait_until("message.textContent === 'the path has ended'");
}

#[test]
fn a_path_is_followed_and_changed() {
    is_followed_and_changed("0");
}

#[test]
fn a_path_is_followed_and_changed_with_a_token() {
    is_followed_and_changed("0.0.0.0:0");
}
