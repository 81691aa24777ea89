//! The AppArmor profile that allows user namespaces to this command.
//!
//! Ubuntu 23.10 and later deny capabilities in user namespaces to programs without a profile that says
//! `userns` (`kernel.apparmor_restrict_unprivileged_userns`).

use std::path::Path;

use anyhow::{Context, ensure};

/// Characters with a meaning in AppArmor path patterns.
const PATTERN: &[char] = &['*', '?', '[', ']', '{', '}', '^', '"', '\\'];

/// Returns the profile for the command at `path`. It allows user namespaces and restricts nothing.
///
/// # Errors
/// The path has characters with a meaning in profiles.
pub(super) fn profile(path: &Path) -> anyhow::Result<String> {
    let path = path.to_str().context("the command's path is not UTF-8")?;
    ensure!(
        !path.contains(PATTERN),
        "{path}: AppArmor would interpret this path as a pattern: move the command to another folder"
    );
    Ok(format!(
        "# Allows user namespaces to nichrome, for 'nichrome wan', 'nichrome demo' and 'nichrome rdma run --mount'.\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         \n\
         profile nichrome \"{path}\" flags=(unconfined) {{\n  \
           userns,\n\
         \n  \
           include if exists <local/nichrome>\n\
         }}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_names_the_command_and_allows_user_namespaces() {
        let profile = profile(Path::new("/usr/bin/nichrome")).unwrap();
        assert!(
            profile.contains("\nprofile nichrome \"/usr/bin/nichrome\" flags=(unconfined) {\n  userns,\n")
        );
    }

    #[test]
    fn a_path_that_is_a_pattern_is_refused() {
        assert!(profile(Path::new("/home/*/nichrome")).is_err());
    }
}
