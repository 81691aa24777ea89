//! Manual pages and completions generated from the command line, and the report of `nichrome doctor`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::run::{nichrome, stdout, text};

/// The commands that `nichrome --help` lists.
fn commands() -> Vec<String> {
    let help = nichrome(&["--help"]);
    let listed = stdout(&help).lines().skip_while(|line| *line != "Commands:").skip(1);
    let words = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names = words.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_manual_page_without_errors() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(nichrome(&["man", &text(&pages)]).status.success());
    let commands = commands();
    assert!(commands.len() >= 12, "{commands:?}");
    for command in ["nichrome".to_owned(), "nichrome-wan-set".into(), "nichrome-rdma-run".into()]
        .into_iter()
        .chain(commands.iter().map(|command| format!("nichrome-{command}")))
    {
        let page = fs::read_to_string(pages.join(format!("{command}.1"))).expect(&command);
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    let one = nichrome(&["man"]);
    assert_eq!(stdout(&one), fs::read_to_string(pages.join("nichrome.1")).unwrap());
    assert!(stdout(&one).starts_with(".ie") || stdout(&one).contains(".TH NICHROME 1"));
}

#[test]
fn completions_are_valid_and_name_all_commands_but_hidden_ones() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = nichrome(&["completions", shell]);
        for command in commands() {
            assert!(stdout(&script).contains(&command), "{shell}: {command}");
        }
        for hidden in ["tcp-connect", "Internal"] {
            assert!(!stdout(&script).contains(hidden), "{shell}: {hidden}");
        }
    }
    let bash = nichrome(&["completions", "bash"]);
    for (words, expected) in [
        ("nichrome wa", "wan"),
        ("nichrome coalesce --profile n", "netfpga npu"),
        ("nichrome nic up --profile n", "netfpga npu none"),
        ("nichrome rdma run --transport i", "iwarp"),
        ("nichrome rdma bw --stateless s", "self"),
    ] {
        let list: Vec<&str> = words.split(' ').collect();
        let (at, [.., previous, last]) = (list.len() - 1, &list[..]) else { panic!("{words}") };
        let ask = format!(
            "COMP_WORDS=({words}) COMP_CWORD={at}; _nichrome nichrome {last} {previous}; echo ${{COMPREPLY[@]}}"
        );
        let script = format!("{}\n{ask}", stdout(&bash));
        let completed = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(stdout(&completed).trim(), expected, "{words}");
    }
}

#[test]
fn doctor_reports_what_this_machine_allows_and_which_commands_work() {
    let doctor = nichrome(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let (checks, commands) = (report["checks"].as_array().unwrap(), report["commands"].as_array().unwrap());
    // These tests need user namespaces, so the machine allows them.
    let namespaces = checks.iter().find(|check| check["name"] == "user_namespaces").unwrap();
    assert_eq!(namespaces["outcome"], "works");
    let wan = commands.iter().find(|of| of["command"] == "wan").unwrap();
    assert_ne!(wan["outcome"], "refused");
    for check in checks {
        assert_eq!(check["outcome"] == "works", check["remedy"].is_null(), "{check}");
    }
    let printed = nichrome(&["doctor"]);
    assert_eq!(printed.status.code(), doctor.status.code());
    for remedy in checks.iter().filter_map(|check| check["remedy"].as_str()) {
        assert!(stdout(&printed).contains(remedy), "{remedy}");
    }
}

#[test]
fn doctor_prints_an_apparmor_profile_for_this_command() {
    let profile = nichrome(&["doctor", "--apparmor-profile"]);
    let this = env!("CARGO_BIN_EXE_nichrome");
    assert!(stdout(&profile).contains(&format!("profile nichrome \"{this}\" flags=(unconfined)")));
}
