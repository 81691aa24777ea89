//! Errors are one line, and leave no partly written file.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;

use crate::command::{SHORT, command, failure, names, printed, sim, text};
use crate::common;
use crate::interrupt::interrupt;

#[test]
fn an_endless_file_is_not_read_to_its_end() {
    let folder = tempdir().unwrap();
    let [endless, including] = ["endless.toml", "including.toml"].map(|name| folder.path().join(name));
    symlink("/dev/zero", &endless).unwrap();
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    fs::write(&including, built_in.replacen("include = \"netfpga\"", "include = \"endless.toml\"", 1))
        .unwrap();
    for file in [&endless, &including] {
        let (line, status) = failure(&["run", text(file)]);
        assert!(line.contains("it is longer than 67108864 bytes") && status == 1, "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named_as_the_user_knows_it() {
    let folder = tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 0; exec \"$0\" sim run \"$@\"",
        env!("CARGO_BIN_EXE_nichrome"),
    ]);
    limited.args(SHORT).args(["--set", "frame=64", "--out", text(folder.path())]).stdin(Stdio::null());
    let mut output = limited.output().unwrap();
    let results = std::mem::take(&mut output.stdout);
    assert!(String::from_utf8_lossy(&results).contains("LRO-enabled NIC"), "the results are not lost");
    let (line, status) = common::failure(&output);
    let file = folder.path().join("lro-netfpga-cpu.svg");
    let expected = format!("cannot write {}: File too large (os error 27)", file.display());
    assert_eq!((line, status, names(folder.path())), (expected, 1, Vec::new()));
}

#[test]
fn wrong_commands_are_refused_with_the_reason() {
    for (arguments, expected, status) in [
        (&["run", "lro"][..], "there is no experiment 'lro': there are lro-", 1),
        (&["run", "none.toml"], "cannot read none.toml: No such file or directory (os error 2)", 1),
        (
            &["run", "lro-netfpga-cpu", "--set", "frames=64"],
            "lro-netfpga-cpu, --set frames=64: there is no parameter 'frames': there are lro, frame, ",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--set", "frame"],
            "lro-netfpga-cpu, --set frame: 'frame' is not a setting: expected KEY=VALUE, such as frame=64B",
            2,
        ),
        (
            &["run", "lro-netfpga-two-flows", "--set", "second-flow"],
            "lro-netfpga-two-flows, --set second-flow: 'second-flow' is not a setting: expected KEY=VALUE, such as \
             second-flow=100%",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--set", "duration=5"],
            "lro-netfpga-cpu, --set duration=5: duration: the unit is missing: a time is in ns, us, ms, s, min",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--set", "frame=9000B"],
            "lro-netfpga-cpu, --set frame=9000B: frame: 9kB is out of range: expected 60B to 1514B",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--set", "lro=true"],
            "lro-netfpga-cpu, --set lro=true: lro differs from series to series",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--jobs", "0"],
            "invalid value '0' for '--jobs <N>': expected a whole number from 1 to ",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--seed", "-1"],
            "invalid value '-1' for '--seed <N>': expected a whole number from 0 to 18446744073709551615",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--set", "frame=64,512,64B"],
            "lro-netfpga-cpu, --set frame=64,512,64B: frame: there is a second '64B'",
            2,
        ),
        (
            &["run", "lro-netfpga-cpu", "--point", "NIC"],
            "lro-netfpga-cpu, --point NIC: 'NIC' is not a point: expected SERIES/X, such as 'NIC/64'",
            2,
        ),
        (
            &["run", "lro-npu-throughput", "--point", "with LRO/1", "--set", "receive-threads=14"],
            "lro-npu-throughput, with LRO, connections = 1 connections: receive-threads = 14, a sending and a \
             timeout checking thread and a shell are 17 threads: 4 cores of 4 have 16",
            1,
        ),
        (
            &["run", "lro-netfpga-cpu", "--out", "/proc/none"],
            "cannot write to /proc/none: No such file or directory (os error 2)",
            1,
        ),
        (&["run", "lro-netfpga-cpu", "--out", "/dev/null"], "cannot write to /dev/null: ", 1),
        (
            &["sweep", "none.toml", "--store", "/tmp"],
            "cannot read none.toml: No such file or directory (os error 2)",
            1,
        ),
        (&["collect", "/none"], "cannot read /none: No such file or directory (os error 2)", 1),
        (
            &["point", "lro-netfpga-cpu", "--series", "card", "--store", "/tmp"],
            "lro-netfpga-cpu: there is no series 'card': there are NIC, LRO-enabled NIC",
            2,
        ),
        (
            &["point", "lro-netfpga-cpu", "--series", "NIC", "--store", "/tmp"],
            "one place on the axis is needed: --set frame=VALUE",
            2,
        ),
    ] {
        let (line, code) = failure(arguments);
        assert!(line.starts_with(expected) && code == status, "{arguments:?}: {line}");
    }
}

