//! Private data of programs.

use std::fmt;

use thiserror::Error;

/// More private data than a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{given} bytes of private data exceed the maximum of {room}")]
pub struct PrivateDataError {
    /// Bytes given.
    pub given: usize,
    /// Bytes that the message holds.
    pub room: usize,
}

/// The `N` bytes of a program's data in a message. The wire does not carry their number: the rest is zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// Bytes that fit.
    pub const LEN: usize = N;

    /// Creates private data from `data`, padded with zeros.
    ///
    /// # Errors
    /// `data` is longer than `N`.
    pub fn new(data: &[u8]) -> Result<Self, PrivateDataError> {
        let mut bytes = [0; N];
        let error = PrivateDataError { given: data.len(), room: N };
        bytes.get_mut(..data.len()).ok_or(error)?.copy_from_slice(data);
        Ok(Self(bytes))
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        write!(f, "{:02x?} of {N}", &self.0[..used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_padded_and_never_cut() {
        assert_eq!(PrivateData::<4>::new(b"ab").unwrap().0, *b"ab\0\0");
        assert_eq!(PrivateData::<4>::new(b"abcde"), Err(PrivateDataError { given: 5, room: 4 }));
    }
}
