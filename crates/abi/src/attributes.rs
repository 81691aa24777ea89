//! What the device can do.

use std::ffi::{CString, c_int, c_uint};
use std::ptr;

use libc::timespec;
use nichrome_port::clock;
use nichrome_rdma::Limits;

use crate::adapter::Adapter;
use crate::context::Context;
use crate::device::{guid, put};
use crate::errno::{Errno, status};
use crate::header::{ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_values_ex};
use crate::object::zeroed;

/// `enum ibv_device_cap_flags`: current state in changes, system image GUID, RNR NAKs, resizable shared receive queues,
/// memory windows, keys invalidated by requests, windows of type 2B.
const CAPABILITIES: c_uint = 1 << 7 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 21 | 1 << 24;

/// Atomics are atomic towards the processor too: they are done by it (`IBV_ATOMIC_GLOB`).
const ATOMIC_CAPABILITY: c_int = 2;

/// The vendor of devices in software.
const VENDOR: u32 = 0xFF_FFFF;

/// Regions of any page size: a bit for each from 4 KB on.
const PAGE_SIZES: u64 = !0xFFF;

/// Completion timestamps count nanoseconds: kilohertz.
const CLOCK: u64 = 1_000_000;

fn at_most(limit: usize) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

fn attributes(adapter: &Adapter) -> ibv_device_attr {
    let limits = adapter.driver.call(|device| *device.limits());
    let Limits { domains, keys, cqs, cqes, qps, wrs, sges, srqs, addresses, rd_atomic, .. } = limits;
    let mut attributes: ibv_device_attr = zeroed();
    let version = CString::new(env!("CARGO_PKG_VERSION")).unwrap_or_default();
    put(&mut attributes.fw_ver, &version);
    ibv_device_attr {
        node_guid: guid(),
        sys_image_guid: guid(),
        max_mr_size: u64::MAX,
        page_size_cap: PAGE_SIZES,
        vendor_id: VENDOR,
        max_qp: at_most(qps),
        max_qp_wr: at_most(wrs),
        device_cap_flags: CAPABILITIES,
        max_sge: at_most(sges),
        max_sge_rd: at_most(sges),
        max_cq: at_most(cqs),
        max_cqe: at_most(cqes),
        max_mr: at_most(keys),
        max_pd: at_most(domains),
        max_qp_rd_atom: c_int::from(rd_atomic),
        max_res_rd_atom: at_most(qps.saturating_mul(usize::from(rd_atomic))),
        max_qp_init_rd_atom: c_int::from(rd_atomic),
        atomic_cap: ATOMIC_CAPABILITY,
        max_mw: at_most(keys),
        max_ah: at_most(addresses),
        max_srq: at_most(srqs),
        max_srq_wr: at_most(wrs),
        max_srq_sge: at_most(sges),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..attributes
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, room: *mut ibv_device_attr) -> c_int {
    // SAFETY: the program passes an open context and room for the attributes.
    unsafe { *room = attributes(Context::of(context).adapter()) };
    0
}

/// Programs of older headers have room for less.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const c_uint,
    room: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the program passes nothing or a structure that begins with a mask.
    let is_plain = input.is_null() || unsafe { *input } == 0;
    if !is_plain || size < size_of::<ibv_device_attr>() {
        return status(Err(Errno::INVALID));
    }
    let mut all: ibv_device_attr_ex = zeroed();
    // SAFETY: the program passes an open context.
    all.orig_attr = attributes(unsafe { Context::of(context) }.adapter());
    all.device_cap_flags_ex = u64::from(CAPABILITIES);
    (all.completion_timestamp_mask, all.hca_core_clock) = (u64::MAX, CLOCK);
    (all.cq_mod_caps.max_cq_count, all.cq_mod_caps.max_cq_period) = (u16::MAX, u16::MAX);
    all.phys_port_cnt_ex = 1;
    let len = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: the program passes room for `size` bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), room.cast(), len) };
    0
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

pub(crate) unsafe extern "C" fn query_rt_values(_: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the program passes values to fill.
    let values = unsafe { &mut *values };
    if values.comp_mask & !RAW_CLOCK != 0 {
        return status(Err(Errno::INVALID));
    }
    let now = clock::now().as_nanos();
    // Programs take the seconds as part of the value, or as none (mlx5): all of it is in the nanoseconds.
    values.raw_clock = timespec { tv_sec: 0, tv_nsec: now as libc::c_long };
    0
}
