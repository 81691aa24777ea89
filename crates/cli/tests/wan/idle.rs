//! Processor time of a path without traffic.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::run::Room;

/// Returns the processor time of a process with all its threads, in clock ticks of 10 ms (proc_pid_stat(5)).
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn an_idle_path_takes_less_than_a_hundredth_of_a_core() {
    let path = Room::new().start(&[
        "--delay",
        "50ms",
        "--rate",
        "10mbit",
        "--left",
        "echo up; exec sleep 60",
        "--right",
        "echo up; exec sleep 60",
    ]);
    path.wait_for("left  | up");
    path.wait_for("right | up");
    let before = ticks(path.pid());
    // The measured interval.
    thread::sleep(Duration::from_secs(3));
    let used = ticks(path.pid()) - before;
    assert!(used < 3, "{used} of 300 ticks");
}
