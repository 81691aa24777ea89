//! Whether a program can be given another libibverbs, and how.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use goblin::elf::Elf;
use goblin::elf::header::{EM_X86_64, ET_EXEC};

/// How a program gets our library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It looks for the library in `LD_LIBRARY_PATH` first.
    LibraryPath,
    /// It looks in folders of its own first: the library must be there before it looks.
    Preload,
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

    /// How it gets our library. Scripts get it as what they start does.
    pub(super) fn way_in(&self) -> anyhow::Result<Way> {
        let name = self.path.display();
        let bytes = fs::read(&self.path).with_context(|| format!("cannot read {name}"))?;
        if !bytes.starts_with(b"\x7FELF") {
            return Ok(Way::LibraryPath);
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
        let asks = elf.libraries.contains(&LIBRARY);
        if !asks && contains(&bytes, MARK_OF_LIBIBVERBS) && !contains(&bytes, LIBRARY.as_bytes()) {
            bail!("{name} has a libibverbs of its own linked in: link it with -libverbs as a shared library");
        }
        // Of these, only the first comes before the environment; an own copy is passed over either way.
        let own = elf.rpaths.iter().chain(&elf.runpaths).flat_map(|folders| folders.split(':'));
        let has_own = own.map(|folder| self.in_place(folder)).any(|folder| folder.join(LIBRARY).exists());
        Ok(if has_own { Way::Preload } else { Way::LibraryPath })
    }

    /// A folder as the program names it.
    fn in_place(&self, folder: &str) -> PathBuf {
        let origin = self.path.parent().unwrap_or(Path::new("."));
        let origin = origin.to_string_lossy();
        PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
