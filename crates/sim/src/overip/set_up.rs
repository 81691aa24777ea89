//! Connects queue pairs for datagrams before a run, as two drivers would negotiate.

use nichrome_rdma::{ByteMemory, Device, QpHandle, star};
use nichrome_wire::SeqNumber;

use super::adapter::{Adapter, refused};
use super::config::{Packets, TestbedConfig};
use super::datagram;
use crate::experiment::RunError;

/// Connects a queue pair of a client with one of the server.
pub(super) fn connect(
    client: &mut Adapter,
    server: &mut Adapter,
    how: Packets,
    config: &TestbedConfig,
) -> Result<(), RunError> {
    let qps = [client.queue_pair_in_reset()?, server.queue_pair_in_reset()?];
    let numbers = [client.device.qp_number(qps[0]), server.device.qp_number(qps[1])];
    let [ours, theirs] = numbers;
    let (ours, theirs) = (ours.map_err(refused)?, theirs.map_err(refused)?);
    let (mtu, timeout) = (datagram::path_mtu(config.tcp.mtu), datagram::timeout(config.router.delay));
    let addresses = [client.address, server.address];
    client.bring_up(qps[0], addresses[1], theirs, mtu, timeout)?;
    server.bring_up(qps[1], addresses[0], ours, mtu, timeout)?;
    if how == Packets::Star {
        agree_on_star([&mut client.device, &mut server.device], qps)?;
    }
    client.add_ready(qps[0]);
    server.add_ready(qps[1]);
    Ok(())
}

/// Makes the server stateless and the client stateful.
fn agree_on_star(
    [client, server]: [&mut Device<ByteMemory>; 2],
    [client_qp, server_qp]: [QpHandle; 2],
) -> Result<(), RunError> {
    let offer = |wish| star::MakeOffer { wish, first_element: SeqNumber(0) };
    let ours = server.ask(server_qp, offer(star::Wish::Own)).map_err(refused)?;
    let theirs = client.ask(client_qp, offer(star::Wish::Automatic)).map_err(refused)?;
    star::agree(&ours, &theirs).map_err(refused)?;
    let admission = server.ask(server_qp, star::Admit(&theirs)).map_err(refused)?;
    let role = star::StarRole::Stateless;
    let connect = star::Connect { ours: &ours, theirs: &theirs, role: &role };
    server.connect(server_qp, &connect).map_err(refused)?;
    let role = star::StarRole::Stateful(admission);
    let connect = star::Connect { ours: &theirs, theirs: &ours, role: &role };
    client.connect(client_qp, &connect).map_err(refused)
}
