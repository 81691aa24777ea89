//! A TOML file in which everything knows its line and its path, for errors.

use std::ops::Range;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parameter::ValueError;

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}, line {line}: {problem}")]
pub struct FileError {
    /// The file's name as it was given.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub problem: Box<Problem>,
}

/// What is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// It is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that means nothing here.
    #[error("there is no '{key}': there are {allowed}")]
    UnknownKey {
        /// The whole path of the key.
        key: String,
        /// The keys that there are.
        allowed: String,
    },
    /// A name of something that there is not.
    #[error("{key}: there is no {what} '{name}': there are {allowed}")]
    UnknownName {
        /// The whole path of the key.
        key: String,
        /// What it would be.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        allowed: String,
    },
    /// A key that must be there.
    #[error("there must be {key}: {about}")]
    Missing {
        /// The whole path of the key.
        key: String,
        /// What it is.
        about: String,
    },
    /// A value of another type.
    #[error("{key} must be {wanted}")]
    Type {
        /// The whole path of the key.
        key: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A value that its parameter cannot have.
    #[error("{key}: {error}")]
    Value {
        /// The whole path of the key.
        key: String,
        /// Why not.
        error: ValueError,
    },
    /// A parameter that cannot be set from here.
    #[error("{key}: {error}")]
    Setting {
        /// The whole path of the key.
        key: String,
        /// Why not.
        error: String,
    },
    /// More than can be dealt with.
    #[error("more than {most} {what}: make it several")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// Two of what there may be one of.
    #[error("{key}: there is a second '{name}'")]
    Twice {
        /// The whole path of the key.
        key: String,
        /// What is there twice.
        name: String,
    },
    /// A file for another command.
    #[error("this is {0}")]
    OtherKind(&'static str),
    /// A file that this one includes cannot be read.
    #[error("{key}: cannot read {path}: {error}")]
    Include {
        /// The whole path of the key.
        key: String,
        /// The other file.
        path: String,
        /// Why not.
        error: String,
    },
}

/// A file under its name.
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
    /// Refuses every key but these.
    pub(super) fn only(&self, allowed: &[&str]) -> Result<(), FileError> {
        match self.entries().find(|entry| !allowed.contains(&entry.key())) {
            Some(entry) => {
                let (key, allowed) = (entry.path.clone(), allowed.join(", "));
                Err(entry.error(Problem::UnknownKey { key, allowed }))
            }
            None => Ok(()),
        }
    }

    /// All values.
    pub(super) fn entries(&self) -> impl Iterator<Item = Item<'d, 't>> {
        self.table.iter().map(|(key, value)| Item {
            document: self.document,
            path: self.path_of(key.get_ref()),
            // A value of a table of its own has the span of its header; the key is in the line that matters.
            span: key.span(),
            value: value.get_ref(),
        })
    }

    /// The value of a key, where it is there.
    pub(super) fn get(&self, key: &str) -> Option<Item<'d, 't>> {
        let (name, value) = self.table.get_key_value(key)?;
        let path = self.path_of(key);
        Some(Item { document: self.document, path, span: name.span(), value: value.get_ref() })
    }

    /// The value of a key that must be there; `about` says what it is.
    pub(super) fn need(&self, key: &str, about: &str) -> Result<Item<'d, 't>, FileError> {
        let missing = || Problem::Missing { key: self.path_of(key), about: about.into() };
        self.get(key).ok_or_else(|| self.error(missing()))
    }

    /// The tables of an array of tables, none where it is not there.
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
    /// The last part of the path.
    pub(super) fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// The name of the file.
    pub(super) fn file(&self) -> &'d str {
        self.document.file
    }

    pub(super) fn text(&self) -> Result<&'t str, FileError> {
        self.value.as_str().ok_or_else(|| self.wrong_type("a text"))
    }

    /// A text, a number or a truth value as it would be written on a command line.
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

    /// The values of an array that has at least one.
    pub(super) fn some_items(&self) -> Result<Vec<Self>, FileError> {
        let items = self.items()?;
        if items.is_empty() { Err(self.wrong_type("an array of at least one value")) } else { Ok(items) }
    }

    /// The values of an array, or the one value that there is without one.
    pub(super) fn one_or_more(self) -> Result<Vec<Self>, FileError> {
        if self.value.is_array() { self.items() } else { Ok(vec![self]) }
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

    /// A name that is not among those that there are.
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

/// Names in a row, or that there are none.
pub(super) fn joined(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.as_ref().into()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
