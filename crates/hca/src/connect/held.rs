//! Queue pairs that are held until their connection is set up.

use std::net::IpAddr;

use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpNumber, QpReport, QpState};

use super::expected::Ends;

/// A request to connect a held queue pair, with the parameters for its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectRequest<T> {
    pub(crate) qp: QpHandle,
    pub(crate) number: QpNumber,
    pub(crate) address: IpAddr,
    pub(crate) peer: (IpAddr, QpNumber),
    pub(crate) parameters: T,
}

impl<T> ConnectRequest<T> {
    /// Holds a queue pair of the adapter at `address` that `change` has moved to RTR; `None` if it needs no
    /// connection. A program that only receives stops at RTR.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub(crate) fn hold<M: Memory>(
        device: &mut Device<M>,
        qp: QpHandle,
        change: &QpChange,
        address: IpAddr,
        parameters: impl FnOnce(&QpReport) -> T,
    ) -> Result<Option<Self>, ModifyError> {
        // Services other than RC cannot be held, nor queue pairs that have a connection already.
        if change.state != Some(QpState::Rtr) || device.hold_qp(qp).is_err() {
            return Ok(None);
        }
        let report = device.query_qp(qp)?;
        let peer = report.path.as_ref().map(|path| path.destination).zip(report.destination);
        Ok(peer.map(|peer| Self {
            qp,
            number: report.number,
            address,
            peer,
            parameters: parameters(&report),
        }))
    }
}

/// Moves a queue pair whose set-up has failed to ERROR, unless the program has reset or destroyed it.
pub(crate) fn fail<M: Memory>(device: &mut Device<M>, qp: QpHandle) {
    if device.query_qp(qp).is_ok_and(|report| report.state != QpState::Reset) {
        // Each state but RESET has this transition.
        let _ = device.modify_qp(qp, &QpChange::to(QpState::Err));
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
