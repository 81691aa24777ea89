//! Tests that the parser accepts every command named in documents, the book, help and errors.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, CommandFactory};

use super::Arguments;

/// Code in documents that begins with `nichrome` and is no command: the label of a key (docs/star.md).
const NO_COMMANDS: [&str; 1] = ["nichrome set-up key"];

/// A command named in a text, and the text's location.
#[derive(Debug)]
struct FoundCommand {
    place: String,
    words: Vec<String>,
}

/// Returns the words of the simple commands in a line, as a shell splits them, without redirections and
/// comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut is_target = false;
    let mut chars = line.chars().peekable();
    let end = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>, is_target: &mut bool| {
        if let Some(word) = word.take()
            && !std::mem::take(is_target)
            && let Some(command) = commands.last_mut()
        {
            command.push(word);
        }
    };
    while let Some(of) = chars.next() {
        match of {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                while let Some(inside) = chars.next().filter(|inside| *inside != of) {
                    word.push(if of == '"' && inside == '\\' {
                        chars.next().unwrap_or_default()
                    } else {
                        inside
                    });
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => break,
            '|' | '&' | ';' | '(' | ')' => {
                end(&mut word, &mut commands, &mut is_target);
                commands.push(Vec::new());
            }
            '<' | '>' => {
                // The number of a descriptor belongs to the redirection.
                word = word.filter(|word| word.parse::<u8>().is_err());
                end(&mut word, &mut commands, &mut is_target);
                if chars.peek() == Some(&'&') {
                    chars.next();
                }
                is_target = true;
            }
            _ if of.is_whitespace() => end(&mut word, &mut commands, &mut is_target),
            _ => word.get_or_insert_default().push(of),
        }
    }
    end(&mut word, &mut commands, &mut is_target);
    commands
}

/// Returns the `nichrome` commands in a line, without the programs that run them.
fn ours(line: &str) -> Vec<Vec<String>> {
    let is_ours = |word: &String| word == "nichrome" || word.ends_with("/nichrome");
    let commands = simple_commands(line).into_iter();
    commands.filter_map(|command| Some(command[command.iter().position(is_ours)?..].to_vec())).collect()
}

/// Removes optional parts and ellipses from the syntax of a command.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    for of in text.chars() {
        match of {
            '[' => depth += 1,
            ']' => depth -= 1,
            '…' => {}
            _ if depth == 0 => plain.push(of),
            _ => {}
        }
    }
    plain.replace("...", "")
}

/// Returns the commands in the code of a Markdown text.
fn in_markdown(place: &str, text: &str) -> Vec<FoundCommand> {
    let mut named = Vec::new();
    let mut fence: Option<&str> = None;
    let joined = text.replace("\\\n", " ");
    let mut add = |line: &str| {
        named.extend(ours(line).into_iter().map(|words| FoundCommand { place: place.to_owned(), words }));
    };
    let mut prose = String::new();
    for line in joined.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, Some("sh")) => add(line),
            (None, Some(_)) => {}
            (None, None) if line.starts_with("    ") => {
                let is_command =
                    ["nichrome ", "./nichrome "].iter().any(|first| line.trim_start().starts_with(first));
                if is_command {
                    add(line);
                }
            }
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    named.extend(quoted(place, &prose, '`'));
    named
}

/// Returns the commands between a pair of quotation marks.
fn quoted(place: &str, text: &str, mark: char) -> Vec<FoundCommand> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices(&format!("{mark}nichrome ")) {
        let Some((inside, _)) = text[at + 1..].split_once(mark) else { continue };
        if !inside.contains("\n\n") {
            let line = plain(inside);
            // Of alternatives such as 'sim run|sweep', only the first is tested here.
            let alternatives = |mut words: Vec<String>| {
                words.retain(|word| !word.is_empty());
                FoundCommand { place: place.to_owned(), words }
            };
            let line = line.split('|').next().unwrap_or_default();
            named.extend(ours(line).into_iter().map(alternatives));
        }
    }
    named
}

