//! Contexts, which `ibv_open_device` returns to the program.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::async_source::AsyncEvents;
use crate::errno::Errno;
use crate::header::{ibv_context, verbs_context};
use crate::live_objects;
use crate::object::cell;

/// An open context, which keeps the process's device open.
#[repr(C)]
pub(crate) struct Context {
    abi: UnsafeCell<verbs_context>,
    adapter: Arc<Adapter>,
    async_events: Arc<AsyncEvents>,
}

// SAFETY: the program's threads share the structure, which only its creation writes.
unsafe impl Send for Context {}

impl Context {
    /// Allocates a context and returns the program's pointer, which points to the last field of
    /// `verbs_context`.
    pub(crate) fn into_abi(
        abi: verbs_context,
        adapter: Arc<Adapter>,
        async_events: Arc<AsyncEvents>,
    ) -> *mut ibv_context {
        let opened = Box::into_raw(Box::new(Self { abi: cell(abi), adapter, async_events }));
        // SAFETY: the field lies within the allocation.
        let context: *mut ibv_context = unsafe { opened.byte_add(offset_of!(verbs_context, context)) }.cast();
        // Contexts have no handle.
        live_objects::add::<Self>(context.cast_const().cast(), 0);
        context
    }

    /// Takes ownership of the context back from the program.
    ///
    /// # Safety
    /// The pointer is from [`Context::into_abi`] and is not used again.
    pub(crate) unsafe fn reclaim(context: *mut ibv_context) -> Box<Self> {
        live_objects::remove(context.cast_const().cast());
        // SAFETY: guaranteed by the caller.
        unsafe { Box::from_raw(Self::start(context)) }
    }

    /// Returns the context of a program's pointer after checking that it is open.
    ///
    /// # Errors
    /// `EINVAL` if no open context has this address.
    ///
    /// # Safety
    /// If the pointer is from `ibv_open_device`, the context stays open for `'a`.
    pub(crate) unsafe fn known<'a>(context: *mut ibv_context) -> Result<&'a Self, Errno> {
        live_objects::handle_at::<Self>(context.cast_const().cast())?;
        // SAFETY: the context is open, and the caller guarantees the rest.
        Ok(unsafe { Self::of(context) })
    }

    /// Returns the context of a program's pointer, unchecked.
    ///
    /// # Safety
    /// The pointer is from `ibv_open_device`, and the context stays open for `'a`.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: guaranteed by the caller.
        unsafe { &*Self::start(context) }
    }

    /// Returns the start of the `Context` that holds the program's `ibv_context`.
    unsafe fn start(context: *mut ibv_context) -> *mut Self {
        // SAFETY: the caller passes a pointer to this field, and `verbs_context` is the first field of a
        // `Context`.
        unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    /// Returns the addresses of the program's open contexts.
    pub(crate) fn all_open() -> Vec<usize> {
        live_objects::all::<Self>()
    }

    /// Returns the program's pointer.
    pub(crate) fn address(&self) -> *const ibv_context {
        let start: *const Self = self;
        start.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn async_events(&self) -> &Arc<AsyncEvents> {
        &self.async_events
    }
}
