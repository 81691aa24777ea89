//! The objects that the program holds, by their addresses.
//!
//! The library of a hardware device passes an object's `handle` to the kernel, which refuses unknown handles.
//! Here verbs that create, change or destroy objects look the pointer up first, so that a stale pointer, a
//! pointer to an object of another kind, or an overwritten handle is an error and not an invalid memory
//! access. Polling looks nothing up, and posting compares only the handle: `retired.rs` makes both fail on a
//! destroyed queue.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use crate::header::ibv_context;

/// The object at an address.
#[derive(Clone, Copy)]
struct Live {
    kind: TypeId,
    handle: u32,
}

static LIVE: Mutex<BTreeMap<usize, Live>> = Mutex::new(BTreeMap::new());

fn live() -> MutexGuard<'static, BTreeMap<usize, Live>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked table.
pub(crate) struct Held {
    _table: MutexGuard<'static, BTreeMap<usize, Live>>,
}

/// Locks the table until the result is dropped: for a process that is about to fork, whose child would
/// otherwise find it locked by a thread that does not exist there.
pub(crate) fn hold() -> Held {
    Held { _table: live() }
}

/// Adds an object that the program receives, with the handle in its structure.
pub(crate) fn add<T: 'static>(address: *const (), handle: u32) {
    live().insert(address as usize, Live { kind: TypeId::of::<T>(), handle });
}

/// Removes an object that the program destroyed.
pub(crate) fn remove(address: *const ()) {
    live().remove(&(address as usize));
}

/// Removes the objects of this kind for which `matches` returns true, and returns their addresses. No object
/// is destroyed while `matches` examines it.
pub(crate) fn remove_where<T: 'static>(matches: impl Fn(*const ()) -> bool) -> Vec<*const ()> {
    let mut live = live();
    let matches =
        |address: usize, found: &Live| found.kind == TypeId::of::<T>() && matches(address as *const ());
    live.extract_if(.., |address, found| matches(*address, found))
        .map(|(address, _)| address as *const ())
        .collect()
}

/// Returns the addresses of all objects of this kind.
pub(crate) fn all<T: 'static>() -> Vec<usize> {
    let live = live();
    live.iter().filter(|(_, found)| found.kind == TypeId::of::<T>()).map(|(address, _)| *address).collect()
}

/// Returns true if the C structure of a live object begins with this pointer. Most structures begin with the
/// pointer to their context.
///
/// # Safety
/// All objects begin with 8 initialized bytes, aligned as pointers are.
pub(crate) unsafe fn any_of(context: *const ibv_context) -> bool {
    // SAFETY: guaranteed by the caller; no object is destroyed under the lock.
    live().keys().any(|address| unsafe { ptr::eq(*(*address as *const *const ibv_context), context) })
}

/// Returns the original handle of the object of this kind at an address.
///
/// # Errors
/// `EINVAL` if there is no such object.
pub(crate) fn handle_at<T: 'static>(address: *const ()) -> Result<u32, Errno> {
    let found = live().get(&(address as usize)).copied();
    found.filter(|found| found.kind == TypeId::of::<T>()).map(|found| found.handle).ok_or(Errno::INVALID)
}

/// Calls `take` with the addresses of the objects of this kind that have this handle, until it returns a
/// result. None of them is destroyed during the call, and `take` does not call this module.
pub(crate) fn find<T: 'static, R>(handle: u32, take: impl FnMut(*const ()) -> Option<R>) -> Option<R> {
    let live = live();
    let of_kind = live.iter().filter(|(_, found)| found.kind == TypeId::of::<T>() && found.handle == handle);
    of_kind.map(|(address, _)| *address as *const ()).find_map(take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_one_kind_while_the_object_lives() {
        let (one, other) = (0u8, 0u8);
        let address = |of: &u8| (&raw const *of).cast::<()>();
        add::<u32>(address(&one), 7);
        assert_eq!(handle_at::<u32>(address(&one)), Ok(7));
        assert_eq!(handle_at::<u64>(address(&one)), Err(Errno::INVALID));
        assert_eq!(handle_at::<u32>(address(&other)), Err(Errno::INVALID));
        remove(address(&one));
        assert_eq!(handle_at::<u32>(address(&one)), Err(Errno::INVALID));
    }
}
