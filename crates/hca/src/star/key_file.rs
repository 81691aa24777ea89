//! The key file of StaR's set-up, with the key that both sides share.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::connect::PreSharedKey;

/// Fewest bytes of a key file.
const MIN: usize = 32;

/// Most bytes of a key file.
const MAX: usize = 4096;

/// Why a key file is not used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("the key file {} cannot be read: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// Other users may read or write it.
    #[error("the key file {} can be read or changed by other users (mode {mode:o}): 'chmod 600' prevents that", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not a regular file, or has too few or too many bytes.
    #[error("the key file {} is not a file of {MIN} to {MAX} bytes: 'head -c 32 /dev/urandom' prints suitable contents", path.display())]
    Length {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a key file. All its bytes count, including a newline at the end.
pub(crate) fn read(path: &Path) -> Result<PreSharedKey, KeyFileError> {
    let failed = |error| KeyFileError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Mode { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    if metadata.is_file() {
        file.take(MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if (MIN..=MAX).contains(&bytes.len()) {
        Ok(PreSharedKey::new(&bytes))
    } else {
        Err(KeyFileError::Length { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn outcome(bytes: &[u8], mode: u32) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let read = read(&path);
        read.map(|key| format!("{key:?}"))
            .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "KEY"))
    }

    #[test]
    fn a_key_file_is_long_and_closed_to_other_users() {
        for (len, mode) in [(32, 0o600), (32, 0o400), (4096, 0o600)] {
            assert_eq!(outcome(&vec![7; len], mode), Ok("PreSharedKey".to_owned()));
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            let refused = outcome(&[7; 32], mode).unwrap_err();
            let line = format!(
                "the key file KEY can be read or changed by other users (mode {mode:o}): 'chmod 600' prevents that"
            );
            assert_eq!(refused, line);
        }
        for len in [0, 31, 4097] {
            let refused = outcome(&vec![7; len], 0o600).unwrap_err();
            assert!(refused.starts_with("the key file KEY is not a file of 32 to 4096 bytes"), "{refused}");
        }
        let missing = read(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(missing.starts_with("the key file /nonexistent/key cannot be read"), "{missing}");
        assert!(matches!(read(Path::new("/")), Err(KeyFileError::Mode { .. } | KeyFileError::Length { .. })));
    }
}
