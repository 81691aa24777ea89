//! Modifies and queries queue pairs.

use std::ffi::{c_int, c_uint};
use std::ptr;

use nichrome_rdma::{
    DrainNotice, ObjectError, Psn, QKey, QpChange, QpNumber, QpReport, QpState, RnrTimer, Signaling,
};

use crate::address_handle::vector;
use crate::errno::{Errno, status};
use crate::header::{ibv_ah_attr, ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};
use crate::memory_region::access;
use crate::object::{known, zeroed};
use crate::port;
use crate::queue_pair::{QueuePair, capacities, type_code};

/// The states, indexed by `enum ibv_qp_state`.
const STATES: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

fn state_code(state: QpState) -> c_int {
    STATES.into_iter().zip(0..).find(|(known, _)| *known == state).map_or(0, |(_, code)| code)
}

fn state(code: c_int) -> Result<QpState, Errno> {
    let known = usize::try_from(code).ok().and_then(|code| STATES.get(code));
    known.copied().ok_or(Errno::INVALID)
}

/// The attributes that a call of `ibv_modify_qp` sets (`enum ibv_qp_attr_mask`).
#[derive(Clone, Copy)]
struct Mask(c_int);

impl Mask {
    const STATE: c_int = 1;
    const CURRENT_STATE: c_int = 1 << 1;
    const DRAIN_NOTICE: c_int = 1 << 2;
    const ACCESS: c_int = 1 << 3;
    const PKEY_INDEX: c_int = 1 << 4;
    const PORT: c_int = 1 << 5;
    const QKEY: c_int = 1 << 6;
    const PATH: c_int = 1 << 7;
    const PATH_MTU: c_int = 1 << 8;
    const TIMEOUT: c_int = 1 << 9;
    const RETRY_COUNT: c_int = 1 << 10;
    const RNR_RETRY: c_int = 1 << 11;
    const RQ_PSN: c_int = 1 << 12;
    const MAX_RD_ATOMIC: c_int = 1 << 13;
    const MIN_RNR_TIMER: c_int = 1 << 15;
    const SQ_PSN: c_int = 1 << 16;
    const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    const MIGRATION: c_int = 1 << 18;
    const DESTINATION: c_int = 1 << 20;

    /// Unsupported attributes: alternate path, capacities, rate limit.
    const UNSUPPORTED: c_int = !0x17_BFFF;

    /// Ignores the attributes that an end of XRC does not have, as the kernel does (`modify_qp_mask` in
    /// `uverbs_cmd.c`): an initiator has no responder, a target no requester.
    fn of_type(bits: c_int, qp_type: c_int) -> Self {
        let ignored = match qp_type {
            XRC_SEND => Self::MAX_DEST_RD_ATOMIC | Self::MIN_RNR_TIMER,
            XRC_RECEIVE => Self::MAX_RD_ATOMIC | Self::RETRY_COUNT | Self::RNR_RETRY,
            _ => 0,
        };
        Self(bits & !ignored)
    }

    /// Returns `value` if the bit is set.
    fn when<T>(self, bit: c_int, value: impl FnOnce() -> Result<T, Errno>) -> Result<Option<T>, Errno> {
        if self.0 & bit == 0 { Ok(None) } else { value().map(Some) }
    }

    /// As `when`, for a value that needs no conversion.
    fn plain<T>(self, bit: c_int, value: T) -> Option<T> {
        (self.0 & bit != 0).then_some(value)
    }
}

/// `enum ibv_qp_type`: the ends of an extended reliable connection.
const XRC_SEND: c_int = 9;
const XRC_RECEIVE: c_int = 10;

/// `IBV_MIG_MIGRATED`, the only supported state of path migration.
const MIGRATED: c_int = 0;

