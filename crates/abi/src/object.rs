//! Converts between objects and the pointers that programs hold.

use std::cell::UnsafeCell;

use crate::errno::Errno;
use crate::live_objects;

/// An object that begins with its C structure.
///
/// # Safety
/// The type is `repr(C)` and its first field is an `UnsafeCell<Self::Abi>`.
pub(crate) unsafe trait Object: Sized + 'static {
    /// The object's C structure.
    type Abi;

    /// Returns the handle in the structure, which programs may overwrite; 0 if the structure has none.
    fn handle_in(abi: &Self::Abi) -> u32;

    /// Passes ownership of the object to the program as a pointer to its C structure.
    fn into_abi(self: Box<Self>) -> *mut Self::Abi {
        let abi: *mut Self::Abi = Box::into_raw(self).cast();
        // SAFETY: the structure is the first field of the object, which the box held.
        live_objects::add::<Self>(abi.cast_const().cast(), Self::handle_in(unsafe { &*abi }));
        abi
    }
}

/// Returns the object of a program's pointer after checking that the object is live and its handle is intact.
///
/// # Errors
/// `EINVAL` if no live object of this type has this address, `ENOENT` if the handle is not the object's.
///
/// # Safety
/// If the pointer is from [`Object::into_abi`] of this type, the object is not destroyed before `'a` ends.
pub(crate) unsafe fn known<'a, T: Object>(abi: *mut T::Abi) -> Result<&'a T, Errno> {
    let handle = live_objects::handle_at::<T>(abi.cast_const().cast())?;
    // SAFETY: the pointer is from `into_abi` and its object was not reclaimed, so the structure exists.
    if T::handle_in(unsafe { &*abi }) != handle {
        return Err(Errno::NO_ENTRY);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { object(abi) })
}

/// Returns the object of a program's pointer, unchecked.
///
/// # Safety
/// The pointer is from [`Object::into_abi`] of this type, and the object is not destroyed before `'a` ends.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> &'a T {
    // SAFETY: guaranteed by the caller; the part that the program may write to is in an `UnsafeCell`.
    unsafe { &*abi.cast::<T>() }
}

/// Takes ownership of the object back from the program.
///
/// # Safety
/// The pointer is from [`Object::into_abi`] of this type, and is not used again.
pub(crate) unsafe fn reclaim<T: Object>(abi: *mut T::Abi) -> Box<T> {
    live_objects::remove(abi.cast_const().cast());
    // SAFETY: guaranteed by the caller.
    unsafe { Box::from_raw(abi.cast::<T>()) }
}

/// Takes ownership of the objects for which `matches` returns true back from the program. `matches` may read
/// only fields that nothing writes after the object's creation.
///
/// # Safety
/// Nothing else uses these objects during or after this call.
pub(crate) unsafe fn reclaim_where<T: Object>(matches: impl Fn(*const T::Abi) -> bool) -> Vec<Box<T>> {
    let addresses = live_objects::remove_where::<T>(|address| matches(address.cast()));
    // SAFETY: the pointers are from `into_abi`; the caller guarantees the rest.
    addresses.into_iter().map(|address| unsafe { Box::from_raw(address.cast_mut().cast::<T>()) }).collect()
}

/// Calls `take` with the objects of this type that have this handle, until it returns a result. None of them
/// is destroyed during the call; `take` calls no verb. A forked child also finds the objects of its parent's
/// device.
pub(crate) fn find<T: Object, R>(handle: u32, mut take: impl FnMut(&T) -> Option<R>) -> Option<R> {
    // SAFETY: the table has addresses from `into_abi`, and none is reclaimed while it is locked.
    live_objects::find::<T, R>(handle, |address| take(unsafe { &*address.cast::<T>() }))
}

/// Returns an all-zero C structure. For structures of `header` only.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: the fields of the structures of `header` are integers, pointers and `Option`s of functions.
    unsafe { std::mem::zeroed() }
}

/// Wraps a C structure, which the program may write to.
pub(crate) fn cell<T>(abi: T) -> UnsafeCell<T> {
    UnsafeCell::new(abi)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[repr(C)]
    struct Structure {
        handle: u32,
        key: u32,
    }

    #[repr(C)]
    struct Thing {
        abi: UnsafeCell<Structure>,
        owned: Arc<()>,
    }

    // SAFETY: the type is repr(C) and begins with the structure in an UnsafeCell.
    unsafe impl Object for Thing {
        type Abi = Structure;

        fn handle_in(abi: &Structure) -> u32 {
            abi.handle
        }
    }

    #[repr(C)]
    struct Other(UnsafeCell<Structure>);

    // SAFETY: as above.
    unsafe impl Object for Other {
        type Abi = Structure;

        fn handle_in(abi: &Structure) -> u32 {
            abi.handle
        }
    }

    fn made(owned: &Arc<()>) -> *mut Structure {
        Box::new(Thing { abi: cell(Structure { handle: 7, key: 1 }), owned: Arc::clone(owned) }).into_abi()
    }

    #[test]
    fn a_program_writes_to_its_structure_while_the_object_is_in_use() {
        let owned = Arc::new(());
        let abi = made(&owned);
        // SAFETY: the pointer is from `into_abi`, and the object is reclaimed after its last use.
        unsafe {
            let thing = known::<Thing>(abi).unwrap();
            (*abi).key = 2;
            assert_eq!((*thing.abi.get()).key, 2);
            assert_eq!(Arc::strong_count(&thing.owned), 2);
            drop(reclaim::<Thing>(abi));
        }
        assert_eq!(Arc::strong_count(&owned), 1);
    }

    #[test]
    fn wrong_and_stale_pointers_and_overwritten_handles_are_errors() {
        let abi = made(&Arc::new(()));
        // SAFETY: `known` does not access an object that it does not find; the other pointers are from
        // `into_abi`.
        unsafe {
            assert_eq!(known::<Other>(abi.cast()).err(), Some(Errno::INVALID));
            assert_eq!(known::<Thing>(abi.wrapping_add(1)).err(), Some(Errno::INVALID));
            (*abi).handle = 8;
            assert_eq!(known::<Thing>(abi).err(), Some(Errno::NO_ENTRY));
            drop(reclaim::<Thing>(abi));
            assert_eq!(known::<Thing>(abi).err(), Some(Errno::INVALID));
        }
    }
}
