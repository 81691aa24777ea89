//! RDMA verbs over RoCEv2, StaR and iWARP, in user space, as an engine.
//!
//! A [`Device`] holds protection domains, memory regions and windows, completion queues, shared receive
//! queues, queue pairs and address handles, and runs RoCEv2, StaR or iWARP for each queue pair. It does no
//! I/O and has no clock and no threads: a driver passes it datagrams and the time, and takes datagrams,
//! completions and events from it. It accesses the program's memory through [`Memory`] only, and checks every
//! packet of a peer against a region or window first.
//!
//! # The driver
//!
//! ```text
//! device.receive(datagram, now)                      for each datagram of a batch
//! device.poll_transmit(now, segments, buffer)        until None; one ACK covers the batch
//! device.poll_timeout(), device.handle_timeout(now)  timers; a timeout may be early, with nothing to do
//! device.poll_event()                                until None
//! ```
//!
//! This is the contract of [`nichrome_wire::engine`], with buffers that the driver lends: the device builds a
//! packet in the driver's send buffer, header, payload and ICRC in one pass, and copies a received payload
//! once, from the datagram to the program's memory. A [`Transmit`] holds many datagrams of one length for one
//! destination, for one system call (`UDP_SEGMENT`). The data path does not allocate in the steady state;
//! queues grow to their highest use.
//!
//! A queue pair on [`iwarp`] has a stream in place of datagrams, which the driver opens and negotiates:
//!
//! ```text
//! device.connect(qp, &terms)                         after the negotiation
//! device.receive_stream(qp, bytes, now)              keep what is not consumed; stop reading unless wants_stream(qp)
//! Transmit::Stream, Transmit::End                    of poll_transmit: write, or keep and hold_sends(qp); end the stream
//! device.release_sends(qp)                           once the kept bytes are written
//! device.stream_closed(qp, how, now)                 behind the last bytes; the driver then closes its direction too
//! ```
//!
//! # Features
//!
//! - RC, UC, UD and XRC queue pairs; multicast to UD queue pairs.
//! - SEND and WRITE with and without immediate data, SEND with invalidate, READ, compare and swap, fetch and
//!   add, FLUSH (of global visibility), ATOMIC WRITE.
//! - Memory windows bound and keys invalidated by work requests.
//! - Inline, fenced, solicited and unsignaled requests of up to 255 buffers; [`Limits`] bounds the sizes.
//! - READs longer than [`SendWindow::read`] are split, so that responses respect the window.
//! - Selective repeat between two devices of this crate ([`SelectiveRepeat`]), go-back-N with others.
//! - A CNP for packets marked by ECN; received CNPs reduce the window or, with [`Dcqcn`], the rate.
//! - [`star`] in place of RoCE for a reliable connection ([`Device::connect`]): one side's card keeps no
//!   state. StaR has no windows, no local invalidation, no FLUSH and no ATOMIC WRITE.
//! - [`iwarp`] for reliable connections over TCP. No SEND with immediate data, no FLUSH and no ATOMIC WRITE;
//!   atomics and WRITE with immediate data between peers with RFC 7306.
//!
//! Not supported: path migration, atomics on more than 8 bytes, partitions other than the default.
//!
//! # Example
//!
//! Two devices in one program, connected by a loop that carries their datagrams:
//!
//! ```
//! use nichrome_rdma::*;
//! use nichrome_wire::TrafficClass;
//! use nichrome_wire::rdma::UdpFlow;
//! # use std::error::Error;
//! # fn main() -> Result<(), Box<dyn Error>> {
//! const BASE: u64 = 0x1000;
//! let addresses = ["10.0.0.1".parse()?, "10.0.0.2".parse()?];
//! let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
//!
//! // Each end has a device, a protection domain, a completion queue, a region and a queue pair.
//! let mut ends = Vec::new();
//! for address in addresses {
//!     let mut device = Device::new(Config::new(vec![address]), ByteMemory::new(BASE, 4096))?;
//!     let domain = device.create_domain()?;
//!     let cq = device.create_cq(16)?;
//!     let region = device.register(domain, RegionConfig::new(BASE, 4096, all))?;
//!     let keys = device.query_region(region)?;
//!     let capacity = QpCapacity { send_wrs: 4, send_sges: 1, ..QpCapacity::default() };
//!     let (kind, signaling) = (QpType::Rc, Signaling::Requested);
//!     let config = QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
//!     let qp = device.create_qp(config)?;
//!     ends.push((device, cq, qp, keys));
//! }
//!
//! // Programs exchange address, queue pair number and first packet number out of band.
//! for end in 0..2 {
//!     let peer = ends[1 - end].0.qp_number(ends[1 - end].2)?;
//!     let (device, _, qp, _) = &mut ends[end];
//!     let init = QpChange { pkey_index: Some(0), port: Some(1), access: Some(all), ..QpChange::to(QpState::Init) };
//!     let rtr = QpChange {
//!         path: Some(AddressVector::to(addresses[1 - end])),
//!         path_mtu: Some(PathMtu::B1024),
//!         destination: Some(peer),
//!         rq_psn: Some(Psn::new(0)),
//!         max_dest_rd_atomic: Some(1),
//!         min_rnr_timer: RnrTimer::new(12),
//!         ..QpChange::to(QpState::Rtr)
//!     };
//!     let rts = QpChange {
//!         sq_psn: Some(Psn::new(0)),
//!         timeout: Some(14),
//!         retry_count: Some(7),
//!         rnr_retry: Some(7),
//!         max_rd_atomic: Some(1),
//!         ..QpChange::to(QpState::Rts)
//!     };
//!     for change in [init, rtr, rts] {
//!         device.modify_qp(*qp, &change)?;
//!     }
//! }
//!
//! // The first end writes into the memory of the second; the second program posts nothing.
//! let remote = Remote { address: BASE + 100, rkey: ends[1].3.rkey };
//! let (device, cq, qp, keys) = &mut ends[0];
//! device.memory_mut().bytes_mut()[..5].copy_from_slice(b"hello");
//! let buffers = [Sge { address: BASE, len: 5, lkey: keys.lkey }];
//! device.post_send(*qp, &SendRequest::new(7, Operation::Write(remote), &buffers))?;
//! let (cq, now, mut buffer) = (*cq, Instant::ZERO, vec![0; 65_507]);
//! for from in [0, 1] {
//!     while let Some(Transmit::Datagrams(transmit)) = ends[from].0.poll_transmit(now, 16, &mut buffer) {
//!         for bytes in transmit.datagrams(&buffer) {
//!             let datagram = Datagram { flow: transmit.route.flow, traffic_class: TrafficClass(0), bytes };
//!             ends[1 - from].0.receive(&datagram, now);
//!         }
//!     }
//! }
//! let done = ends[0].0.poll_cq(cq).ok_or("not complete")?;
//! assert_eq!((done.wr_id, done.status), (7, Status::Success));
//! assert_eq!(&ends[1].0.memory().bytes()[100..105], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | concept |
//! |---|---|
//! | `core` | objects and their rules, without packets |
//! | `net` | routes, datagrams, the driver's send buffer |
//! | `congestion` | congestion controllers |
//! | `transport` | the traits of a transport |
//! | `roce`, [`star`], [`iwarp`] | the transports |
//! | `device` | the API of programs and drivers |
#![forbid(unsafe_code)]