fn change(attributes: &ibv_qp_attr, mask: Mask) -> Result<QpChange, Errno> {
    if mask.0 & Mask::UNSUPPORTED != 0 {
        return Err(Errno::INVALID);
    }
    if mask.0 & Mask::MIGRATION != 0 && attributes.path_mig_state != MIGRATED {
        return Err(Errno::UNSUPPORTED);
    }
    let notice = if attributes.en_sqd_async_notify == 0 { DrainNotice::Silent } else { DrainNotice::Event };
    let number = || QpNumber::new(attributes.dest_qp_num).ok_or(Errno::INVALID);
    let timer = || RnrTimer::new(attributes.min_rnr_timer).ok_or(Errno::INVALID);
    Ok(QpChange {
        state: mask.when(Mask::STATE, || state(attributes.qp_state))?,
        current_state: mask.when(Mask::CURRENT_STATE, || state(attributes.cur_qp_state))?,
        pkey_index: mask.plain(Mask::PKEY_INDEX, attributes.pkey_index),
        port: mask.plain(Mask::PORT, attributes.port_num),
        access: mask.when(Mask::ACCESS, || access(attributes.qp_access_flags))?,
        qkey: mask.plain(Mask::QKEY, QKey(attributes.qkey)),
        path: mask.when(Mask::PATH, || vector(&attributes.ah_attr))?,
        path_mtu: mask.when(Mask::PATH_MTU, || port::mtu(attributes.path_mtu).ok_or(Errno::INVALID))?,
        destination: mask.when(Mask::DESTINATION, number)?,
        rq_psn: mask.plain(Mask::RQ_PSN, Psn::new(attributes.rq_psn)),
        sq_psn: mask.plain(Mask::SQ_PSN, Psn::new(attributes.sq_psn)),
        timeout: mask.plain(Mask::TIMEOUT, attributes.timeout),
        retry_count: mask.plain(Mask::RETRY_COUNT, attributes.retry_cnt),
        rnr_retry: mask.plain(Mask::RNR_RETRY, attributes.rnr_retry),
        min_rnr_timer: mask.when(Mask::MIN_RNR_TIMER, timer)?,
        max_rd_atomic: mask.plain(Mask::MAX_RD_ATOMIC, attributes.max_rd_atomic),
        max_dest_rd_atomic: mask.plain(Mask::MAX_DEST_RD_ATOMIC, attributes.max_dest_rd_atomic),
        drain_notice: mask.plain(Mask::DRAIN_NOTICE, notice),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a queue pair that it created.
    let this = match unsafe { known::<QueuePair>(qp.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // SAFETY: the program passes attributes.
    let (attributes, mask) = unsafe { (&*attributes, Mask::of_type(mask, (*qp).qp_type)) };
    let changed = change(attributes, mask).and_then(|change| {
        if change.state == Some(QpState::Reset) {
            this.adapter.driver().call(|device| device.acknowledge(this.handle));
        }
        this.adapter.driver().modify_qp(this.handle, &change)?;
        Ok(this.adapter.driver().call(|device| {
            if mask.0 & Mask::PATH != 0 {
                this.shared.set_path(&attributes.ah_attr);
            }
            device.query_qp(this.handle).map(|report| report.state).map_err(nichrome_rdma::ModifyError::from)
        })?)
    });
    status(changed.map(|state| {
        // SAFETY: the program does not read the state during this call.
        unsafe { (*qp).state = state_code(state) };
    }))
}

fn attributes(report: &QpReport, path: Option<ibv_ah_attr>) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: state_code(report.state),
        cur_qp_state: state_code(report.state),
        path_mtu: port::mtu_code(report.path_mtu),
        path_mig_state: MIGRATED,
        qkey: report.qkey.0,
        rq_psn: report.rq_psn.value(),
        sq_psn: report.sq_psn.value(),
        dest_qp_num: report.destination.map_or(0, QpNumber::value),
        qp_access_flags: c_uint::from(report.access.bits()),
        cap: capacities(&report.config.capacity),
        ah_attr: path.unwrap_or_else(zeroed),
        sq_draining: u8::from(report.draining),
        max_rd_atomic: report.max_rd_atomic,
        max_dest_rd_atomic: report.max_dest_rd_atomic,
        min_rnr_timer: report.min_rnr_timer.code(),
        port_num: 1,
        timeout: report.timeout,
        retry_cnt: report.retry_count,
        rnr_retry: report.rnr_retry,
        ..zeroed()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    out: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes a queue pair that it created.
    let this = match unsafe { known::<QueuePair>(qp.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let found = this.adapter.driver().call(|device| {
        let report = device.query_qp(this.handle)?;
        let path = report.path.as_ref().map(|path| this.shared.attributes_of(path));
        Ok::<_, ObjectError>((report, path))
    });
    status(found.map(|(report, path)| {
        // SAFETY: the program passes memory for both structures.
        unsafe {
            *out = attributes(&report, path);
            (*qp).state = state_code(report.state);
            *init = ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap: capacities(&report.config.capacity),
                qp_type: type_code(report.config.kind),
                sq_sig_all: c_int::from(report.config.signaling == Signaling::All),
            };
        }
    }))
}

/// Returns `EOPNOTSUPP`, and no options, as rdma-core does for a device without enhanced connection
/// establishment.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program passes memory for the options.
    unsafe { ptr::write(ece, zeroed()) };
    status(Err(Errno::UNSUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    status(Err(Errno::UNSUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_attributes_are_refused() {
        for bit in 0..31 {
            let known = bit <= 18 && bit != 14 || bit == 20;
            assert_eq!(Mask::UNSUPPORTED >> bit & 1 == 0, known, "bit {bit}");
        }
    }
}
