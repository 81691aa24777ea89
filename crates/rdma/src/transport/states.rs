//! The state transitions of a queue pair (IBA table 91), common to RoCE and StaR.

use crate::core::attributes::{AttributeMask, QpState, QpType, Rule};

/// Returns the attributes that a transition of this service requires and allows; `None` if it does not exist.
pub(crate) fn infiniband(kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use AttributeMask as A;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    use QpType::{Rc, Uc, Ud, XrcReceive, XrcSend};

    const LINK: A = A::PKEY_INDEX.with(A::PORT);
    const CONNECT: A = A::PATH.with(A::PATH_MTU).with(A::DESTINATION).with(A::RQ_PSN);
    const RETRIES: A = A::TIMEOUT.with(A::RETRY_COUNT).with(A::RNR_RETRY);
    const RUNNING: A = A::CURRENT_STATE.with(A::ACCESS);

    let (required, optional) = match (from, to) {
        (_, Reset) | (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (A::NONE, A::NONE),
        (Reset, Init) => match kind {
            Rc | Uc | XrcSend | XrcReceive => (LINK | A::ACCESS, A::NONE),
            Ud => (LINK | A::QKEY, A::NONE),
        },
        (Init, Init) => match kind {
            Rc | Uc | XrcSend | XrcReceive => (A::NONE, LINK | A::ACCESS),
            Ud => (A::NONE, LINK | A::QKEY),
        },
        (Init, Rtr) => match kind {
            Rc | XrcReceive => {
                (CONNECT | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER, A::ACCESS | A::PKEY_INDEX)
            }
            Uc | XrcSend => (CONNECT, A::ACCESS | A::PKEY_INDEX),
            Ud => (A::NONE, A::PKEY_INDEX | A::QKEY),
        },
        (Rtr, Rts) => match kind {
            Rc => (RETRIES | A::SQ_PSN | A::MAX_RD_ATOMIC, RUNNING | A::MIN_RNR_TIMER),
            XrcSend => (RETRIES | A::SQ_PSN | A::MAX_RD_ATOMIC, RUNNING),
            XrcReceive => (A::TIMEOUT | A::SQ_PSN, RUNNING | A::MIN_RNR_TIMER),
            Uc => (A::SQ_PSN, RUNNING),
            Ud => (A::SQ_PSN, A::CURRENT_STATE | A::QKEY),
        },
        (Rts | Sqd, Rts) => match kind {
            Rc | XrcReceive => (A::NONE, RUNNING | A::MIN_RNR_TIMER),
            Uc | XrcSend => (A::NONE, RUNNING),
            Ud => (A::NONE, A::CURRENT_STATE | A::QKEY),
        },
        (Sqe, Rts) => match kind {
            Rc | XrcSend | XrcReceive => return None,
            Uc => (A::NONE, RUNNING),
            Ud => (A::NONE, A::CURRENT_STATE | A::QKEY),
        },
        (Rts, Sqd) => (A::NONE, A::DRAIN_NOTICE),
        (Sqd, Sqd) => match kind {
            Rc | XrcSend | XrcReceive => (
                A::NONE,
                LINK | A::PATH
                    | A::ACCESS
                    | RETRIES
                    | A::MAX_RD_ATOMIC
                    | A::MAX_DEST_RD_ATOMIC
                    | A::MIN_RNR_TIMER,
            ),
            Uc => (A::NONE, A::PATH | A::ACCESS | A::PKEY_INDEX),
            Ud => (A::NONE, A::PKEY_INDEX | A::QKEY),
        },
        _ => return None,
    };
    Some(Rule { required, optional })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

    #[test]
    fn transitions_are_those_of_the_standard() {
        // A row per state before, a column per state after, in the order of STATES.
        let connected = ["Y......", "YY....Y", "Y......", "Y..YY.Y", "Y..YY.Y", "Y.....Y", "Y.....Y"];
        for (row, from) in STATES.into_iter().enumerate() {
            for (column, to) in STATES.into_iter().enumerate() {
                let expected = match (from, to) {
                    (QpState::Reset, QpState::Init)
                    | (QpState::Init, QpState::Rtr)
                    | (QpState::Rtr, QpState::Rts | QpState::Err) => true,
                    _ => connected[row].as_bytes()[column] == b'Y',
                };
                assert_eq!(infiniband(QpType::Rc, from, to).is_some(), expected, "{from:?} to {to:?}");
            }
        }
        assert!(infiniband(QpType::Ud, QpState::Sqe, QpState::Rts).is_some());
    }
}
