//! `libibverbs.so.1`: the C ABI of rdma-core's verbs on `nichrome-hca`, for unmodified programs.
//!
//! The crate is a static library. `scripts/build-libibverbs` links it with the version script
//! `libibverbs.map`, and builds `libnichrome-devices.so` from `shim/`, which shows the device in `/sys` and
//! `/dev` (see `shim/shim.h`). Functions have the names, arguments and results of `infiniband/verbs.h`. Each
//! object that a program holds a pointer to begins with the structure that the header declares (`header`). A
//! process has one device, which stays open as long as one of its objects exists; a context that is closed
//! takes its queue pairs, windows and regions with it (`close_device.rs`). Environment variables configure it
//! ([`configuration`]).
//!
//! | file | concept |
//! |---|---|
//! | `configuration.rs`, `variable.rs` | the configuration |
//! | `device.rs`, `device_list.rs`, `query_device.rs`, `port.rs` | the device and its list; capabilities of device and port; GIDs and partition keys |
//! | `open_device.rs`, `close_device.rs`, `sharing.rs`, `context.rs`, `unsupported.rs` | opening and closing; a context's function table; `EOPNOTSUPP` |
//! | `adapter.rs`, `event_dispatcher.rs` | the process's device, and the delivery of its events |
//! | `process_memory.rs`, `guarded_copy/` | the device's access to the program's memory |
//! | `event_queue.rs`, `comp_channel.rs`, `cq_notifier.rs`, `async_source.rs` | events and their file descriptors |
//! | `get_cq_event.rs`, `get_async_event.rs` | verbs that take and acknowledge events |
//! | `blocking.rs`, `waiting.rs`, `cancellation.rs` | calls that block, in steps between cancellation points; the driver's knowledge of a waiting thread; calls without cancellation points |
//! | `domain.rs`, `memory_region.rs`, `memory_window.rs`, `address_handle.rs` | one kind of object each |
//! | `buffer.rs` | buffers that the library allocates, and their regions |
//! | `xrc_domain.rs` | XRC domains |
//! | `parent_domain.rs`; `import.rs`, `command_file.rs` | thread and parent domains; objects of another context of the process |
//! | `completion_queue.rs`, `create_cq.rs` | completion queues |
//! | `completion.rs`, `poll_cq.rs`, `extended_poll.rs` | completions, by `ibv_poll_cq` and by `ibv_start_poll` |
//! | `shared_receive_queue.rs` | shared receive queues |
//! | `queue_pair.rs`, `shared_qp.rs`, `create_qp.rs`, `modify_qp.rs` | queue pairs |
//! | `multicast.rs` | multicast groups |
//! | `work_request.rs`, `post.rs`, `bind_mw.rs` | work requests, by `ibv_post_send`, `ibv_post_recv` and `ibv_bind_mw` |
//! | `request_builder.rs`, `extended_post.rs` | work requests, by `ibv_wr_start` |
//! | `sysfs_attribute.rs` | values of `/sys` attributes that differ between processes, for `shim/` and `nichrome rdma run --mount` |
//! | `names.rs`, `rates.rs`, `fork.rs` | the header's remaining functions |
//! | `private.rs`, `from_kernel.rs` | symbols that rdma-core's driver libraries and librdmacm import |
//! | `rdma_cm/` | the connection manager, as the device file of librdmacm |
//! | `doctor.rs` | the record for `nichrome rdma doctor` |
//! | `errno.rs`, `stderr.rs` | error codes; lines on standard error |
//! | `object.rs`, `live_objects.rs`, `retired.rs`, `users.rs` | conversion between objects and the program's pointers; the table of live objects; the memory of destroyed queues; the count of an object's users |

pub mod configuration;
pub mod header;
pub mod sysfs_attribute;

mod adapter;
mod address_handle;
mod async_source;
mod bind_mw;
mod blocking;
mod buffer;
mod cancellation;
mod close_device;
mod command_file;
mod comp_channel;
mod completion;
mod completion_queue;
mod context;
mod cq_notifier;
mod create_cq;
mod create_qp;
mod device;
mod device_list;
mod doctor;
mod domain;
mod errno;
mod event_dispatcher;
mod event_queue;
mod extended_poll;
mod extended_post;
mod fork;
mod from_kernel;
mod get_async_event;
mod get_cq_event;
mod guarded_copy;
mod import;
mod live_objects;
mod memory_region;
mod memory_window;
mod modify_qp;
mod multicast;
mod names;
mod object;
mod open_device;
mod parent_domain;
mod poll_cq;
mod port;
mod post;
mod private;
mod process_memory;
mod query_device;
mod queue_pair;
mod rates;
mod rdma_cm;
mod request_builder;
mod retired;
mod shared_qp;
mod shared_receive_queue;
mod sharing;
mod stderr;
mod unsupported;
mod users;
mod variable;
mod waiting;
mod work_request;
mod xrc_domain;
