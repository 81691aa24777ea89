//! `libibverbs.so.1`: the verbs of rdma-core for programs that were compiled against it, on `nichrome-hca`.
//!
//! The crate is a static library; `scripts/build-libibverbs` links it with the version script `libibverbs.map`. Beside it
//! is `libnichrome-devices.so`, from `shim/`, which shows the device in `/sys` and `/dev`; `shim/shim.h` says how. Functions
//! have the names, arguments and results of `infiniband/verbs.h`, and an object that a program holds a pointer to begins
//! with the structure that the header declares (`header`). The device behind is one per process and lives as long as a
//! context is open; [`configuration`] says what the environment decides.
//!
//! | file | verbs |
//! |---|---|
//! | `device.rs`, `attributes.rs`, `port.rs` | the list of devices; what device and port can do; GIDs and partition keys |
//! | `open_device.rs`, `context.rs`, `unsupported.rs` | opening and closing; the operations of a context, and the answer of those that are missing |
//! | `adapter.rs`, `listeners.rs` | the device behind all contexts, and whom it tells of events |
//! | `process_memory.rs`, `guarded_copy.rs` | the program's memory as the device reaches it |
//! | `event_queue.rs`, `comp_channel.rs`, `cq_events.rs`, `async_target.rs` | events and their file descriptors |
//! | `cq_event.rs`, `async_event.rs` | events as programs take and acknowledge them |
//! | `domain.rs`, `memory_region.rs`, `memory_window.rs`, `address_handle.rs` | what they say |
//! | `completion_queue.rs`, `create_cq.rs` | completion queues |
//! | `completion.rs`, `poll_cq.rs`, `extended_poll.rs` | completions, polled by structure or piece by piece |
//! | `shared_receive_queue.rs`, `queue_pair.rs`, `create_qp.rs`, `modify.rs` | queues and their attributes |
//! | `work_request.rs`, `post.rs`, `builder.rs`, `build.rs` | work requests as lists, and piece by piece |
//! | `attribute.rs` | attributes in `/sys` that depend on the process; `shim/` shows them |
//! | `names.rs`, `rates.rs`, `fork.rs`, `private.rs` | the rest of the header, and what drivers of rdma-core import |
//! | `doctor.rs` | the record for `nichrome rdma doctor` |

pub mod configuration;
pub mod header;

mod adapter;
mod address_handle;
mod async_event;
mod async_target;
mod attribute;
mod attributes;
mod build;
mod builder;
mod comp_channel;
mod completion;
mod completion_queue;
mod context;
mod cq_event;
mod cq_events;
mod create_cq;
mod create_qp;
mod device;
mod doctor;
mod domain;
mod errno;
mod event_queue;
mod extended_poll;
mod fork;
#[cfg(target_arch = "x86_64")]
mod guarded_copy;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unguarded_copy.rs"]
mod guarded_copy;
mod listeners;
mod memory_region;
mod memory_window;
mod modify;
mod names;
mod object;
mod open_device;
mod poll_cq;
mod port;
mod post;
mod private;
mod process_memory;
mod queue_pair;
mod rates;
mod shared_receive_queue;
mod unsupported;
mod work_request;
