//! `nichrome rdma run` and `nichrome rdma devices`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Creates libraries without functions, which any program can load.
fn with_library(folder: &Path) -> PathBuf {
    let source = folder.join("empty.c");
    std::fs::write(&source, "").unwrap();
    for name in ["libnichrome-devices.so", "libibverbs.so.1"] {
        let built = Command::new("cc").args(["-shared", "-o"]).args([&folder.join(name), &source]).status();
        assert!(built.unwrap().success());
    }
    folder.join("libibverbs.so.1")
}

fn run(arguments: &[&str]) -> Output {
    rdma("run", arguments)
}

fn rdma(name: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", name, "--library"]).arg(library).args(arguments).output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn both_libraries_are_preloaded_and_their_folder_comes_first() {
    let text = printed(&run(&["--", "sh", "-c", "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH; echo $PATH"]));
    let lines: Vec<_> = text.lines().collect();
    let folder = lines[1].split(':').next().unwrap();
    assert_eq!(lines[0], format!("{folder}/libnichrome-devices.so:{folder}/libibverbs.so.1"));
    assert!(lines[2].starts_with(&format!("{folder}/bin:")), "{text}");
}

#[test]
fn a_program_beside_the_libraries_needs_no_other_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/echo", folder.path().join("bin/only-here")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "run", "--library"]).arg(library).args(["--", "only-here", "link", "show"]);
    assert_eq!(printed(&command.output().unwrap()), "link show\n");
}

#[test]
fn settings_of_other_libraries_yield_to_the_users() {
    let script = ["--", "sh", "-c", "echo $UCX_FENCE_MODE"];
    assert_eq!(printed(&run(&script)), "weak\n");
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "run", "--verbose", "--library"]).arg(library).args(script);
    let shown = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(shown.contains("nichrome: UCX_FENCE_MODE=weak\n"), "{shown}");
    let output = command.env("UCX_FENCE_MODE", "strong").output().unwrap();
    assert_eq!(printed(&output), "strong\n");
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(!shown.contains("UCX_FENCE_MODE"), "{shown}");
}

#[test]
fn a_program_with_address_sanitizer_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").args(["-fsanitize=address", "-o"]).args([&program, &source]).status();
    assert!(built.unwrap().success());
    printed(&run(&["--", program.to_str().unwrap()]));
}

#[test]
fn the_doctor_says_why_a_program_uses_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "doctor", "--library"]).arg(library).args(["--", "sh", "-c", "echo here"]);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here\n");
    let report = complaint(&output);
    assert!(report.starts_with("No device: the program is not linked with libibverbs"), "{report}");
    assert_eq!(output.status.code(), Some(1));
}

/// Returns the only line on standard error.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn the_options_become_variables_and_the_programs_status_is_the_commands() {
    let script = "echo $NICHROME_TRANSPORT $NICHROME_IP $NICHROME_LOSS $NICHROME_STATS; exit 7";
    let output = run(&[
        "--transport",
        "roce",
        "--ip",
        "127.0.0.9",
        "--loss",
        "1%",
        "--stats",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "roce 127.0.0.9 1% 1\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn an_interface_takes_precedence_over_an_address_in_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "run", "--iface", "lo", "--library"]).arg(library);
    command.args(["--", "sh", "-c", "echo $NICHROME_IFACE, $NICHROME_IP."]).env("NICHROME_IP", "127.0.0.5");
    assert_eq!(printed(&command.output().unwrap()), "lo, .\n");
}

#[test]
fn programs_that_cannot_load_the_library_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    let name = program.to_str().unwrap();
    let error = complaint(&run(&["--", name]));
    assert!(error.contains("statically linked"), "{error}");

    let mut bytes = std::fs::read("/bin/true").unwrap();
    // RISC-V.
    bytes[18] = 0xF3;
    std::fs::write(&program, bytes).unwrap();
    let output = run(&["--", name]);
    // The status that a shell has in this case.
    assert_eq!(output.status.code(), Some(126));
    let error = complaint(&output);
    assert!(error.contains("another processor"), "{error}");

    let text = "const char *s = \"/sys/class/infiniband_verbs\"; int main(void) { return *s == 0; }\n";
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("cc").arg("-o").args([&program, &source]).status().unwrap().success());
    let error = complaint(&run(&["--", name]));
    assert!(error.contains("libibverbs linked in statically"), "{error}");

    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let error = complaint(&run(&["--", name]));
    assert!(error.contains("set-user-ID"), "{error}");
}

