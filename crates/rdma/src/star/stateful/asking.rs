//! Asking for receives of a server that takes them from a shared queue.

use nichrome_wire::star::{Completed, Cqe, StatusCode};

use super::Stateful;
use crate::core::attributes::QpState;

impl Stateful {
    /// Queues a CQEP that requests receives for the requests posted since the last one.
    pub(super) fn ask_for_receives(&mut self) {
        let Some(asking) = self.asking.as_mut().filter(|_| self.qp.state == QpState::Rts) else { return };
        asking.request.take_if(|request| self.outbox.is_acknowledged(*request));
        if asking.request.is_some() || asking.needed == asking.asked {
            return;
        }
        asking.asked = asking.needed;
        let (wr_id, status, completed) = (asking.needed, StatusCode::SUCCESS, Completed::ReceivesWanted);
        let request = self.report(Cqe { wr_id, status, completed, len: 0, notice: None });
        if let Some(asking) = &mut self.asking {
            asking.request = Some(request);
        }
    }

    /// Whether the server has not acknowledged that receives are wanted.
    pub(super) fn is_asking(&self) -> bool {
        let asking = self.asking.as_ref();
        asking.and_then(|asking| asking.request).is_some_and(|request| !self.outbox.is_acknowledged(request))
    }

    /// Whether the lack of a receive may be the client's own: the server does not know of the need, or lends no more before
    /// an operation is complete that holds one.
    pub(super) fn may_be_lent_more(&self) -> bool {
        let holds = || self.own.operations.iter().any(|operation| operation.mirrored.is_some());
        self.asking.is_some() && (self.is_asking() || holds())
    }
}
