//! The state transitions of a queue pair on iWARP.
//!
//! | from, to | attributes | source |
//! |---|---|---|
//! | RESET, INIT | access | siw and rdma_cm: `iw_cm_init_qp_attr` |
//! | INIT, RTR and RTR, RTS | none; the depths of READs and atomics may be set | there are no packet numbers, path MTU or address handles |
//! | any state, itself | none; access and depths may be set | `ibv_modify_qp` with mask 0 succeeds; librdmacm brings a queue pair to RTS by the port alone |
//! | RTS, SQD and back, any, ERROR and RESET | as on InfiniBand | |
//!
//! Requests may be posted in RTR and RTS alike, and are sent once the queue pair has its stream.
//!
//! Attributes of RoCE's table are allowed and have no effect but in queries, for programs that connect
//! without rdma_cm.

use crate::core::attributes::{AttributeMask, QpState, QpType, Rule};

/// Returns the attributes that a transition requires and allows; `None` if it does not exist. iWARP has RC
/// only.
pub(super) fn rule(kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use AttributeMask as A;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const LINK: A = A::PKEY_INDEX.with(A::PORT).with(A::ACCESS);
    const PATH: A = A::PATH.with(A::PATH_MTU).with(A::DESTINATION).with(A::RQ_PSN).with(A::MIN_RNR_TIMER);
    const TIMERS: A = A::TIMEOUT.with(A::RETRY_COUNT).with(A::RNR_RETRY).with(A::SQ_PSN);
    const DEPTHS: A = A::MAX_RD_ATOMIC.with(A::MAX_DEST_RD_ATOMIC);
    const RUNNING: A = DEPTHS.with(A::ACCESS).with(A::CURRENT_STATE);

    if kind != QpType::Rc {
        return None;
    }
    let optional = match (from, to) {
        (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => A::NONE,
        (Reset, Init) => LINK,
        (Init, Init) => LINK | DEPTHS,
        (Init, Rtr) => RUNNING | PATH | LINK,
        (Rtr, Rts) => RUNNING | PATH | TIMERS,
        (Rtr, Rtr) | (Rts | Sqd, Rts) => RUNNING | A::MIN_RNR_TIMER | A::PORT,
        (Rts, Sqd) => A::DRAIN_NOTICE,
        (Sqd, Sqd) => RUNNING | LINK | PATH | TIMERS,
        _ => return None,
    };
    Some(Rule { required: A::NONE, optional })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QpChange;

    #[test]
    fn states_without_attributes_are_accepted() {
        let path = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Rts];
        for pair in path.windows(2) {
            let rule = rule(QpType::Rc, pair[0], pair[1]).unwrap();
            assert!(rule.required.is_empty(), "{pair:?}");
        }
        for state in [QpState::Rtr, QpState::Rts] {
            let rule = rule(QpType::Rc, state, state).unwrap();
            assert!(AttributeMask::PORT.without(rule.optional).is_empty(), "mask 0, or that of librdmacm");
        }
        assert!(rule(QpType::Rc, QpState::Reset, QpState::Rts).is_none());
        assert!(rule(QpType::Ud, QpState::Reset, QpState::Init).is_none());
    }

    #[test]
    fn programs_of_roce_are_accepted() {
        let steps = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for pair in steps.windows(2) {
            let roce = crate::transport::states::infiniband(QpType::Rc, pair[0], pair[1]).unwrap();
            let ours = rule(QpType::Rc, pair[0], pair[1]).unwrap();
            assert!(roce.required.without(ours.optional).is_empty(), "{pair:?}");
        }
        let access = QpChange { access: Some(crate::Access::NONE), ..QpChange::to(QpState::Init) };
        let ours = rule(QpType::Rc, QpState::Reset, QpState::Init).unwrap();
        assert!(access.mask().without(ours.optional).is_empty());
    }
}
