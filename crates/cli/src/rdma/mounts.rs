//! `nichrome rdma run --mount`: the device's files in `/sys` and `/dev`, in a mount namespace of the program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context;
use nichrome_abi::sysfs_attribute::configured;
use nichrome_hca::Transport;
use nichrome_port::MountNamespace;

/// Folders in which the device has entries, and the names of these.
const PLACES: [(&str, &[&str]); 3] = [
    ("/sys/class", &["infiniband", "infiniband_verbs"]),
    ("/sys/devices/platform", &["nichrome.0"]),
    ("/dev", &["infiniband"]),
];

/// The folder of the device's attributes.
const ATTRIBUTES: &str = "/sys/devices/platform/nichrome.0/infiniband/nichrome0";

/// The device's file. `devices` has a link to /dev/null in its place.
const CHARACTER_DEVICE: &str = "/dev/infiniband/uverbs0";

/// Moves this process into a mount namespace that shows the files of the folder `devices` of `libraries` in
/// `/sys` and `/dev`. Attributes that depend on the device's transport and address have the values that
/// `transport` and `place`, the values of `NICHROME_IP` and `NICHROME_IFACE`, determine.
///
/// # Errors
/// The kernel refuses the namespace or a mount, or a file cannot be copied.
pub(super) fn show_device(
    libraries: &Path,
    transport: Transport,
    place: &[Option<OsString>; 2],
) -> anyhow::Result<()> {
    let value = |name: &str| configured(name, transport, place);
    let namespace = MountNamespace::enter().context("--mount")?;
    for (folder, names) in PLACES {
        let folder = Path::new(folder);
        namespace.cover(folder, names).context("--mount")?;
        for name in names {
            let at = folder.join(name);
            let from = libraries.join("devices").join(at.strip_prefix("/")?);
            copy(&from, &at, &value).with_context(|| format!("--mount: cannot create {}", at.display()))?;
        }
    }
    File::create(CHARACTER_DEVICE).with_context(|| format!("--mount: cannot create {CHARACTER_DEVICE}"))?;
    namespace.bind(Path::new("/dev/null"), Path::new(CHARACTER_DEVICE)).context("--mount")
}

/// Copies a file, a link or a folder with everything in it. Writes `value` of an attribute's name instead of
/// the attribute's content, unless it is `None`.
fn copy(from: &Path, to: &Path, value: &impl Fn(&str) -> Option<String>) -> std::io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        fs::create_dir(to)?;
        return fs::read_dir(from)?.try_for_each(|entry| {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()), value)
        });
    }
    if to == Path::new(CHARACTER_DEVICE) {
        return Ok(());
    }
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    let name = to.strip_prefix(ATTRIBUTES).ok().and_then(Path::to_str);
    match name.and_then(value) {
        Some(value) => fs::write(to, value + "\n"),
        None => fs::copy(from, to).map(|_| ()),
    }
}
