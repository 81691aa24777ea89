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
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_up_to(path.as_ref(), LONGEST)
}

fn read_up_to(path: &Path, longest: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
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
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read_up_to(&file, 5).unwrap(), "12345");
        assert_eq!(read_up_to(&file, 4).unwrap_err().to_string(), "it is longer than 4 bytes");
        let endless = read("/dev/zero").unwrap_err().to_string();
        assert_eq!(endless, "it is longer than 67108864 bytes");
    }
}
