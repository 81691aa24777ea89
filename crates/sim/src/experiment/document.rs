//! A TOML document whose items know their line and path, for error messages.

use std::ops::Range;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parameter::ValueError;

/// A problem in a file, with its location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}, line {line}: {problem}")]
pub struct FileError {
    /// The file name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: Box<Problem>,
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Invalid TOML.
    #[error("{0}")]
    Syntax(String),
    /// An unknown key.
    #[error("there is no '{key}': there are {allowed}")]
    UnknownKey {
        /// The full path of the key.
        key: String,
        /// The known keys.
        allowed: String,
    },
    /// An unknown name.
    #[error("{key}: there is no {what} '{name}': there are {allowed}")]
    UnknownName {
        /// The full path of the key.
        key: String,
        /// The kind of thing that the name refers to.
        what: &'static str,
        /// The name.
        name: String,
        /// The known names.
        allowed: String,
    },
    /// A missing key.
    #[error("there must be {key}: {about}")]
    Missing {
        /// The full path of the key.
        key: String,
        /// The meaning of the key.
        about: String,
    },
    /// A value of the wrong type.
    #[error("{key} must be {wanted}")]
    Type {
        /// The full path of the key.
        key: String,
        /// The required type.
        wanted: &'static str,
    },
    /// A value that the parameter cannot have.
    #[error("{key}: {error}")]
    Value {
        /// The full path of the key.
        key: String,
        /// The reason.
        error: ValueError,
    },
    /// A parameter that cannot be set here.
    #[error("{key}: {error}")]
    Setting {
        /// The full path of the key.
        key: String,
        /// The reason.
        error: String,
    },
    /// Too many items.
    #[error("more than {most} {what}: split the sweep")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// The maximum number.
        most: usize,
    },
    /// A duplicate.
    #[error("{key}: there is a second '{name}'")]
    Twice {
        /// The full path of the key.
        key: String,
        /// The repeated name.
        name: String,
    },
    /// A file for another command.
    #[error("this is {0}")]
    OtherKind(&'static str),
    /// An included file cannot be read.
    #[error("{key}: cannot read {path}: {error}")]
    Include {
        /// The full path of the key.
        key: String,
        /// The included file.
        path: String,
        /// The error.
        error: String,
    },
}

/// A file with its name.
#[derive(Clone, Copy)]
pub(super) struct Document<'d> {
    pub(super) file: &'d str,
    pub(super) text: &'d str,
}

/// A table of the file.
pub(super) struct Table<'d, 't> {
    document: Document<'d>,
    path: String,
    line: usize,
    table: &'t DeTable<'d>,
}

/// A value of the file.
pub(super) struct Item<'d, 't> {
    document: Document<'d>,
    pub(super) path: String,
    span: Range<usize>,
    value: &'t DeValue<'d>,
}

impl<'d> Document<'d> {
    pub(super) fn parse(self) -> Result<Spanned<DeTable<'d>>, FileError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(self.line(at), Problem::Syntax(error.message().into()))
        })
    }

    pub(super) fn root<'t>(self, table: &'t Spanned<DeTable<'d>>) -> Table<'d, 't> {
        Table { document: self, path: String::new(), line: 1, table: table.get_ref() }
    }

    fn line(self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn error(self, line: usize, problem: Problem) -> FileError {
        FileError { file: self.file.into(), line, problem: Box::new(problem) }
    }
}

impl<'d, 't> Table<'d, 't> {
    /// Rejects keys other than `allowed`.
    pub(super) fn only(&self, allowed: &[&str]) -> Result<(), FileError> {
        match self.entries().find(|entry| !allowed.contains(&entry.key())) {
            Some(entry) => {
                let (key, allowed) = (entry.path.clone(), allowed.join(", "));
                Err(entry.error(Problem::UnknownKey { key, allowed }))
            }
            None => Ok(()),
        }
    }

    /// Iterates over all items of the table.
    pub(super) fn entries(&self) -> impl Iterator<Item = Item<'d, 't>> {
        self.table.iter().map(|(key, value)| Item {
            document: self.document,
            path: self.path_of(key.get_ref()),
            // The value's span of a subtable is its header; the key's span has the line.
            span: key.span(),
            value: value.get_ref(),
        })
    }

    /// Returns the value of a key, if present.
    pub(super) fn get(&self, key: &str) -> Option<Item<'d, 't>> {
        let (name, value) = self.table.get_key_value(key)?;
        let path = self.path_of(key);
        Some(Item { document: self.document, path, span: name.span(), value: value.get_ref() })
    }

