//! Reads text files named by the user, with a size limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Maximum size, in bytes: a bandwidth trace of many hours.
const LONGEST: u64 = 64 << 20;

/// Reads a text file.
///
/// # Errors
/// The file is unreadable, not valid UTF-8, or longer than 64 MiB, as some devices are.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    read_up_to(File::open(path)?, LONGEST)
}

fn read_up_to(input: impl Read, longest: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {longest} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_longest_and_no_further() {
        assert_eq!(read_up_to(&b"12345"[..], 5).unwrap(), "12345");
        assert_eq!(read_up_to(&b"12345"[..], 4).unwrap_err().to_string(), "it is longer than 4 bytes");
        let endless = read_text("/dev/zero").unwrap_err().to_string();
        assert_eq!(endless, "it is longer than 67108864 bytes");
    }
}
