//! An open device, as a program holds it.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::async_target::AsyncEvents;
use crate::header::{ibv_context, verbs_context};
use crate::object::cell;

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    abi: UnsafeCell<verbs_context>,
    adapter: Arc<Adapter>,
    async_events: Arc<AsyncEvents>,
}

impl Context {
    /// Gives a context to the program: the pointer is to the last field of its structure.
    pub(crate) fn into_abi(
        abi: verbs_context,
        adapter: Arc<Adapter>,
        async_events: Arc<AsyncEvents>,
    ) -> *mut ibv_context {
        let opened = Box::into_raw(Box::new(Self { abi: cell(abi), adapter, async_events }));
        // SAFETY: the field is inside of what was made just now.
        unsafe { opened.byte_add(offset_of!(verbs_context, context)) }.cast()
    }

    /// Takes the context back from the program.
    ///
    /// # Safety
    /// [`Context::into_abi`] gave the pointer, and it is not used again.
    pub(crate) unsafe fn take_back(context: *mut ibv_context) -> Box<Self> {
        // SAFETY: the caller says so.
        unsafe { Box::from_raw(Self::start(context)) }
    }

    /// The context behind a pointer of the program, which is to the last field of its structure.
    ///
    /// # Safety
    /// `ibv_open_device` gave the pointer, and the context is open while `'a` lasts.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: the field is so many bytes into the structure, which is the context's first field.
        unsafe { &*Self::start(context) }
    }

    /// Where the context of a pointer begins.
    unsafe fn start(context: *mut ibv_context) -> *mut Self {
        // SAFETY: as the caller says, the pointer is to this field of a whole `Context`.
        unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn async_events(&self) -> &Arc<AsyncEvents> {
        &self.async_events
    }
}
