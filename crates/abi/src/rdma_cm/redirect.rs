//! Redirects librdmacm's calls of open(2), fstat(2), write(2) and close(2) to this library's, in librdmacm
//! alone.
//!
//! A dynamically linked library calls another's function through a slot of its global offset table, whose
//! address its relocations name. The loader has filled the slots when the first function of this library is
//! called, and may have made their page read-only (RELRO); such a page is writable only while its slots
//! change.

use std::ffi::{CStr, c_int, c_void};
use std::slice;

use super::calls;
use crate::process_memory::page_size;

/// A function of the C library and its replacement.
struct Replacement {
    name: &'static CStr,
    function: *const c_void,
}

/// The functions by which librdmacm uses its device file, under the names of glibc 2.33 and later, of older
/// versions, of builds with 64-bit file offsets and of `_FORTIFY_SOURCE`.
fn replacements() -> [Replacement; 10] {
    let of = |name, function| Replacement { name, function };
    [
        of(c"open", calls::open as *const c_void),
        of(c"open64", calls::open as *const c_void),
        of(c"__open_2", calls::open as *const c_void),
        of(c"__open64_2", calls::open as *const c_void),
        of(c"fstat", calls::fstat as *const c_void),
        of(c"fstat64", calls::fstat as *const c_void),
        of(c"__fxstat", calls::fxstat as *const c_void),
        of(c"__fxstat64", calls::fxstat as *const c_void),
        of(c"write", calls::write as *const c_void),
        of(c"close", calls::close as *const c_void),
    ]
}

/// Redirects the calls of each loaded librdmacm. A librdmacm that was redirected before stays redirected.
pub(crate) fn redirect_librdmacm() {
    // SAFETY: the callback has the signature that the function requires.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

/// Redirects the calls of an object if it is librdmacm.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: the loader passes the description of a loaded object.
    unsafe {
        let info = &*info;
        if !info.dlpi_name.is_null() && is_librdmacm(CStr::from_ptr(info.dlpi_name)) {
            redirect(info);
        }
    }
    0
}

/// Returns true if a path is librdmacm's. Python packages add a hash to the name (`librdmacm-0fb2a9b4.so.1`).
fn is_librdmacm(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.strip_prefix(b"librdmacm").is_some_and(|rest| rest.starts_with(b".so") || rest.starts_with(b"-"))
}

/// Entries of the dynamic section (`DT_*`).
#[derive(Default)]
struct Dynamic {
    symbols: usize,
    strings: usize,
    /// The relocations with addends (DT_RELA) and those of functions (DT_JMPREL): address, and length in
    /// bytes.
    relocations: [(usize, usize); 2],
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// Relocations that store a function's address in a slot: `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`.
#[cfg(target_arch = "x86_64")]
const SLOTS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const SLOTS: [u32; 2] = [1025, 1026];

/// Reads the dynamic section. The loader of glibc has turned its addresses into absolute ones; musl's leaves
/// them relative.
///
/// # Safety
/// `info` describes a loaded object.
unsafe fn dynamic(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> Option<Dynamic> {
    let base = info.dlpi_addr as usize;
    let section = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let absolute = |value: usize| if value < base { value + base } else { value };
    let mut found = Dynamic::default();
    let mut entry = (base + section.p_vaddr as usize) as *const (i64, u64);
    loop {
        // SAFETY: the section is mapped and ends with an entry of tag 0.
        let (tag, value) = unsafe { entry.read() };
        let value = value as usize;
        match tag {
            0 => break,
            DT_SYMTAB => found.symbols = absolute(value),
            DT_STRTAB => found.strings = absolute(value),
            DT_RELA => found.relocations[0].0 = absolute(value),
            DT_RELASZ => found.relocations[0].1 = value,
            DT_JMPREL => found.relocations[1].0 = absolute(value),
            DT_PLTRELSZ => found.relocations[1].1 = value,
            _ => {}
        }
        // SAFETY: the section goes on until its last entry.
        entry = unsafe { entry.add(1) };
    }
    (found.symbols != 0 && found.strings != 0).then_some(found)
}

/// Replaces the functions in an object's slots.
///
/// # Safety
/// `info` describes a loaded object.
unsafe fn redirect(info: &libc::dl_phdr_info) {
    // SAFETY: the loader passes the object's program headers; tables are where its dynamic section says.
    unsafe {
        let headers = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let Some(dynamic) = dynamic(info, headers) else { return };
        let replacements = replacements();
        for (start, len) in dynamic.relocations {
            let count = len / size_of::<libc::Elf64_Rela>();
            for index in 0..count {
                let relocation = &*(start as *const libc::Elf64_Rela).add(index);
                let (symbol, kind) = ((relocation.r_info >> 32) as usize, relocation.r_info as u32);
                if !SLOTS.contains(&kind) {
                    continue;
                }
                let symbol = &*(dynamic.symbols as *const libc::Elf64_Sym).add(symbol);
                let name = CStr::from_ptr((dynamic.strings + symbol.st_name as usize) as *const _);
                if let Some(found) = replacements.iter().find(|replacement| replacement.name == name) {
                    let slot = (info.dlpi_addr + relocation.r_offset) as *mut *const c_void;
                    replace(slot, found.function, is_read_only(info, headers, slot));
                }
            }
        }
    }
}

/// Returns true if the loader has made a slot's page read-only.
fn is_read_only(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr], slot: *mut *const c_void) -> bool {
    let page = page_size();
    headers.iter().filter(|header| header.p_type == libc::PT_GNU_RELRO).any(|header| {
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        // The part of the last page behind the segment stays writable, and so does the page.
        let end = (start + header.p_memsz as usize) & !(page - 1);
        (start & !(page - 1)..end).contains(&(slot as usize))
    })
}

/// Stores a function in a slot.
///
/// # Safety
/// The slot is one of a loaded object, and the function has the signature of the one in it.
unsafe fn replace(slot: *mut *const c_void, function: *const c_void, is_read_only: bool) {
    let page = page_size();
    let start = (slot as usize & !(page - 1)) as *mut c_void;
    // SAFETY: the page is that of a loaded object, and other threads only read its slots, each in one access.
    unsafe {
        if slot.read() == function {
            return;
        }
        if is_read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        slot.write_volatile(function);
        if is_read_only {
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdmacm_is_recognized_by_its_file_name() {
        for path in
            [c"/usr/lib/librdmacm.so.1", c"librdmacm.so.1.3.44.0", c"/x/librdmacm-0fb2a9b4.so.1.3.44.0"]
        {
            assert!(is_librdmacm(path), "{path:?}");
        }
        for path in [c"", c"/usr/lib/librspreload.so", c"/librdmacm/libc.so.6", c"/x/librdmacm_helper.so"] {
            assert!(!is_librdmacm(path), "{path:?}");
        }
    }
}
