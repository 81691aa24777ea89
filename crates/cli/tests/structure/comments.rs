//! The width of comments, which rustfmt does not wrap.

/// Columns of a line, as in `rustfmt.toml`.
const WIDTH: usize = 110;

/// Returns the comments in `source` that are too wide, with their numbers of lines. Tables, code and drawings
/// may be wider.
pub(crate) fn too_wide(source: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let numbered = source.lines().enumerate().map(|(nth, line)| (nth + 1, line));
    numbered.filter(|(_, line)| is_prose(line, &mut in_code) && line.chars().count() > WIDTH).collect()
}

/// Returns true if the line is a comment's text. A fence switches `in_code`.
fn is_prose(line: &str, in_code: &mut bool) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let text = comment.trim_start_matches(['/', '!']);
    if text.trim_start().starts_with("```") {
        *in_code = !*in_code;
    }
    !*in_code && !text.starts_with("     ") && !text.trim_start().starts_with('|')
}

#[test]
fn tables_and_code_may_be_wider_than_text() {
    let wide = "x".repeat(WIDTH);
    for start in ["/// ", "    // ", "//! - "] {
        assert_eq!(too_wide(&format!("\n{start}{wide}")).len(), 1, "{start}");
    }
    for start in ["/// | ", "let wide = ", "//!     ", "// ```\n// "] {
        assert_eq!(too_wide(&format!("{start}{wide}")), [], "{start}");
    }
}
