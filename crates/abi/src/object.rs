//! Objects that programs hold by pointers.

use std::cell::UnsafeCell;

/// An object that begins with the structure that programs know.
///
/// # Safety
/// The type is `repr(C)` and its first field is an `UnsafeCell<Self::Abi>`.
pub(crate) unsafe trait Object: Sized {
    /// The structure of the header.
    type Abi;

    /// Gives the object to the program.
    fn into_abi(self: Box<Self>) -> *mut Self::Abi {
        Box::into_raw(self).cast()
    }
}

/// The object behind a pointer of the program.
///
/// # Safety
/// The pointer is one that [`Object::into_abi`] of this type gave, and the object is not destroyed before `'a` ends.
pub(crate) unsafe fn object<'a, T: Object>(abi: *mut T::Abi) -> &'a T {
    // SAFETY: the caller says that it is one; what the program may change of it is in an `UnsafeCell`.
    unsafe { &*abi.cast::<T>() }
}

/// Takes the object back from the program.
///
/// # Safety
/// The pointer is one that [`Object::into_abi`] of this type gave, and it is not used again.
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Box<T> {
    // SAFETY: the caller says so.
    unsafe { Box::from_raw(abi.cast::<T>()) }
}

/// A structure of C with all bytes zero, which the header's structures may be.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for the structures of `header` only: integers, pointers, and functions that may be missing.
    unsafe { std::mem::zeroed() }
}

/// A structure as programs see it.
pub(crate) fn cell<T>(abi: T) -> UnsafeCell<T> {
    UnsafeCell::new(abi)
}