/// Returns the commands in help texts, errors and comments of a source file.
fn in_source(place: &str, text: &str) -> Vec<FoundCommand> {
    let mut joined = String::new();
    for line in text.lines() {
        let line =
            line.trim_start().trim_start_matches("///").trim_start_matches("//!").trim_start_matches("//");
        joined += line.trim_start();
        // A trailing backslash continues a string in the next line.
        joined += if joined.ends_with('\\') { "" } else { "\n" };
    }
    let joined = joined.replace('\\', "");
    let mut named = quoted(place, &joined, '`');
    named.extend(quoted(place, &joined, '\''));
    // Any word replaces a placeholder of a format string.
    for named in &mut named {
        for word in &mut named.words {
            if word.contains('{') {
                *word = "x".into();
            }
        }
    }
    named
}

/// Returns the commands in the examples of a command's help and its subcommands'. Two spaces separate an
/// example from its explanation.
fn in_examples(command: &Command) -> Vec<FoundCommand> {
    let mut named = Vec::new();
    if let Some(help) = command.get_after_help() {
        let place = format!("the help of {}", command.get_name());
        for line in help.to_string().lines().filter_map(|line| line.strip_prefix("  ")) {
            let line = line.split_once("  ").map_or(line, |(line, _)| line);
            named.extend(ours(line).into_iter().map(|words| FoundCommand { place: place.clone(), words }));
        }
    }
    named.extend(command.get_subcommands().flat_map(in_examples));
    named
}

/// Returns the parser's error for a command, if any. A text may leave out required arguments, but not name
/// unknown ones.
fn refused(words: &[String]) -> Option<String> {
    let error = match Arguments::command().try_get_matches_from(words) {
        Ok(matches) => return stray(&matches),
        Err(error) => error,
    };
    let is_fragment = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    );
    // A lone option, whose value the text leaves out.
    let is_fragment = is_fragment || error.to_string().starts_with("error: a value is required");
    (!is_fragment).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// Returns the error for a word that `nichrome wan` accepts only to report that it is no subcommand.
