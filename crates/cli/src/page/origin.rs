//! The origin of a page's numbers: command, version, build and machine.

use std::env;
use std::fs;
use std::thread::available_parallelism;

use rustix::system::uname;

use super::table::Table;

/// Returns a table with one row for each property.
pub(super) fn table() -> Table {
    let mut table = Table::new("", ["what", "value"]);
    table.add(["command".into(), command()]);
    table.add(["version".into(), version()]);
    table.add(["machine".into(), machine()]);
    table
}

/// Returns the command line, quoted for a shell.
fn command() -> String {
    let words = env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    ["nichrome".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |of: char| of.is_ascii_alphanumeric() || "-_./=:,%@+".contains(of);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn version() -> String {
    let build =
        if cfg!(debug_assertions) { "without optimizations: its speeds say little" } else { "optimized" };
    format!("{}, a build {build}", env!("CARGO_PKG_VERSION"))
}

fn machine() -> String {
    let system = uname();
    let (kernel, release, architecture) = (system.sysname(), system.release(), system.machine());
    let processors = available_parallelism().map_or(1, usize::from);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model(&information).unwrap_or("processors of an unknown model");
    format!(
        "{processors} x {model}, {} {}, {}",
        kernel.to_string_lossy(),
        release.to_string_lossy(),
        architecture.to_string_lossy()
    )
}

/// Returns the processor's model name from the text of /proc/cpuinfo (proc_cpuinfo(5)).
fn model(information: &str) -> Option<&str> {
    let line = information.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, shown) in [
            ("--loss=1%", "--loss=1%"),
            ("", "''"),
            ("iperf3 -c $PEER", "'iperf3 -c $PEER'"),
            ("it's", "'it'\\''s'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(model("processor\t: 0\nmodel name\t: One CPU @ 2 GHz\n"), Some("One CPU @ 2 GHz"));
        assert_eq!(model("processor : 0\n"), None);
    }
}