#[test]
fn wrong_values_are_refused_before_the_program_runs() {
    for (arguments, status) in [
        (&["--loss", "1x", "--", "true"][..], 2),
        (&["--path-mtu", "1500", "--", "true"], 2),
        (&["--transport", "tcp", "--", "true"], 2),
        (&["--ip", "127.0.0.9", "--iface", "lo", "--", "true"], 2),
        (&["--lose", "1%", "--", "true"], 2),
        (&["--iface", "nosuch0", "--", "true"], 1),
        (&["--"], 2),
    ] {
        let output = run(arguments);
        complaint(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn programs_that_cannot_be_started_have_the_shells_exit_statuses() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (denied, lost) = (path("denied"), path("lost"));
    std::fs::write(&denied, "#!/bin/sh\n").unwrap();
    std::fs::write(&lost, "#!/nonexistent\n").unwrap();
    std::fs::set_permissions(&lost, std::fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["run", "doctor"] {
        for (program, error, status) in [
            ("no-such-program", "nichrome: cannot find the program no-such-program\n".into(), 127),
            ("/nonexistent", "nichrome: cannot find the program /nonexistent\n".into(), 127),
            ("", "nichrome: cannot find the program \n".into(), 127),
            (&denied, format!("nichrome: {denied} is not executable\n"), 126),
            ("/", "nichrome: / is not executable\n".into(), 126),
            (&lost, format!("nichrome: cannot run {lost}: No such file or directory (os error 2)\n"), 127),
        ] {
            let output = rdma(command, &["--", program]);
            assert_eq!((complaint(&output), output.status.code()), (error, Some(status)), "{command}");
        }
    }
}

#[test]
fn places_for_devices_are_listed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    let output = command.args(["rdma", "devices", "--json"]).output().unwrap();
    let places: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = places.as_array().unwrap().iter().any(|place| place["gid"] == "::ffff:127.0.0.1");
    assert!(found, "{places}");
}

#[test]
fn what_ends_doctor_ends_the_program_and_the_report_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(["rdma", "doctor", "--library"]).arg(library);
    command.args(["--", "sh", "-c", "echo running; exec sleep 60"]);
    for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2), ("QUIT", 3)] {
        let mut doctor = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(doctor.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "running\n");
        let sent = Command::new("kill").args(["-s", name, &doctor.id().to_string()]).status();
        assert!(sent.unwrap().success());
        // Ends when the program's end of the pipe is closed.
        stdout.read_line(&mut line).unwrap();
        let output = doctor.wait_with_output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(report.ends_with(&format!("Signal {number} ended the program.\n")), "{report}");
        assert_eq!(output.status.code(), Some(1), "{report}");
    }
}

/// The terminal sends SIGINT to the program itself, too.
#[test]
fn ctrl_c_reaches_the_program_of_doctor_once() {
    let folder = tempfile::tempdir().unwrap();
    let library = with_library(folder.path());
    let program = folder.path().join("program.py");
    let count = "import os, signal, time\n\
                 (read, write) = os.pipe()\n\
                 os.set_blocking(write, False)\n\
                 signal.signal(signal.SIGINT, lambda *_: None)\n\
                 signal.set_wakeup_fd(write)\n\
                 print('running', flush=True)\n\
                 caught = len(os.read(read, 1))\n\
                 time.sleep(0.3)\n\
                 os.set_blocking(read, False)\n\
                 try: caught += len(os.read(read, 9))\n\
                 except BlockingIOError: pass\n\
                 print('caught', caught, flush=True)\n";
    std::fs::write(&program, count).unwrap();
    let nichrome = env!("CARGO_BIN_EXE_nichrome");
    let (library, program) = (library.display(), program.display());
    let doctor = format!("'{nichrome}' rdma doctor --library '{library}' -- python3 '{program}'");
    let mut command = Command::new("script");
    command.args(["-qec", &doctor, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = command.spawn().expect("this test needs script: install Debian's package bsdutils");
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("running")));
    let mut keyboard = terminal.stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    let caught = lines.find(|line| line.contains("caught")).unwrap();
    assert!(caught.ends_with("caught 1"), "{caught}");
    drop(keyboard);
    terminal.wait().unwrap();
}