    /// Returns the value of a mandatory key; `about` describes it in the error.
    pub(super) fn need(&self, key: &str, about: &str) -> Result<Item<'d, 't>, FileError> {
        let missing = || Problem::Missing { key: self.path_of(key), about: about.into() };
        self.get(key).ok_or_else(|| self.error(missing()))
    }

    /// Returns the tables of an array of tables; empty if absent.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Self>, FileError> {
        let Some(item) = self.get(key) else { return Ok(Vec::new()) };
        item.items()?.iter().map(Item::table).collect()
    }

    pub(super) fn error(&self, problem: Problem) -> FileError {
        self.document.error(self.line, problem)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }
}

impl<'d, 't> Item<'d, 't> {
    /// Returns the last part of the path.
    pub(super) fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Returns the file name.
    pub(super) fn file(&self) -> &'d str {
        self.document.file
    }

    pub(super) fn text(&self) -> Result<&'t str, FileError> {
        self.value.as_str().ok_or_else(|| self.wrong_type("a text"))
    }

    /// Returns a string, number or boolean as written on a command line.
    pub(super) fn scalar(&self) -> Result<String, FileError> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().into()),
            DeValue::Float(number) => Ok(number.as_str().into()),
            _ => Err(self.wrong_type("a text, a decimal number, true or false")),
        }
    }

    pub(super) fn number(&self) -> Result<f64, FileError> {
        let text = match self.value {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wrong_type("a number")),
        };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.wrong_type("a number"))
    }

    pub(super) fn whole_number(&self) -> Result<u64, FileError> {
        let number = self.value.as_integer().filter(|number| number.radix() == 10);
        let number = number.and_then(|number| number.as_str().parse().ok());
        number.ok_or_else(|| self.wrong_type("a whole number from 0 to 18446744073709551615"))
    }

    pub(super) fn items(&self) -> Result<Vec<Self>, FileError> {
        let array = self.value.as_array().ok_or_else(|| self.wrong_type("an array"))?;
        let item = |value: &'t Spanned<DeValue<'d>>| Self {
            document: self.document,
            path: self.path.clone(),
            span: value.span(),
            value: value.get_ref(),
        };
        Ok(array.iter().map(item).collect())
    }

    /// Returns the elements of a non-empty array.
    pub(super) fn some_items(&self) -> Result<Vec<Self>, FileError> {
        let items = self.items()?;
        if items.is_empty() { Err(self.wrong_type("an array of at least one value")) } else { Ok(items) }
    }

    /// Returns the elements of a non-empty array, or a single value.
    pub(super) fn one_or_more(self) -> Result<Vec<Self>, FileError> {
        if self.value.is_array() { self.some_items() } else { Ok(vec![self]) }
    }

    pub(super) fn table(&self) -> Result<Table<'d, 't>, FileError> {
        let table = self.value.as_table().ok_or_else(|| self.wrong_type("a table"))?;
        let line = self.document.line(self.span.start);
        Ok(Table { document: self.document, path: self.path.clone(), line, table })
    }

    pub(super) fn wrong_type(&self, wanted: &'static str) -> FileError {
        self.error(Problem::Type { key: self.path.clone(), wanted })
    }

    pub(super) fn wrong_value(&self, error: impl Into<ValueError>) -> FileError {
        self.error(Problem::Value { key: self.path.clone(), error: error.into() })
    }

    /// Returns the error for an unknown name.
    pub(super) fn unknown(
        &self,
        what: &'static str,
        name: &str,
        allowed: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> FileError {
        let allowed = joined(allowed);
        self.error(Problem::UnknownName { key: self.path.clone(), what, name: name.into(), allowed })
    }

    pub(super) fn error(&self, problem: Problem) -> FileError {
        self.document.error(self.document.line(self.span.start), problem)
    }
}

/// Joins names with commas, those that have commas in quotes; `none` if there are none.
pub(super) fn joined(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = |name: &str| if name.contains(',') { format!("'{name}'") } else { name.into() };
    let names: Vec<String> = names.into_iter().map(|name| quoted(name.as_ref())).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_are_quoted_in_lists() {
        assert_eq!(joined(["NIC", "median, with LRO"]), "NIC, 'median, with LRO'");
        assert_eq!(joined([""; 0]), "none");
    }
}
