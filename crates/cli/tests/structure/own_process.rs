//! Tests that run again in a process of their own, by `--exact` and their name: a wrong name would select no
//! test there, and pass.

/// The option that selects one test.
const EXACT: &str = "\"--exact\",";

/// The texts that precede a test's name; the last two apply in files with [`EXACT`] only.
const MARKS: [&str; 4] = ["needs_namespaces!(", "in_namespaces(", EXACT, "let name = \""];

/// Returns the names in `source` that are not names of its tests. `path` is the file's path, from the crate's
/// `src` or `tests` on.
pub(crate) fn wrong_names<'a>(path: &str, source: &'a str) -> Vec<&'a str> {
    let modules = modules_of(path);
    let is_own = |name: &str| {
        let (within, test) = name.rsplit_once("::").unwrap_or(("", name));
        without_tests(within) == without_tests(&modules) && source.contains(&format!("fn {test}("))
    };
    names(source).filter(|name| !is_own(name)).collect()
}

/// Returns the literals behind the marks that look like the name of a test. Leaves out statements with
/// `--ignored`: their tests are the other end of a test that fails if they do not run.
fn names(source: &str) -> impl Iterator<Item = &str> {
    let marks = if source.contains(EXACT) { &MARKS[..] } else { &MARKS[..2] };
    let behind = marks.iter().flat_map(|mark| source.match_indices(*mark).map(|(at, _)| &source[at..]));
    let statements = behind.filter_map(|rest| rest.split(';').next()).filter(|it| !it.contains("--ignored"));
    statements.filter_map(|statement| statement.split('"').skip(1).step_by(2).find(|text| is_name(text)))
}

fn is_name(text: &str) -> bool {
    text.matches('_').count() > 2
        && text.chars().all(|char| char.is_ascii_lowercase() || "_:0123456789".contains(char))
}

/// Returns a path of modules without a module `tests` at its end.
fn without_tests(modules: &str) -> &str {
    modules.strip_suffix("tests").map_or(modules, |rest| rest.trim_end_matches("::"))
}

/// Returns the modules of the file as in the names of its tests.
fn modules_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    // A folder in `tests` is a test executable.
    let skipped = match parts[..] {
        ["tests", _, _, ..] => 2,
        ["tests", _] => return String::new(),
        _ => 1,
    };
    let modules = parts[skipped..].iter().filter(|part| !["main", "lib", "mod"].contains(part));
    modules.copied().collect::<Vec<_>>().join("::")
}
