//! Escapes text for HTML.

/// Returns the text with the characters replaced that begin elements or end attributes.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
