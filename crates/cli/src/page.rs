//! Results as one self-contained HTML page: figures that zoom, tables that sort, and the origin of the
//! numbers.

mod escaped;
mod figure;
mod file;
mod origin;
mod table;

use serde::Serialize;
use serde_json::Value;

use self::escaped::escaped;
pub(crate) use self::figure::{Axis, Figure, Line, Scale, Style};
pub(crate) use self::file::{PageFile, PageOption};
pub(crate) use self::table::Table;

/// Style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("page/page.css");

/// Script of all pages: draws figures and sorts tables.
pub(crate) const SCRIPT: &str = include_str!("page/page.js");

/// Content security policy: the browser loads nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A page.
pub(crate) struct Page {
    title: String,
    origin: Table,
    body: String,
}

impl Page {
    /// Creates a page that states the command and the machine.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), origin: origin::table(), body: String::new() }
    }

    /// Adds a row to the origin of the numbers, such as the seed.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.origin.add([name.to_owned(), value.into()]);
        self
    }

    /// Adds the heading of a section.
    pub(crate) fn heading(&mut self, text: &str) {
        self.body += &format!("<h2>{}</h2>\n", escaped(text));
    }

    /// Adds a paragraph.
    pub(crate) fn text(&mut self, text: &str) {
        self.body += &format!("<p>{}</p>\n", escaped(text));
    }

    /// Adds a figure.
    pub(crate) fn figure(&mut self, figure: &Figure) -> anyhow::Result<()> {
        self.body += &figure.html()?;
        Ok(())
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, table: &Table) {
        self.body += &table.html();
    }

    /// Adds a report with the values of its JSON: one table for plain values, and one for each list of
    /// objects.
    pub(crate) fn report(&mut self, report: &impl Serialize) -> anyhow::Result<()> {
        let report = serde_json::to_value(report)?;
        let mut values = Table::new("values", ["name", "value"]);
        let mut lists = Vec::new();
        collect(&report, "", &mut values, &mut lists);
        if !values.is_empty() {
            self.table(&values);
        }
        for (name, rows) in lists {
            self.table(&Table::of(&name, rows));
        }
        Ok(())
    }

    /// Returns the page as HTML.
    pub(crate) fn html(&self) -> String {
        let Self { title, origin, body } = self;
        let (title, origin) = (escaped(title), origin.html());
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             <noscript><p>Figures are drawn by a script; the tables have the same numbers.</p></noscript>\n\
             {body}<h2>Origin</h2>\n{origin}<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

/// Adds the plain values of an object to `values`, and its lists of objects to `lists`, with the path of keys
/// as name.
fn collect<'a>(value: &'a Value, name: &str, values: &mut Table, lists: &mut Vec<(String, &'a [Value])>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let key = key.replace('_', " ");
                let name = if name.is_empty() { key } else { format!("{name}, {key}") };
                collect(value, &name, values, lists);
            }
        }
        Value::Array(rows) if rows.iter().all(Value::is_object) => {
            if !rows.is_empty() {
                lists.push((name.to_owned(), rows));
            }
        }
        Value::Null => {}
        _ => values.add([name.to_owned(), table::cell(value)]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_becomes_tables() {
        let mut page = Page::new("<A & B>").with("seed", "7");
        page.report(&json!({
            "runs": 3, "none": null, "inner": { "wide_area": "yes" },
            "points": [{ "x": 1, "parts": { "a": 2 } }, { "x": 3, "more": [4, 5] }],
        }))
        .unwrap();
        let html = page.html();
        assert!(html.contains("<title>&lt;A &amp; B&gt;</title>"));
        for cells in [["runs", "3"], ["inner, wide area", "yes"], ["seed", "7"]] {
            let [name, value] = cells;
            assert!(html.contains(&format!("<td>{name}</td>")), "{name}: {html}");
            assert!(html.contains(&format!(">{value}</td>")), "{value}: {html}");
        }
        for heading in ["x", "parts, a", "more"] {
            assert!(
                html.contains(&format!("<button type=\"button\">{heading}</button>")),
                "{heading}: {html}"
            );
        }
        assert!(html.contains("4, 5") && !html.contains("<td>none</td>"));
    }

    #[test]
    fn a_figure_cannot_end_its_script() {
        let mut page = Page::new("title");
        let line = Line::new("</script><img src=x>", Style::Line, [(1.0, 2.0)]);
        page.figure(&Figure {
            title: "f".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            lines: vec![line],
        })
        .unwrap();
        assert!(!page.html().contains("<img"));
    }
}