#[test]
fn no_command_writes_a_file_that_it_reads_or_writes_twice() {
    let folder = tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    let (include, included) = ("include = \"netfpga\"", "include = \"netfpga.toml\"");
    assert!(built_in.contains(include));
    fs::write(at("own.toml"), built_in.replacen(include, included, 1)).unwrap();
    fs::copy("../../experiments/parameters/netfpga.toml", at("netfpga.toml")).unwrap();
    fs::write(at("sweep.toml"), "experiment = \"own.toml\"\n[sweep]\nframe = [64]\nduration = [\"1ms\"]\n")
        .unwrap();
    let before = ["own.toml", "netfpga.toml", "sweep.toml"].map(|name| fs::read(at(name)).unwrap());
    let [own, sweep, new] = ["own.toml", "sweep.toml", "new"].map(at);
    let in_new = |name: &str| at(&format!("new/lro-netfpga-cpu.{name}"));
    for (arguments, page, first, second) in [
        (&["sweep", &sweep, "--store", &new, "--html"][..], sweep.clone(), "FILE", "--html"),
        (&["sweep", &sweep, "--store", &new, "--html"], own.clone(), "experiment", "--html"),
        (&["sweep", &sweep, "--store", &new, "--html"], at("netfpga.toml"), "include", "--html"),
        (&["run", &own, "--html"], at("netfpga.toml"), "include", "--html"),
        (&["run", &own, "--out", &new, "--html"], in_new("json"), "--out", "--html"),
        (
            &["run", &own, "--out", &new, "--point", "NIC/64", "--capture"],
            in_new("jsonl"),
            "--capture",
            "--out",
        ),
        (
            &["run", &own, "--out", &at("."), "--point", "NIC/64", "--series"],
            at("lro-netfpga-cpu.json"),
            "--series",
            "--out",
        ),
    ] {
        let (line, status) = failure(&[arguments, &[&page]].concat());
        assert!(
            line.starts_with(&format!("{first} and {second} are the same file, ")) && status == 2,
            "{line}"
        );
    }
    assert_eq!(before, ["own.toml", "netfpga.toml", "sweep.toml"].map(|name| fs::read(at(name)).unwrap()));
    assert_eq!(names(folder.path()), ["netfpga.toml", "own.toml", "sweep.toml"]);
}

#[test]
fn a_page_does_not_replace_a_record_of_the_store() {
    let folder = tempdir().unwrap();
    let [sweep, store] = ["sweep.toml", "store"].map(|name| folder.path().join(name));
    fs::write(
        &sweep,
        "experiment = \"lro-netfpga-cpu\"\n[sweep]\nframe = [64]\nduration = [\"1ms\"]\nwarm-up = [0]\n",
    )
    .unwrap();
    let arguments = ["sweep", text(&sweep), "--store", text(&store)];
    printed(&arguments);
    let record = store.join(&names(&store)[0]);
    let (line, status) = failure(&[&arguments[..], &["--html", text(&record)]].concat());
    let expected = format!("--store and --html are the same file, {}: name another", record.display());
    assert_eq!((line, status), (expected, 2));
}

#[test]
fn errors_in_a_file_name_the_line() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    let name = text(&file);
    let line_of = |text: &str| built_in.lines().position(|line| line.starts_with(text)).unwrap() + 1;
    for (from, to, line, message) in [
        (
            "unit = \"B\"",
            "unit = \"bytes\"",
            line_of("values"),
            "x.values: unknown unit 'bytes': a size is in B, kB, MB, KiB, MiB, GiB",
        ),
        (
            "metric =",
            "metrics =",
            line_of("metric"),
            "there is no 'series.metrics': there are name, metric, set",
        ),
        ("include = \"netfpga\"\n", "", 1, "there must be parameters."),
    ] {
        assert!(built_in.contains(from));
        fs::write(&file, built_in.replacen(from, to, 1)).unwrap();
        let expected = format!("{name}, line {line}: {message}");
        let (line, status) = failure(&["run", name]);
        assert!(line.starts_with(&expected) && status == 1, "{line}");
    }
    fs::write(&file, "experiment = \"lro-netfpga-cpu\"\n[sweep]\nframe = [\"64B\", \"65 GB\"]").unwrap();
    let (line, _) = failure(&["sweep", name, "--store", text(folder.path())]);
    assert!(line.starts_with(&format!("{name}, line 3: sweep.frame: unknown unit 'GB'")), "{line}");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported_before_the_run() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let series = folder.path().join("none/series.csv");
    let long = ["run", "lro-netfpga-cpu", "--point", "NIC/64", "--set", "duration=10s", "--series"];
    let expected = format!("cannot write {}: No such file or directory (os error 2)", series.display());
    assert_eq!(failure(&[&long[..], &[text(&series)]].concat()), (expected, 1));
    for option in ["--out", "--store"] {
        let arguments = match option {
            "--out" => vec!["run", "lro-netfpga-cpu", "--set", "duration=10s", option, text(&file)],
            _ => vec![
                "point",
                SHORT[0],
                "--series",
                "NIC",
                "--set",
                "frame=64B",
                "--set",
                "duration=10s",
                option,
                text(&file),
            ],
        };
        assert_eq!(failure(&arguments), (format!("cannot write to {}: not a directory", file.display()), 1));
    }
}

