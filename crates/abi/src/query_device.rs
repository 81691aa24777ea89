//! Device capabilities: `ibv_query_device`, `ibv_query_device_ex`, `ibv_query_rt_values_ex`.

use std::ffi::{CString, c_int, c_uint};
use std::ptr;

use libc::timespec;
use nichrome_hca::Transport;
use nichrome_port::clock;
use nichrome_rdma::Limits;

use crate::adapter::Adapter;
use crate::context::Context;
use crate::device::{guid, put};
use crate::errno::{Errno, status};
use crate::header::{ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_odp_caps, ibv_values_ex};
use crate::object::zeroed;

/// `enum ibv_device_cap_flags` of all transports: CURR_QP_STATE_MOD, SYS_IMAGE_GUID, RC_RNR_NAK_GEN,
/// SRQ_RESIZE, MEM_WINDOW, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B.
const CAPABILITIES: u64 = 1 << 7 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 21 | 1 << 24;

/// Capabilities of RoCE, on which the ends of a StaR connection may agree: XRC, FLUSH_GLOBAL, ATOMIC_WRITE.
const ROCE_CAPABILITIES: u64 = 1 << 20 | 1 << 38 | 1 << 40;

fn capabilities(transport: Transport) -> u64 {
    if transport == Transport::Iwarp { CAPABILITIES } else { CAPABILITIES | ROCE_CAPABILITIES }
}

/// `IBV_ATOMIC_GLOB`: the processor executes atomics, so they are atomic with its own accesses.
const ATOMIC_CAPABILITY: c_int = 2;

/// Returns the capabilities of on-demand paging (`enum ibv_odp_general_caps`): for regions and for the whole
/// address space. The services are RC, UC and UD. The bits of each are SEND, receive, WRITE, READ, atomics,
/// receive from a shared queue, FLUSH, ATOMIC WRITE (`enum ibv_odp_transport_cap_bits`).
fn paging(transport: Transport) -> ibv_odp_caps {
    let per_transport_caps = match transport {
        Transport::Roce | Transport::Star => [0b1111_1111, 0b10_0111, 0b10_0011],
        Transport::Iwarp => [0b11_1111, 0, 0],
    };
    ibv_odp_caps { general_caps: 0b11, per_transport_caps }
}

/// Vendor ID of a software device, as rxe reports it.
const VENDOR: u32 = 0xFF_FFFF;

/// Supported page sizes: one bit each, from 4 KiB on.
const PAGE_SIZES: u64 = !0xFFF;

/// Frequency of the completion timestamps in kHz: they count nanoseconds.
const CLOCK: u64 = 1_000_000;

/// Converts a limit to the header's type; larger limits become `c_int::MAX`.
fn at_most(limit: usize) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

fn attributes(adapter: &Adapter) -> ibv_device_attr {
    let limits = adapter.driver().call(|device| *device.limits());
    let Limits { domains, keys, cqs, cqes, qps, wrs, sges, srqs, addresses, rd_atomic, .. } = limits;
    let transport = adapter.driver().transport();
    let (groups, group_members) = match transport {
        // iWARP has no datagrams.
        Transport::Iwarp => (0, 0),
        Transport::Roce | Transport::Star => (limits.groups, limits.group_members),
    };
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
        device_cap_flags: capabilities(transport) as c_uint,
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
        max_mcast_grp: at_most(groups),
        max_mcast_qp_attach: at_most(group_members),
        max_total_mcast_qp_attach: at_most(groups.saturating_mul(group_members)),
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
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, out: *mut ibv_device_attr) -> c_int {
    // SAFETY: the program passes an open context and memory for the attributes.
    status(unsafe { Context::known(context).map(|opened| *out = attributes(opened.adapter())) })
}

/// Writes the first `size` bytes of the attributes: programs built with older headers pass a shorter
/// structure.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const c_uint,
    out: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the program passes a null pointer or a structure that begins with a mask.
    let is_plain = input.is_null() || unsafe { *input } == 0;
    if !is_plain || size < size_of::<ibv_device_attr>() {
        return status(Err(Errno::INVALID));
    }
    let mut all: ibv_device_attr_ex = zeroed();
    // SAFETY: the program passes an open context.
    let adapter = match unsafe { Context::known(context) } {
        Ok(opened) => opened.adapter(),
        Err(errno) => return status(Err(errno)),
    };
    let transport = adapter.driver().transport();
    (all.orig_attr, all.odp_caps) = (attributes(adapter), paging(transport));
    if transport != Transport::Iwarp {
        all.xrc_odp_caps = all.odp_caps.per_transport_caps[0];
    }
    all.device_cap_flags_ex = capabilities(transport);
    (all.completion_timestamp_mask, all.hca_core_clock) = (u64::MAX, CLOCK);
    (all.cq_mod_caps.max_cq_count, all.cq_mod_caps.max_cq_period) = (u16::MAX, u16::MAX);
    all.phys_port_cnt_ex = 1;
    let len = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: the program passes memory for `size` bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), out.cast(), len) };
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
    // Some programs add the seconds, others ignore them, because mlx5 leaves them 0: the nanoseconds hold the
    // whole value.
    values.raw_clock = timespec { tv_sec: 0, tv_nsec: now as libc::c_long };
    0
}
