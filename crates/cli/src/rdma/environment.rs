//! The environment by which a program gets Nichrome's libibverbs, its device in `/sys` and `/dev`, and settings that other
//! libraries need with it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The library that programs ask for.
const LIBRARY: &str = "libibverbs.so.1";

/// The library that shows the device in `/sys` and `/dev`.
const DEVICES: &str = "libnichrome-devices.so";

/// Settings of other libraries, with the reason. What the user has set stays.
const SETTINGS: [(&str, &str); 2] = [
    // Before a one-sided operation, UCX's strong fence READs with the key 0xFF, which only mlx5 answers.
    ("UCX_FENCE_MODE", "weak"),
    // Releases of UCX that do not know UCX_FENCE_MODE warn of it in each process.
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// A folder with the libraries, as `scripts/build-libibverbs` makes it.
pub(super) struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// The folder of `library`, or else the one beside this command as it was built, or in the `lib` of where it is
    /// installed.
    ///
    /// # Errors
    /// A library is missing.
    pub(super) fn find(library: Option<&Path>) -> anyhow::Result<Self> {
        let library = match library {
            Some(library) => Self::named(library)?,
            None => Self::beside_this_command()?,
        };
        let folder = library.parent().context("the library is in no folder")?.to_owned();
        if !folder.join(DEVICES).exists() {
            bail!(
                "there is no {DEVICES} beside {}: build both with scripts/build-libibverbs",
                library.display()
            );
        }
        Ok(Self { folder })
    }

    fn named(library: &Path) -> anyhow::Result<PathBuf> {
        let found = library.canonicalize().with_context(|| format!("--library {}", library.display()))?;
        if found.file_name() != Some(OsStr::new(LIBRARY)) {
            bail!(
                "--library {}: the file's name must be {LIBRARY}, by which programs ask for it",
                library.display()
            );
        }
        Ok(found)
    }

    fn beside_this_command() -> anyhow::Result<PathBuf> {
        let this = env::current_exe().context("cannot find out where this command is")?;
        let folder = this.parent().unwrap_or(Path::new("/"));
        let places = ["libibverbs", "../lib/nichrome"].map(|place| folder.join(place).join(LIBRARY));
        let found = places.iter().find_map(|place| place.canonicalize().ok());
        found.with_context(|| {
            format!(
                "there is no {}: build it with scripts/build-libibverbs, or name one with --library",
                places[0].display()
            )
        })
    }

    /// The folder that has them.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The variables for a program.
    ///
    /// Both libraries are preloaded: programs that bring a libibverbs of their own would otherwise use that one. The
    /// folder is in `LD_LIBRARY_PATH` as well, for programs that open `libibverbs.so` by name (NCCL).
    pub(super) fn variables(&self, checks_link_order: bool) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            ("LD_LIBRARY_PATH", with_others(self.folder.as_os_str(), "LD_LIBRARY_PATH", ":")),
            ("LD_PRELOAD", with_others(&self.preloaded(), "LD_PRELOAD", ":")),
            ("PATH", with_others(self.folder.join("bin").as_os_str(), "PATH", ":")),
        ];
        if checks_link_order {
            // AddressSanitizer refuses to run behind preloaded libraries otherwise. What the user says comes last, and
            // counts.
            let option = OsStr::new("verify_asan_link_order=0");
            variables.push(("ASAN_OPTIONS", with_others(option, "ASAN_OPTIONS", ":")));
        }
        let unset = SETTINGS.iter().filter(|(name, _)| env::var_os(name).is_none());
        variables.extend(unset.map(|(name, value)| (*name, OsString::from(value))));
        variables
    }

    /// `LD_PRELOAD` is divided at spaces and colons: where the folder's name has one, the libraries are found through
    /// `LD_LIBRARY_PATH`.
    fn preloaded(&self) -> OsString {
        let divides = self.folder.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte));
        let folder = if divides { Path::new("") } else { &self.folder };
        let mut list = folder.join(DEVICES).into_os_string();
        list.push(":");
        list.push(folder.join(LIBRARY));
        list
    }
}

/// A list in the environment with one more, which comes first.
fn with_others(first: &OsStr, variable: &str, separator: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        list.push(separator);
        list.push(others);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_in_a_folder_whose_name_divides_the_list_are_preloaded_by_name() {
        let preloaded = |folder: &str| Libraries { folder: folder.into() }.preloaded();
        assert_eq!(preloaded("/a b"), "libnichrome-devices.so:libibverbs.so.1");
        assert_eq!(preloaded("/a"), "/a/libnichrome-devices.so:/a/libibverbs.so.1");
    }
}
