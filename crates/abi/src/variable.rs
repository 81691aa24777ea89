//! Environment variables: parses values, and finds misspelt names.

use std::env::{self, VarError};
use std::fmt::Display;
use std::str::FromStr;

use thiserror::Error;

/// An environment variable with an invalid value.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VariableError {
    /// Its value is invalid.
    #[error("{name}={value}: {reason}")]
    Value {
        /// The variable's name.
        name: &'static str,
        /// The invalid value.
        value: String,
        /// Why the value is invalid.
        reason: String,
    },
    /// Its name is nearly that of an existing variable.
    #[error("unknown variable {name}: did you mean {like}?")]
    Name {
        /// The name as it was set.
        name: String,
        /// The name that exists.
        like: &'static str,
    },
}

/// Maximum number of differing letters for a name to count as misspelt.
const MISSPELT_LETTERS: usize = 2;

/// Checks that no environment variable has a name that nearly equals one of `known`: it would be ignored
/// silently.
///
/// # Errors
/// A variable has such a name.
pub(crate) fn check_names(known: &[&'static str]) -> Result<(), VariableError> {
    env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .try_for_each(|name| check_name(&name, known))
}

fn check_name(name: &str, known: &[&'static str]) -> Result<(), VariableError> {
    const PREFIX: &str = "NICHROME_";
    if !name.starts_with(PREFIX) || known.contains(&name) {
        return Ok(());
    }
    let letters = |like: &&'static str| (strsim::damerau_levenshtein(name, like), *like);
    // Fewer for short names, which resemble any other.
    let is_like =
        |(letters, like): &(usize, &str)| *letters <= MISSPELT_LETTERS.min((like.len() - PREFIX.len()) / 2);
    match known.iter().map(letters).filter(is_like).min() {
        None => Ok(()),
        Some((_, like)) => Err(VariableError::Name { name: name.to_owned(), like }),
    }
}

/// Parses a variable; `None` if it is unset or empty.
///
/// # Errors
/// Its value is invalid.
pub(crate) fn variable<T>(name: &'static str) -> Result<Option<T>, VariableError>
where
    T: FromStr<Err: Display>,
{
    let value = match env::var(name) {
        Ok(value) if !value.is_empty() => value,
        Ok(_) | Err(VarError::NotPresent) => return Ok(None),
        Err(VarError::NotUnicode(value)) => {
            let (value, reason) = (value.to_string_lossy().into_owned(), "the value is not UTF-8".to_owned());
            return Err(VariableError::Value { name, value, reason });
        }
    };
    value.parse().map(Some).map_err(|error: T::Err| {
        let reason = error.to_string();
        VariableError::Value { name, value, reason }
    })
}

/// Parses a variable that is 0 or 1; `None` if it is unset or empty.
///
/// # Errors
/// Its value is neither.
pub(crate) fn flag(name: &'static str) -> Result<Option<bool>, VariableError> {
    variable::<Flag>(name).map(|found| found.map(|Flag(is_set)| is_set))
}

struct Flag(bool);

impl FromStr for Flag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "0" => Ok(Self(false)),
            "1" => Ok(Self(true)),
            _ => Err("the value is 0 or 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["NICHROME_IP", "NICHROME_LOSS", "NICHROME_CAPTURE"];

    #[test]
    fn a_misspelt_name_is_an_error_that_names_the_right_one() {
        for (name, like) in [
            ("NICHROME_LOS", "NICHROME_LOSS"),
            ("NICHROME_LSOS", "NICHROME_LOSS"),
            ("NICHROME_CAPTUER", "NICHROME_CAPTURE"),
            ("NICHROME_PI", "NICHROME_IP"),
        ] {
            let name = name.to_owned();
            assert_eq!(check_name(&name, KNOWN), Err(VariableError::Name { name, like }));
        }
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in ["NICHROME_LOSS", "NICHROME_LIBRARY", "NICHROME_XY", "NICHROME_", "ICHROME_LOSS", "LOSS"]
        {
            assert_eq!(check_name(name, KNOWN), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_flag_is_0_or_1() {
        assert!("1".parse::<Flag>().is_ok_and(|Flag(is_set)| is_set));
        assert!("0".parse::<Flag>().is_ok_and(|Flag(is_set)| !is_set));
        assert!("yes".parse::<Flag>().is_err());
    }
}
