//! `nichrome bench`: measures the speed of Nichrome's components.

mod checksum;
mod figures;
mod interleave;
mod iperf3;
mod lane;
mod lro;
mod output;
mod overip;
mod pin;
mod plain_read;
mod rdma;
mod sim;
mod star;
mod thread_time;
mod traffic;
mod transport;
mod wan;

use clap::Subcommand;

use self::pin::pin;

/// Measure the speed of Nichrome's components on this machine.
#[derive(Subcommand)]
pub(crate) enum Bench {
    Lro(lro::Lro),
    Checksum(checksum::Checksum),
    Wan(wan::Wan),
    Sim(sim::Sim),
    Rdma(rdma::Rdma),
    Star(star::Star),
    Overip(Box<overip::Overip>),
    #[command(hide = true)]
    WanProbe(wan::Probe),
    #[command(hide = true)]
    TcpPingPong(rdma::TcpPingPong),
    #[command(hide = true)]
    TcpConnect(rdma::TcpConnect),
}

impl Bench {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Lro(lro) => {
                pin();
                lro.run()
            }
            Self::Checksum(checksum) => {
                pin();
                checksum.run()
            }
            Self::Wan(wan) => wan.run(),
            Self::Sim(sim) => {
                pin();
                sim.run()
            }
            Self::Rdma(rdma) => rdma.run(),
            Self::Star(star) => star.run(),
            Self::Overip(overip) => overip.run(),
            Self::WanProbe(probe) => probe.run(),
            Self::TcpPingPong(ping_pong) => ping_pong.run(),
            Self::TcpConnect(connect) => connect.run(),
        }
    }
}
