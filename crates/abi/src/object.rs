//! Converts between objects and the pointers that programs hold.

use std::cell::UnsafeCell;

/// An object that begins with its C structure.
///
/// # Safety
/// The type is `repr(C)` and its first field is an `UnsafeCell<Self::Abi>`.
pub(crate) unsafe trait Object: Sized {
    /// The object's C structure.
    type Abi;

    /// Passes ownership of the object to the program as a pointer to its C structure.
    fn into_abi(self: Box<Self>) -> *mut Self::Abi {
        Box::into_raw(self).cast()
    }
}

/// Returns the object of a program's pointer.
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
pub(crate) unsafe fn take_back<T: Object>(abi: *mut T::Abi) -> Box<T> {
    // SAFETY: guaranteed by the caller.
    unsafe { Box::from_raw(abi.cast::<T>()) }
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
