//! Checks whether a program can load Nichrome's libraries.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use goblin::elf::Elf;
use goblin::elf::header::{EM_AARCH64, EM_X86_64, ET_EXEC};
use rustix::fs::{Access, access};

use crate::failure::{self, NOT_EXECUTABLE, NOT_FOUND};

/// How a program is linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Linkage {
    /// True if it is linked with libibverbs.
    pub(super) needs_libibverbs: bool,
    /// True if it is statically linked, so that it cannot load libraries.
    pub(super) is_static: bool,
    /// True if it is linked with AddressSanitizer, which by default must be the first library.
    pub(super) checks_link_order: bool,
}

/// A program's file.
pub(super) struct Program {
    path: PathBuf,
}

/// The name by which programs load libibverbs.
const LIBRARY: &str = "libibverbs.so.1";

/// A string in libibverbs, and so in programs that have it linked in statically.
const SIGNATURE: &[u8] = b"/sys/class/infiniband_verbs\0";

/// The processor that this command and its libraries are built for: as in the header of an ELF file, and its
/// name.
const PROCESSOR: (u16, &str) =
    if cfg!(target_arch = "aarch64") { (EM_AARCH64, "AArch64") } else { (EM_X86_64, "x86-64") };

impl Program {
    /// Finds a program as the shell does: by its path, else in the folders of `search_path`.
    ///
    /// # Errors
    /// The program is not found or not executable.
    pub(super) fn find(name: &OsStr, search_path: &OsStr) -> anyhow::Result<Self> {
        let given = Path::new(name);
        let places: Vec<PathBuf> = if given.components().count() > 1 {
            vec![given.to_owned()]
        } else {
            env::split_paths(search_path).map(|folder| folder.join(given)).collect()
        };
        let is_executable = |path: &&PathBuf| path.is_file() && access(*path, Access::EXEC_OK).is_ok();
        if let Some(path) = places.iter().find(is_executable) {
            return Ok(Self { path: path.clone() });
        }
        Err(match places.iter().find(|path| path.exists() && !name.is_empty()) {
            Some(path) => {
                failure::not_started(NOT_EXECUTABLE, format!("{} is not executable", path.display()))
            }
            None => failure::not_started(NOT_FOUND, format!("cannot find the program {}", given.display())),
        })
    }

    /// Checks how the program is linked. Scripts always pass: their interpreters load the libraries.
    ///
    /// # Errors
    /// The program is set-user-ID, for another processor, or has libibverbs linked in.
    pub(super) fn check(&self) -> anyhow::Result<Linkage> {
        let name = self.path.display();
        let bytes = fs::read(&self.path).with_context(|| format!("cannot read {name}"))?;
        if !bytes.starts_with(b"\x7FELF") {
            return Ok(Linkage::default());
        }
        let not_executable = |what| failure::not_started(NOT_EXECUTABLE, what);
        let elf = Elf::parse(&bytes)
            .map_err(|error| not_executable(format!("{name} is not a valid ELF file: {error}")))?;
        let (machine, processor) = PROCESSOR;
        if elf.header.e_machine != machine || !elf.is_64 {
            return Err(not_executable(format!(
                "{name} is built for another processor: libibverbs is built for {processor}"
            )));
        }
        if elf.header.e_type == ET_EXEC && elf.dynamic.is_none() || elf.interpreter.is_none() {
            return Ok(Linkage { is_static: true, ..Linkage::default() });
        }
        if fs::metadata(&self.path)?.permissions().mode() & 0o6000 != 0 {
            bail!(
                "{name} is set-user-ID or set-group-ID and cannot preload libraries: run a copy without these bits"
            );
        }
        let needs_libibverbs = elf.libraries.contains(&LIBRARY);
        if !needs_libibverbs && contains(&bytes, SIGNATURE) && !contains(&bytes, LIBRARY.as_bytes()) {
            bail!("{name} has libibverbs linked in statically: link it with -libverbs as a shared library");
        }
        let is_sanitizer =
            |name: &&str| name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
        let checks_link_order = elf.libraries.iter().any(is_sanitizer);
        Ok(Linkage { needs_libibverbs, is_static: false, checks_link_order })
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_same_processor_can_load_the_libraries() {
        let this = Program { path: env::current_exe().unwrap() };
        assert_eq!(this.check().unwrap(), Linkage::default());
    }
}