/// A failure to write files must not lose the results: the runs take minutes.
#[test]
fn results_whose_files_cannot_be_written_are_printed() {
    let folder = tempdir().unwrap();
    for (command, file) in
        [("run", "lro-netfpga-cpu.svg"), ("sensitivity", "lro-netfpga-cpu-sensitivity.json")]
    {
        // A folder of this name makes the write fail.
        fs::create_dir(folder.path().join(file)).unwrap();
        let page = folder.path().join(format!("{command}.html"));
        let paged = if command == "run" { &["--html", text(&page)][..] } else { &[] };
        let settings = ["--set", "frame=1514", "--samples", "1", "--out", text(folder.path())];
        let output = sim(&[&[command], &SHORT[..], &settings, paged].concat());
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(stdout.contains("Load of the receiving core"), "{command}: {stdout}");
        assert_eq!(paged.is_empty(), !page.exists(), "{command}");
    }
}

#[test]
fn a_run_that_fails_leaves_no_folders() {
    let folder = tempdir().unwrap();
    let [outer, inner] = ["outer", "outer/inner"].map(|name| folder.path().join(name));
    let run = ["run", "star-rpc", "--set", "loss=1%", "--out", text(&inner)];
    let (line, status) = failure(&run);
    assert!(line.contains("star-rpc, ") && status == 1, "{line}");
    assert!(!outer.exists(), "{line}");
    fs::create_dir(&outer).unwrap();
    failure(&run);
    assert!(outer.exists() && names(&outer).is_empty(), "only what the command created");
}

#[test]
fn a_signal_ends_a_run_with_one_line_and_without_files() {
    let folder = tempdir().unwrap();
    let [out, page] = ["out/inner", "page.html"].map(|name| folder.path().join(name));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let run =
            ["run", "lro-netfpga-cpu", "--set", "duration=10s", "--out", text(&out), "--html", text(&page)];
        let child = command(&run).spawn().unwrap();
        interrupt(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(128 + signal.as_raw()), 0));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error, "nichrome: interrupted after 0 of 16 runs\n");
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "{signal:?}");
    }
}

#[test]
fn a_signal_reports_the_completed_runs_of_the_readings() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    let reading = "[[reading]]\nname = \"longer\"\nset = { duration = \"10s\" }\nsource = \"none\"\n";
    let short = "[parameters]\nduration = { value = 1, unit = \"ms\", source = \"none\" }\n";
    fs::write(&file, format!("{built_in}\n{reading}\n{short}")).unwrap();
    let run = ["run", text(&file), "--set", "warm-up=0", "--jobs", "1"];
    let (mut pause, mut of_readings, mut between) = (Duration::from_millis(200), 0, 0);
    while of_readings < 10 {
        let child = command(&run).spawn().unwrap();
        thread::sleep(pause);
        interrupt(&child, Signal::INT);
        let error = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        if error == "nichrome: interrupted after 16 of 16 runs\n" {
            // Correct in the short time before the runs of the reading begin.
            between += 1;
            assert!(between <= 2, "{of_readings} times of the readings");
        } else if error.ends_with(" of 16 runs\n") {
            // A busy machine takes longer for the runs before those of the reading.
            pause *= 2;
            assert!(pause < Duration::from_secs(60), "{error}");
        } else {
            assert_eq!(error, "nichrome: interrupted after 0 of 4 runs\n");
            of_readings += 1;
        }
    }
}

#[test]
fn a_run_under_nohup_survives_its_terminal() {
    let run = [env!("CARGO_BIN_EXE_nichrome"), "sim", "run", "lro-netfpga-cpu", "--set", "duration=10s"];
    let mut nohup = Command::new("nohup");
    let child = nohup.args(run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    interrupt(&child, Signal::HUP);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}
