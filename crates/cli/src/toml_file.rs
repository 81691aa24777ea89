//! Parses TOML files with one-line errors.

use anyhow::anyhow;
use toml::Table;

/// Parses a text as a TOML table.
///
/// # Errors
/// Invalid TOML; lines count from 1.
pub(crate) fn parse(text: &str) -> anyhow::Result<Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = text.bytes().take(error.span().map_or(0, |span| span.start));
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        anyhow!("line {line}: {}", error.message())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_errors_name_the_line() {
        for (text, expected) in [
            ("a = \"1\nb = 2\n", "line 1: invalid basic string"),
            ("a = 1\na = 2\n", "line 2: duplicate key"),
            ("a = 1\n\nb\n", "line 3: "),
            ("a = 1\n[b\n", "line 2: unclosed table"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
        assert!(parse("a = 1\n").is_ok());
    }
}
