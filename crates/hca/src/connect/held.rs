//! Queue pairs that are held until their connection is set up.

use std::net::IpAddr;

use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpNumber, QpReport, QpState};

use super::expected::Ends;

/// A request to connect a held queue pair, with the parameters for its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectRequest<T> {
    pub(crate) qp: QpHandle,
    /// How often the queue pair had been reset.
    pub(crate) resets: Option<u64>,
    pub(crate) number: QpNumber,
    pub(crate) address: IpAddr,
    pub(crate) peer: (IpAddr, QpNumber),
    pub(crate) asked: T,
}

impl<T> ConnectRequest<T> {
    /// Holds a queue pair of the adapter at `address` that `change` has moved to RTR; `None` if it needs no connection. A program
    /// that only receives stops at RTR.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub(crate) fn hold<M: Memory>(
        device: &mut Device<M>,
        qp: QpHandle,
        change: &QpChange,
        address: IpAddr,
        asked: impl FnOnce(&QpReport) -> T,
    ) -> Result<Option<Self>, ModifyError> {
        // Services other than RC cannot be held, nor queue pairs that have a connection already.
        if change.state != Some(QpState::Rtr) || device.hold_qp(qp).is_err() {
            return Ok(None);
        }
        let report = device.query_qp(qp)?;
        let peer = report.path.as_ref().map(|path| path.destination).zip(report.destination);
        let resets = device.resets(qp);
        Ok(peer.map(|peer| Self { qp, resets, number: report.number, address, peer, asked: asked(&report) }))
    }

    /// Returns true if the queue pair exists and was not reset since the request: otherwise it may have another connection.
    pub(crate) fn is_current<M: Memory>(&self, device: &Device<M>) -> bool {
        device.resets(self.qp).is_some_and(|resets| self.resets == Some(resets))
    }
}

impl<T> Ends for ConnectRequest<T> {
    fn address(&self) -> IpAddr {
        self.address
    }

    fn number(&self) -> QpNumber {
        self.number
    }

    fn peer(&self) -> (IpAddr, QpNumber) {
        self.peer
    }
}
