//! A table of a page. A click on a column's heading sorts it.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::escaped::escaped;

/// A table.
pub(crate) struct Table {
    caption: String,
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A cell and its CSS class.
struct Cell {
    text: String,
    class: &'static str,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new<T: Into<String>>(caption: &str, header: impl IntoIterator<Item = T>) -> Self {
        Self {
            caption: caption.into(),
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table with a column for each name in any object, and a row for each object. An object that
    /// contains a list of objects has a row for each of these.
    pub(super) fn of(caption: &str, objects: &[Value]) -> Self {
        let rows: Vec<Vec<(String, String)>> = objects.iter().flat_map(rows).collect();
        let mut header: Vec<String> = Vec::new();
        for (name, _) in rows.iter().flatten() {
            if !header.contains(name) {
                header.push(name.clone());
            }
        }
        let mut table = Self::new(caption, header.clone());
        for row in rows {
            let value = |name: &String| row.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
            table.add(header.iter().map(|name| value(name).unwrap_or_default()));
        }
        table
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        let class = |text: &str| if is_number(text) { "number" } else { "" };
        self.rows.push(cells.into_iter().map(|text| Cell { class: class(&text), text }).collect());
    }

    /// Sets the class of a cell of the last row.
    pub(crate) fn mark(&mut self, column: usize, class: &'static str) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.get_mut(column)) {
            cell.class = class;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn html(&self) -> String {
        let mut html =
            format!("<table class=\"sorts\"><caption>{}</caption><thead><tr>", escaped(&self.caption));
        for name in &self.header {
            let _ = write!(html, "<th><button type=\"button\">{}</button></th>", escaped(name));
        }
        html += "</tr></thead><tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for Cell { text, class } in row {
                let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
                let _ = write!(html, "<td{class}>{}</td>", escaped(text));
            }
            html += "</tr>\n";
        }
        html + "</tbody></table>\n"
    }
}

/// Returns true if a text begins with a number, such as '1,024', '≥ 5' and '10.0 ±1.5'.
fn is_number(text: &str) -> bool {
    let number = text.trim_start_matches(['≥', '≤', '+', '-', ' ']);
    number.starts_with(|first: char| first.is_ascii_digit())
        && number.chars().all(|of| !of.is_alphabetic() && !":→".contains(of) || of == 'e')
}

/// Returns the rows of an object: one for each object in its first list of objects, each with the object's
/// other values.
fn rows(object: &Value) -> Vec<Vec<(String, String)>> {
    let is_list = |value: &Value| {
        value.as_array().is_some_and(|values| !values.is_empty() && values.iter().all(Value::is_object))
    };
    let Some((name, list)) = object.as_object().into_iter().flatten().find(|(_, value)| is_list(value))
    else {
        return vec![flat(object)];
    };
    let mut shared = object.clone();
    shared[name] = Value::Object(Map::new());
    let shared = flat(&shared);
    let row = |inner| shared.iter().cloned().chain(flat(inner)).collect();
    list.as_array().into_iter().flatten().map(row).collect()
}

/// Returns the values of an object by name; values of inner objects by both names.
fn flat(object: &Value) -> Vec<(String, String)> {
    let mut values = Vec::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        let key = key.replace('_', " ");
        match value {
            Value::Object(_) => {
                values
                    .extend(flat(value).into_iter().map(|(inner, value)| (format!("{key}, {inner}"), value)));
            }
            _ => values.push((key, cell(value))),
        }
    }
    values
}

/// Formats a value for a cell.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(_) => flat(value)
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Number(number) => {
            number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), decimal)
        }
    }
}

/// Formats a number with six significant digits.
fn decimal(number: f64) -> String {
    let magnitude = number.abs().log10().floor().clamp(-300.0, 300.0) as i32;
    if number == 0.0 || magnitude >= 6 { format!("{number:.0}") } else { rounded(number, 5 - magnitude) }
}

/// Formats a number with at most `decimals` decimals.
fn rounded(number: f64, decimals: i32) -> String {
    let text = format!("{number:.0$}", decimals.clamp(0, 12) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_objects_within_an_object_becomes_rows() {
        let objects =
            json!([{ "flows": 4, "inner": [{ "profile": "gro", "ns": 1 }, { "profile": "npu", "ns": 2 }] }]);
        let table = Table::of("rows", objects.as_array().unwrap());
        assert_eq!(table.header, ["flows", "profile", "ns"]);
        let texts: Vec<Vec<&str>> =
            table.rows.iter().map(|row| row.iter().map(|cell| &*cell.text).collect()).collect();
        assert_eq!(texts, [["4", "gro", "1"], ["4", "npu", "2"]]);
    }

    #[test]
    fn six_digits_count() {
        for (number, shown) in [
            (1024.0, "1024"),
            (14.335_199_999_999, "14.3352"),
            (-0.032_700_000_000_6, "-0.0327"),
            (0.0, "0"),
            (123_456_789.4, "123456789"),
            (1e-300, "0"),
        ] {
            assert_eq!(decimal(number), shown);
        }
    }

    #[test]
    fn numbers_are_distinguished_from_texts() {
        for number in ["1", "1,024", "≥ 5", "-3.5", "1.5e-7", "10.0 ±1.50", "+2.5 %"] {
            assert!(is_number(number), "{number}");
        }
        for text in
            ["", "–", "gro", "10.0.0.1:80 → 10.0.0.2:90 tcp", "10.0.0.1:80 → 10.0.0.2:90", "5 packets", "e"]
        {
            assert!(!is_number(text), "{text}");
        }
    }
}
