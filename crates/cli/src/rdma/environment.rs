//! The environment of a program under `nichrome rdma run`: preloads Nichrome's libraries and configures other
//! libraries.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::links::with_links;

/// The file name of Nichrome's libibverbs.
const LIBRARY: &str = "libibverbs.so.1";

/// The library that shows the device in `/sys` and `/dev`.
const DEVICES: &str = "libnichrome-devices.so";

/// Variables of other libraries. The user's values take precedence.
const SETTINGS: [(&str, &str); 2] = [
    // For a strong fence, UCX posts a READ with the key 0xFF, which succeeds on mlx5 only.
    ("UCX_FENCE_MODE", "weak"),
    // UCX releases without UCX_FENCE_MODE print a warning about it in each process.
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// A folder with the libraries, built by `scripts/build-libibverbs`.
pub(crate) struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// Finds the folder of `library` or, without it, `libibverbs` beside this command, or `../lib/nichrome`.
    ///
    /// # Errors
    /// A library is missing, `library` has another file name, or the folder's path contains a colon.
    pub(crate) fn find(library: Option<&Path>) -> anyhow::Result<Self> {
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
        Self::in_folder(with_links(folder)?)
    }

    /// Returns the libraries in a folder.
    ///
    /// # Errors
    /// The folder's path contains a colon.
    fn in_folder(folder: PathBuf) -> anyhow::Result<Self> {
        if folder.as_os_str().as_encoded_bytes().contains(&b':') {
            bail!(
                "{} has a colon in its path, at which LD_LIBRARY_PATH divides folders: move the libraries",
                folder.display()
            );
        }
        Ok(Self { folder })
    }

    fn named(library: &Path) -> anyhow::Result<PathBuf> {
        let found = library.canonicalize().with_context(|| format!("--library {}", library.display()))?;
        if found.file_name() != Some(OsStr::new(LIBRARY)) {
            bail!(
                "--library {}: {} must be named {LIBRARY}, the name that programs load",
                library.display(),
                found.display()
            );
        }
        Ok(found)
    }

    fn beside_this_command() -> anyhow::Result<PathBuf> {
        let this = env::current_exe().context("cannot find this command's path")?;
        let folder = this.parent().unwrap_or(Path::new("/"));
        let places = ["libibverbs", "../lib/nichrome"].map(|place| folder.join(place).join(LIBRARY));
        let found = places.iter().find_map(|place| place.canonicalize().ok());
        found.with_context(|| {
            format!(
                "there is no {}: the wheel and the Debian package have it, scripts/build-libibverbs builds it, --library names \
                 another",
                places[0].display()
            )
        })
    }

    /// Returns the folder of the libraries.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the variables to set for a program.
    ///
    /// Both libraries are preloaded, because programs that bundle a libibverbs would otherwise use their own.
    /// The folder is also in `LD_LIBRARY_PATH`, for programs that open `libibverbs.so` by name (NCCL).
    pub(super) fn variables(&self, checks_link_order: bool) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            ("LD_LIBRARY_PATH", with_others(self.folder.as_os_str(), "LD_LIBRARY_PATH", ":")),
            ("LD_PRELOAD", with_others(&self.preloaded(), "LD_PRELOAD", ":")),
            ("PATH", self.search_path()),
        ];
        if checks_link_order {
            // Without this option AddressSanitizer refuses to run after preloaded libraries. The user's
            // options come later and take precedence.
            let option = OsStr::new("verify_asan_link_order=0");
            variables.push(("ASAN_OPTIONS", with_others(option, "ASAN_OPTIONS", ":")));
        }
        let unset = SETTINGS.iter().filter(|(name, _)| env::var_os(name).is_none());
        variables.extend(unset.map(|(name, value)| (*name, OsString::from(value))));
        variables
    }

    /// Returns the value of `PATH`: first the folder with the `rdma` that shows the device.
    pub(super) fn search_path(&self) -> OsString {
        with_others(self.folder.join("bin").as_os_str(), "PATH", ":")
    }

    /// Returns the value of `LD_PRELOAD`. The loader splits it at spaces, too, so if the folder's path
    /// contains one, the libraries are given by name and found through `LD_LIBRARY_PATH`.
    fn preloaded(&self) -> OsString {
        let divides = self.folder.as_os_str().as_encoded_bytes().contains(&b' ');
        let folder = if divides { Path::new("") } else { &self.folder };
        let mut list = folder.join(DEVICES).into_os_string();
        list.push(":");
        list.push(folder.join(LIBRARY));
        list
    }
}

/// Returns the value of a list variable with `first` prepended.
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
    fn libraries_in_a_folder_with_a_space_in_its_path_are_preloaded_by_name() {
        let preloaded = |folder: &str| Libraries::in_folder(folder.into()).unwrap().preloaded();
        assert_eq!(preloaded("/a b"), "libnichrome-devices.so:libibverbs.so.1");
        assert_eq!(preloaded("/a"), "/a/libnichrome-devices.so:/a/libibverbs.so.1");
    }

    #[test]
    fn libraries_in_a_folder_with_a_colon_in_its_path_are_refused() {
        let refused = Libraries::in_folder("/a:b".into()).map(|_| ()).unwrap_err().to_string();
        assert!(refused.starts_with("/a:b has a colon in its path"), "{refused}");
    }
}