fn stray(matches: &ArgMatches) -> Option<String> {
    let (name, matches) = matches.subcommand()?;
    let mut words = (name == "wan").then(|| matches.get_raw("stray")).flatten()?;
    Some(format!("'{}' is no command", words.next()?.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files below a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // The book has a link to docs, which is read on its own.
            if !path.is_symlink() && path.file_name().is_some_and(|name| name != "target") {
                files.extend(self::files(&path, extension));
            }
        } else if path.extension().is_some_and(|of| of == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn all_named() -> Vec<FoundCommand> {
    let root = root();
    let read = |path: &PathBuf| {
        let place = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        (place, fs::read_to_string(path).unwrap())
    };
    let mut named = in_examples(&Arguments::command());
    let top = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"];
    let mut texts: Vec<PathBuf> = top.iter().map(|name| root.join(name)).collect();
    for folder in ["docs", "book/src", "bench", "python", "crates", "hw", "fuzz", ".github"] {
        texts.extend(files(&root.join(folder), "md"));
    }
    for path in &texts {
        let (place, text) = read(path);
        named.extend(in_markdown(&place, &text));
    }
    for path in files(&root.join("crates"), "rs")
        .iter()
        .filter(|path| path.components().any(|of| of.as_os_str() == "src"))
    {
        let (place, text) = read(path);
        // The strings of this file's own tests name unknown commands on purpose.
        if !place.ends_with("named_commands.rs") {
            named.extend(in_source(&place, &text));
        }
    }
    for path in files(&root.join("python"), "py") {
        let (place, text) = read(&path);
        named.extend(quoted(&place, &text.replace("``", "`"), '`'));
    }
    for path in files(&root.join("python"), "ipynb") {
        let (place, text) = read(&path);
        named.extend(in_notebook(&place, &text));
    }
    let mut jobs = vec![root.join("action.yml"), root.join("dist/Containerfile")];
    for extension in ["yml", "service", "toml"] {
        jobs.extend(files(&root.join("dist"), extension));
    }
    for path in &jobs {
        let (place, text) = read(path);
        named.extend(in_jobs(&place, &text));
        named.extend(quoted(&place, &text, '\''));
    }
    named
}

/// Returns the commands in workflows and systemd units, without the keys before them.
fn in_jobs(place: &str, text: &str) -> Vec<FoundCommand> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| {
        line.trim_start().trim_start_matches("- run: ").trim_start_matches("ExecStart=/usr/bin/")
    });
    let lines = lines.filter(|line| line.starts_with("nichrome "));
    lines.flat_map(ours).map(|words| FoundCommand { place: place.to_owned(), words }).collect()
}

/// Returns the commands in the prose and the shell lines of a notebook.
fn in_notebook(place: &str, text: &str) -> Vec<FoundCommand> {
    let notebook: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut named = Vec::new();
    for cell in notebook["cells"].as_array().unwrap() {
        let lines = cell["source"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        let source: String = lines.collect();
        if cell["cell_type"] == "markdown" {
            named.extend(in_markdown(place, &source));
        } else {
            let lines = source.lines().filter_map(|line| line.strip_prefix('!'));
            let words = lines.flat_map(ours);
            named.extend(words.map(|words| FoundCommand { place: place.to_owned(), words }));
        }
    }
    named
}

#[test]
fn every_named_command_exists() {
    let named = all_named();
    assert!(named.len() > 150, "only {} commands are found", named.len());
    let wrong: Vec<_> = named
        .iter()
        .filter(|named| !NO_COMMANDS.contains(&named.words.join(" ").as_str()))
        .filter_map(|named| {
            Some(format!("{}: '{}': {}", named.place, named.words.join(" "), refused(&named.words)?))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_names_are_found() {
    let texts = [
        ("See `nichrome won --delay 1ms`.", 1),
        ("See `nichrome wan --daley 1ms`.", 1),
        ("    ./nichrome coalesce a.pcap --holt 1ms | cat", 1),
        ("```sh\nx & nichrome \\\n  sim rum a # nichrome wan\n```\n", 1),
        ("See `nichrome rdma` and `nichrome wan show --json [FILE]`.", 0),
        ("```text\nnichrome nonsense\n```\n", 0),
    ];
    for (text, expected) in texts {
        let wrong = in_markdown("text", text).iter().filter(|named| refused(&named.words).is_some()).count();
        assert_eq!(wrong, expected, "{text}");
    }
    let source = "    bail!(\"say \\\n        'nichrome wan shaw', or 'nichrome nic down {host}'\")";
    let wrong: Vec<_> =
        in_source("source", source).into_iter().filter(|named| refused(&named.words).is_some()).collect();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn wrong_names_are_found_in_jobs_and_notebooks() {
    let jobs = "steps:\n  - run: nichrome wan --delay 1ms\n  - run: |\n      nichrome won \\\n        -x\nExecStart=/usr/bin/nichrome nic upp\n";
    let notebook = r#"{"cells": [
        {"cell_type": "markdown", "source": ["As `nichrome sim\n", "rum` does"]},
        {"cell_type": "code", "source": ["!nichrome sim list\n", "x = 1\n", "!nichrome symulate"]}
    ]}"#;
    for (named, expected) in [(in_jobs("jobs", jobs), (3, 2)), (in_notebook("notebook", notebook), (3, 2))] {
        let wrong = named.iter().filter(|named| refused(&named.words).is_some()).count();
        assert_eq!((named.len(), wrong), expected, "{named:?}");
    }
}

#[test]
fn lines_are_read_as_a_shell_reads_them() {
    let read = |line| simple_commands(line).into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
    assert_eq!(read("a 'b c' \"d \\\"e\" >f 2>&1 g # h"), [["a", "b c", "d \"e", "g"]]);
    assert_eq!(read("a & b | c;d"), [["a"], ["b"], ["c"], ["d"]]);
}
