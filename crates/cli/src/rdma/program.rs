//! Whether a program can be given another libibverbs.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use goblin::elf::Elf;
use goblin::elf::header::{EM_X86_64, ET_EXEC};

/// What the file of a program says about the libraries that it loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Linkage {
    /// It is linked with libibverbs.
    pub(super) asks_for_libibverbs: bool,
    /// It is linked with AddressSanitizer, which wants to be the first library.
    pub(super) checks_link_order: bool,
}

/// A program as a file.
pub(super) struct Program {
    path: PathBuf,
}

/// The library that programs ask for.
const LIBRARY: &str = "libibverbs.so.1";

/// A text that is in libibverbs, and in programs that have it in themselves.
const MARK_OF_LIBIBVERBS: &[u8] = b"/sys/class/infiniband_verbs\0";

impl Program {
    /// Finds a program as the shell would.
    pub(super) fn find(name: &OsStr) -> anyhow::Result<Self> {
        let given = Path::new(name);
        let path = if given.components().count() > 1 {
            Some(given.to_owned()).filter(|path| path.is_file())
        } else {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).map(|folder| folder.join(given)).find(|path| path.is_file())
        };
        let path = path.with_context(|| format!("there is no program {}", given.display()))?;
        Ok(Self { path })
    }

    /// Checks that it can take the libraries. Of scripts nothing is known: the programs that they start take them.
    ///
    /// # Errors
    /// It cannot, with the reason.
    pub(super) fn check(&self) -> anyhow::Result<Linkage> {
        let name = self.path.display();
        let bytes = fs::read(&self.path).with_context(|| format!("cannot read {name}"))?;
        if !bytes.starts_with(b"\x7FELF") {
            return Ok(Linkage::default());
        }
        let elf = Elf::parse(&bytes).with_context(|| format!("{name} is no program"))?;
        if elf.header.e_machine != EM_X86_64 || !elf.is_64 {
            bail!("{name} is for another processor: libibverbs is for x86-64");
        }
        if elf.header.e_type == ET_EXEC && elf.dynamic.is_none() || elf.interpreter.is_none() {
            bail!("{name} is statically linked and takes no other libibverbs: link it dynamically");
        }
        if fs::metadata(&self.path)?.permissions().mode() & 0o6000 != 0 {
            bail!("{name} is set-user-ID or set-group-ID and takes no other libraries: run a copy without");
        }
        let asks_for_libibverbs = elf.libraries.contains(&LIBRARY);
        if !asks_for_libibverbs
            && contains(&bytes, MARK_OF_LIBIBVERBS)
            && !contains(&bytes, LIBRARY.as_bytes())
        {
            bail!("{name} has a libibverbs of its own linked in: link it with -libverbs as a shared library");
        }
        let is_sanitizer =
            |name: &&str| name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
        let checks_link_order = elf.libraries.iter().any(is_sanitizer);
        Ok(Linkage { asks_for_libibverbs, checks_link_order })
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
