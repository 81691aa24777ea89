//! The structures of `infiniband/verbs.h`, and of the kernel's headers that librdmacm needs, under their C
//! names. The layout test compares every size and offset with the C compiler's.
#![allow(missing_debug_implementations, reason = "C structures with unions and pointers")]

mod address;
mod completion;
mod context;
mod device;
mod kernel;
mod layout;
mod memory;
mod operations;
mod queue_pair;
mod shared_receive;
mod work;

pub use address::*;
pub use completion::*;
pub use context::*;
pub use device::*;
pub use kernel::*;
pub(crate) use layout::abi;
pub use layout::{Field, Layout};
pub use memory::*;
pub use operations::*;
pub use queue_pair::*;
pub use shared_receive::*;
pub use work::*;

/// Every structure whose layout programs depend on.
pub const LAYOUTS: &[&[Layout]] = &[
    address::LAYOUTS,
    completion::LAYOUTS,
    context::LAYOUTS,
    device::LAYOUTS,
    kernel::LAYOUTS,
    memory::LAYOUTS,
    operations::LAYOUTS,
    queue_pair::LAYOUTS,
    shared_receive::LAYOUTS,
    work::LAYOUTS,
];
