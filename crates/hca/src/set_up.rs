//! Set-up of connections before queue pairs use them, for any transport.

use std::net::TcpListener;

use nichrome_rdma::{Device, Memory, ModifyError, QpChange, QpHandle, QpNumber, QpState};

use crate::config::{AdapterConfig, OpenError, RoceSocket, Transport};
use crate::connect::PreSharedKey;
use crate::iwarp::{self, IwarpCounters, IwarpOptions, IwarpSetup};
use crate::star::{self, SetUpPort, StarSetup};

/// The connection set-up of a transport.
pub(crate) enum SetUp {
    /// RoCE: connections need no set-up.
    None,
    Star(StarSetup),
    Iwarp(IwarpSetup),
}

/// The TCP ports of a transport's connection set-up.
pub(crate) enum SetUpPorts {
    /// RoCE: none.
    None,
    /// With the key of set-ups.
    Star(SetUpPort, Option<PreSharedKey>),
    Iwarp(TcpListener),
}

impl SetUpPorts {
    /// Opens the ports at the address of `socket`, for an adapter whose lowest queue pair number is
    /// `first_qp`.
    ///
    /// # Errors
    /// A port is taken, or StaR is not safe at the address.
    pub(crate) fn open(
        socket: &RoceSocket,
        config: &AdapterConfig,
        first_qp: u32,
    ) -> Result<Self, OpenError> {
        let address = socket.udp().local().ip();
        Ok(match config.transport {
            Transport::Roce => Self::None,
            Transport::Star => {
                let key = config.star.admit(address)?;
                Self::Star(star::listen(address, socket.slot())?, key)
            }
            Transport::Iwarp => Self::Iwarp(iwarp::listen(address, first_qp)?),
        })
    }
}

/// A request to set up the connection of a held queue pair.
pub(crate) enum SetUpRequest {
    Star(star::Request),
    Iwarp(iwarp::Request),
}

impl SetUp {
    /// Changes a queue pair, and holds it if its connection must be set up. The caller passes the returned
    /// request to [`SetUp::request`] after it has released the device's lock.
    ///
    /// # Errors
    /// As [`Device::modify_qp`].
    pub(crate) fn modify_qp<M: Memory>(
        &self,
        device: &mut Device<M>,
        qp: QpHandle,
        change: &QpChange,
    ) -> Result<Option<SetUpRequest>, ModifyError> {
        if matches!(self, Self::Iwarp(_)) && drains_failed_qp(device, qp, change) {
            return Ok(None);
        }
        // iWARP allows a change from RTR to RTR. The first change to RTR has requested the connection.
        let is_requested = device.query_qp(qp).is_ok_and(|report| report.state == QpState::Rtr);
        device.modify_qp(qp, change)?;
        match self {
            Self::None => Ok(None),
            Self::Star(_) | Self::Iwarp(_) if is_requested => Ok(None),
            Self::Star(star) => Ok(star.hold(device, qp, change)?.map(SetUpRequest::Star)),
            Self::Iwarp(iwarp) => Ok(iwarp.hold(device, qp, change)?.map(SetUpRequest::Iwarp)),
        }
    }

    /// Sets up the connection of a held queue pair.
    pub(crate) fn request(&self, request: SetUpRequest) {
        match (self, request) {
            (Self::Star(star), SetUpRequest::Star(request)) => star.request(request),
            (Self::Iwarp(iwarp), SetUpRequest::Iwarp(request)) => iwarp.request(request),
            _ => {}
        }
    }

    /// Ends the set-up of a queue pair's connection: returns when it can no longer change the queue pair. To
    /// be called without the device's lock.
    pub(crate) fn withdraw(&self, qp: QpNumber) {
        match self {
            Self::None => {}
            Self::Star(star) => star.withdraw(qp),
            Self::Iwarp(iwarp) => iwarp.withdraw(qp),
        }
    }

    /// Gives up the ports in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&self) {
        match self {
            Self::None => {}
            Self::Star(star) => star.close_in_child(),
            Self::Iwarp(iwarp) => iwarp.close_in_child(),
        }
    }

    /// The transport.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::None => Transport::Roce,
            Self::Star(_) => Transport::Star,
            Self::Iwarp(_) => Transport::Iwarp,
        }
    }

    /// Queue pairs whose connection is being set up.
    pub(crate) fn open(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Star(star) => star.open(),
            Self::Iwarp(iwarp) => iwarp.open(),
        }
    }

    /// Options of iWARP; `None` on other transports.
    pub(crate) fn iwarp_options(&self) -> Option<IwarpOptions> {
        match self {
            Self::Iwarp(iwarp) => Some(iwarp.options()),
            Self::None | Self::Star(_) => None,
        }
    }

    /// Connections of peers that iWARP has refused; zero on other transports.
    pub(crate) fn iwarp_counters(&self) -> IwarpCounters {
        match self {
            Self::Iwarp(iwarp) => iwarp.counters(),
            Self::None | Self::Star(_) => IwarpCounters::default(),
        }
    }
}

/// Returns true if a change drains (SQD) a queue pair in ERROR, as librdmacm requests before it disconnects a
/// queue pair whose peer has disconnected. On an RNIC there is nothing left to drain.
fn drains_failed_qp<M: Memory>(device: &Device<M>, qp: QpHandle, change: &QpChange) -> bool {
    change.state == Some(QpState::Sqd) && device.query_qp(qp).is_ok_and(|report| report.state == QpState::Err)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use nichrome_rdma::{AddressVector, QpCapacity};

    use super::*;
    use crate::Adapter;

    /// A second request would fail a minute later, and move the queue pair to ERROR.
    #[test]
    fn a_queue_pair_that_is_changed_in_rtr_requests_one_connection() {
        let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let cq = adapter.completion_queue(8).unwrap();
        let qp = adapter.queue_pair(QpCapacity::default(), &cq, &cq).unwrap();
        // The peer has the lower address or number: this side waits until it connects.
        let path = Some(AddressVector::to(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let ready = QpChange { path, destination: QpNumber::new(2), ..QpChange::to(QpState::Rtr) };
        let driver = &adapter.inner.driver;
        for change in [QpChange::to(QpState::Init), ready, QpChange::to(QpState::Rtr)] {
            driver.modify_qp(qp.handle(), &change).unwrap();
        }
        assert_eq!(driver.held_qps(), 1);
    }
}