mod congestion;
mod core;
mod device;
pub mod iwarp;
mod net;
mod roce;
pub mod star;
mod transport;

pub use congestion::{Congestion, Dcqcn, SendWindow};
pub use device::{
    Config, ConfigError, Device, Native, Paging, QpConfig, QpReport, RegionConfig, RegionHandle,
    RegionReport, SrqAttributes, WindowHandle,
};
pub use iwarp::IwarpConfig;
pub use net::{
    Datagram, DatagramBatch, Route, STEERING_BITS, StreamBytes, StreamEnding, StreamShutdown, Transmit,
};
pub use roce::{ManagementDatagram, RoceConfig, SelectiveRepeat};
pub use star::StarConfig;
pub use transport::StreamEnd;
pub use transport::set_up::{ConnectError, Question};

pub use crate::core::access::Access;
pub use crate::core::attributes::{AddressVector, AttributeMask, DrainNotice, QpChange, QpState, QpType};
pub use crate::core::completion::{CompletedOperation, Completion, Notice, Status};
pub use crate::core::counters::{Counters, Operations};
pub use crate::core::cq::{Moderation, Notify};
pub use crate::core::error::{
    ModifyError, MulticastError, ObjectError, ObjectKind, PostError, RegisterError,
};
pub use crate::core::event::Event;
pub use crate::core::limits::Limits;
pub use crate::core::memory::{ByteMemory, Memory, MemoryFault};
pub use crate::core::multicast::GroupChange;
pub use crate::core::protection::{Bind, LKey, WindowKind};
pub use crate::core::queue_pair::{QpCapacity, Signaling};
pub use crate::core::random::RandomNumbers;
pub use crate::core::slab::Handle;
pub use crate::core::work::{
    Operation, Payload, ReceiveRequest, Recipient, Remote, SendFlags, SendRequest, Sge,
};
pub use nichrome_wire::Instant;
pub use nichrome_wire::rdma::{
    Feth, ImmediateData, Msn, PKey, PathMtu, Placement, Psn, QKey, QpNumber, RKey, RnrTimer, Selectivity,
    SrqNumber,
};

pub use crate::core::kind;

/// A protection domain.
pub type DomainHandle = Handle<kind::Domain>;
/// A completion queue.
pub type CqHandle = Handle<kind::Cq>;
/// A shared receive queue.
pub type SrqHandle = Handle<kind::Srq>;
/// An XRC domain.
pub type XrcHandle = Handle<kind::Xrc>;
/// A queue pair.
pub type QpHandle = Handle<kind::Qp>;
/// An address handle.
pub type AddressHandle = Handle<kind::Address>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
