//! Creates the files and links that libraries from a wheel or package lack, since these contain regular files
//! only.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::runtime_dir;

/// A list of the files and links in the folder `devices`: each line has a path and a text, or a path, `->`
/// and a target.
const TABLE: &str = "devices.table";

/// Returns a folder with the content of `folder` and with the files and links in its table. Without a table
/// this is `folder` itself; otherwise it is created once in this user's runtime directory.
///
/// # Errors
/// The table is malformed, the folder cannot be created, or the runtime directory belongs to another user.
pub(super) fn with_links(folder: PathBuf) -> anyhow::Result<PathBuf> {
    with_links_in(&runtime_dir::of_user(), folder)
}

fn with_links_in(place: &Path, folder: PathBuf) -> anyhow::Result<PathBuf> {
    let table = folder.join(TABLE);
    if !table.exists() {
        return Ok(folder);
    }
    // Programs load these files: they must not be another user's.
    runtime_dir::create(place)?;
    let complete = place.join(name(&table)?);
    if !complete.join("devices").exists() {
        make(&folder, &table, place, &complete)
            .with_context(|| format!("cannot create {}", complete.display()))?;
    }
    Ok(complete)
}

/// Returns a name that differs for each location and version of the table.
fn name(table: &Path) -> anyhow::Result<String> {
    let file = fs::metadata(table)?;
    let mut hasher = DefaultHasher::new();
    (table, file.ino(), file.mtime(), file.ctime(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    Ok(format!("libraries-{:016x}", hasher.finish()))
}

fn make(folder: &Path, table: &Path, place: &Path, complete: &Path) -> anyhow::Result<()> {
    // Creates the folder under a temporary name, since another process may create it at the same time.
    let new = tempfile::Builder::new().prefix("libraries-new-").tempdir_in(place)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        symlink(entry.path(), new.path().join(entry.file_name()))?;
    }
    symlink("libibverbs.so.1", new.path().join("libibverbs.so"))?;
    fill(&new.path().join("devices"), &fs::read_to_string(table)?)?;
    match fs::rename(new.path(), complete) {
        Err(_) if complete.join("devices").exists() => Ok(()),
        renamed => renamed.map_err(Into::into),
    }
}

fn fill(devices: &Path, table: &str) -> anyhow::Result<()> {
    for line in table.lines() {
        let Some((path, value)) = line.split_once(' ') else { bail!("{TABLE}: '{line}' has no value") };
        let at = devices.join(path.trim_start_matches('/'));
        fs::create_dir_all(at.parent().unwrap_or(devices))?;
        match value.strip_prefix("-> ") {
            Some(target) => symlink(target, at)?,
            None => fs::write(at, format!("{value}\n"))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn the_table_becomes_files_and_links() {
        let place = tempfile::tempdir().unwrap();
        let devices = place.path().join("devices");
        fill(&devices, "/dev/infiniband/uverbs0 -> /dev/null\n/sys/rate 25 Gb/sec (1X EDR)\n").unwrap();
        assert_eq!(fs::read_link(devices.join("dev/infiniband/uverbs0")).unwrap(), Path::new("/dev/null"));
        assert_eq!(fs::read_to_string(devices.join("sys/rate")).unwrap(), "25 Gb/sec (1X EDR)\n");
        assert!(fill(&devices, "/sys/none\n").is_err());
    }

    #[test]
    fn a_folder_without_a_table_is_used_in_place() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(with_links(place.path().to_owned()).unwrap(), place.path());
    }

    #[test]
    fn a_folder_with_a_table_is_completed_with_links_to_its_files() {
        let place = tempfile::tempdir().unwrap();
        let (from, runtime) = (place.path().join("from"), place.path().join("runtime"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&runtime).unwrap();
        fs::write(from.join("libibverbs.so.1"), "library").unwrap();
        fs::write(from.join(TABLE), "/sys/rate 25\n").unwrap();
        for _ in 0..2 {
            make(&from, &from.join(TABLE), &runtime, &runtime.join("complete")).unwrap();
            assert_eq!(fs::read_to_string(runtime.join("complete/libibverbs.so")).unwrap(), "library");
            assert_eq!(fs::read_to_string(runtime.join("complete/devices/sys/rate")).unwrap(), "25\n");
            assert_eq!(fs::read_dir(&runtime).unwrap().count(), 1);
        }
    }

    #[test]
    fn files_of_another_user_are_not_used() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("from");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(TABLE), "/sys/rate 25\n").unwrap();
        let mine = temporary.path().join("mine");
        let complete = with_links_in(&mine, folder.clone()).unwrap();
        assert!(complete.join("devices").exists());
        // Root gives its folder to another user, which only root can do; other users take a folder of root.
        let theirs = match geteuid().is_root() {
            true => {
                chown(&mine, Some(65_534), None).unwrap();
                mine
            }
            false => PathBuf::from("/usr"),
        };
        let refused = with_links_in(&theirs, folder).unwrap_err().to_string();
        assert!(
            refused.ends_with("belongs to another user (XDG_RUNTIME_DIR chooses another place)"),
            "{refused}"
        );
    }
}
