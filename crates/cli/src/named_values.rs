//! Options whose values have a few names, which completions offer.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// Parses as `parser` does, and with its errors; completions offer `names`. Hide them from the help if its
/// text has them already.
pub(crate) fn named_values<P>(names: impl IntoIterator<Item = &'static str>, parser: P) -> NamedValues<P> {
    NamedValues { names: names.into_iter().collect(), parser }
}

/// See [`named_values`].
#[derive(Clone)]
pub(crate) struct NamedValues<P> {
    names: Vec<&'static str>,
    parser: P,
}

impl<P: TypedValueParser> TypedValueParser for NamedValues<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}
