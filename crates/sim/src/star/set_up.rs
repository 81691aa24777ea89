//! Connects queue pairs before a run, as two drivers would negotiate.

use nichrome_rdma::{
    Access, AddressVector, QpCapacity, QpChange, QpConfig, QpState, QpType, RnrTimer, Signaling, star,
};
use nichrome_wire::rdma::{PathMtu, Psn};
use nichrome_wire::{Ecn, Instant, SeqNumber, TrafficClass};

use super::config::NetworkConfig;
use super::engine_config::timeout_code;
use super::engines::{Engines, address, refused};
use super::operation::Operation;
use super::side::Side;
use crate::experiment::RunError;

/// Size of a send queue: an operation needs one entry, and completed ones wait to be polled.
const SENDS: usize = 16;
/// RECVs of a side that reposts them.
const RECEIVES: u32 = 16;

/// The stateful sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatefulSides {
    /// Both sides: RoCEv2.
    Both,
    /// The client: StaR.
    Client,
}

impl Engines {
    /// Connects the next queue pair of both sides; posts this many RECVs at a server that does not repost.
    pub(super) fn connect(
        &mut self,
        config: &NetworkConfig,
        stateful_sides: StatefulSides,
        receives: Option<u32>,
    ) -> Result<(), RunError> {
        let connection = self.ends[0].as_ref().map_or(0, |end| end.qps.len() as u32);
        let receives = receives.unwrap_or(RECEIVES);
        for side in [Side::Client, Side::Server] {
            let receives = if side == Side::Server { receives } else { RECEIVES };
            let Some(end) = &mut self.ends[side as usize] else { continue };
            let capacity = QpCapacity {
                send_wrs: SENDS,
                receive_wrs: receives.max(1) as usize,
                send_sges: 1,
                receive_sges: 1,
                inline: 0,
            };
            let qp = end.device.create_qp(QpConfig {
                kind: QpType::Rc,
                domain: end.domain,
                send_cq: end.cq,
                receive_cq: end.cq,
                srq: None,
                capacity,
                signaling: Signaling::Requested,
            });
            let qp = qp.map_err(refused)?;
            self.add(side, qp)?;
        }
        self.bring_up(connection as usize, config)?;
        if stateful_sides == StatefulSides::Client {
            self.agree_on_star(connection as usize)?;
        }
        if let Operation::Rpc { .. } = config.operation {
            for _ in 0..receives {
                self.post_receive(connection, Side::Server)?;
            }
            for _ in 0..RECEIVES {
                self.post_receive(connection, Side::Client)?;
            }
            self.settle(Instant::ZERO);
        }
        Ok(())
    }

    /// Returns the RECVs that a server posts in advance for a run of this length; `None` if it reposts.
    pub(super) fn receives(
        config: &NetworkConfig,
        stateful_sides: StatefulSides,
        connections: usize,
        nanos: u64,
    ) -> Option<u32> {
        // With RoCEv2, reposting a RECV sends nothing.
        if stateful_sides == StatefulSides::Both
            || !matches!(config.operation, Operation::Rpc { reposts: false, .. })
        {
            return None;
        }
        let of_all = match config.offered {
            Some(offered) => offered * nanos as f64 / 1e9,
            // As many as the link of each server carries.
            None => {
                let of_one = nanos as f64 / config.downlink.rate.nanos(config.request.len()).max(1) as f64;
                of_one * config.pattern.servers() as f64
            }
        };
        // Twice the fair share, but no more than RPCs of two round trips each fit into the run.
        let share = 2.0 * of_all / connections.max(1) as f64 + 64.0;
        let most = nanos as f64 / (2 * config.base_rtt).max(1) as f64 + 16.0;
        Some(if config.offered.is_some() { share } else { share.min(most) } as u32)
    }

    /// Moves both queue pairs from RESET to RTS.
    fn bring_up(&mut self, connection: usize, config: &NetworkConfig) -> Result<(), RunError> {
        let timeout = timeout_code(config.recovery.map(|recovery| recovery.timeout));
        let [Some(client), Some(server)] = &mut self.ends else { return Ok(()) };
        let mut numbers = Vec::with_capacity(2);
        for end in [&mut *client, &mut *server] {
            numbers.push(end.device.qp_number(end.qps[connection]).map_err(refused)?);
        }
        for (side, end) in [(Side::Client, client), (Side::Server, server)] {
            for change in changes(side, numbers[side.other() as usize], config.path_mtu, timeout) {
                end.device.modify_qp(end.qps[connection], &change).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Makes the server stateless and the client stateful.
    fn agree_on_star(&mut self, connection: usize) -> Result<(), RunError> {
        let [Some(client), Some(server)] = &mut self.ends else { return Ok(()) };
        let (client_qp, server_qp) = (client.qps[connection], server.qps[connection]);
        let offer = |wish| star::MakeOffer { wish, first_element: SeqNumber(0) };
        let ours = server.device.ask(server_qp, offer(star::Wish::Own)).map_err(refused)?;
        let theirs = client.device.ask(client_qp, offer(star::Wish::Automatic)).map_err(refused)?;
        star::agree(&ours, &theirs).map_err(refused)?;
        let admission = server.device.ask(server_qp, star::Admit(&theirs)).map_err(refused)?;
        let role = star::StarRole::Stateless;
        let connect = star::Connect { ours: &ours, theirs: &theirs, role: &role };
        server.device.connect(server_qp, &connect).map_err(refused)?;
        let role = star::StarRole::Stateful(admission);
        let connect = star::Connect { ours: &theirs, theirs: &ours, role: &role };
        client.device.connect(client_qp, &connect).map_err(refused)
    }
}

fn changes(side: Side, peer: nichrome_wire::rdma::QpNumber, mtu: PathMtu, timeout: u8) -> [QpChange; 3] {
    let init = QpChange {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::REMOTE_WRITE),
        ..QpChange::to(QpState::Init)
    };
    // Switches mark only ECN-capable packets.
    let traffic_class = TrafficClass(Ecn::Ect0 as u8);
    let rtr = QpChange {
        path: Some(AddressVector { traffic_class, ..AddressVector::to(address(side.other())) }),
        path_mtu: Some(mtu),
        destination: Some(peer),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: RnrTimer::new(1),
        ..QpChange::to(QpState::Rtr)
    };
    let rts = QpChange {
        sq_psn: Some(Psn::new(0)),
        timeout: Some(timeout),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..QpChange::to(QpState::Rts)
    };
    [init, rtr, rts]
}
