//! `/dev/infiniband/rdma_cm`, emulated within the process for rdma-core's own librdmacm.
//!
//! librdmacm opens the file, writes commands to it, and polls it for events. When it asks for the device
//! list, which it does first, its calls of open(2), fstat(2), write(2) and close(2) are redirected to this
//! module's functions ([`redirect_librdmacm`]). Other libraries' calls are not. A statically linked librdmacm
//! has no calls that can be redirected.
//!
//! | file | concept |
//! |---|---|
//! | `redirect.rs` | the slots of librdmacm's global offset table |
//! | `calls.rs`, `device_number.rs` | the functions that librdmacm calls instead of the C library's |
//! | `file.rs` | open files: commands, events |
//! | `manager.rs` | the process's connection manager, and the adapter that it opens |

mod calls;
mod device_number;
pub(crate) mod file;
pub(crate) mod manager;
mod redirect;

pub(crate) use redirect::redirect_librdmacm;
