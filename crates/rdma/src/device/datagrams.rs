//! Receiving datagrams.

use nichrome_wire::Instant;
use nichrome_wire::rdma::QpNumber;

use super::Device;
use super::transports::{Member, for_each_transport};
use crate::core::memory::Memory;
use crate::net::Datagram;
use crate::transport::Shared;

impl<M: Memory> Device<M> {
    /// Processes a datagram that arrived at `now` at a transport's UDP port.
    #[inline]
    pub fn receive(&mut self, datagram: &Datagram<'_>, now: Instant) {
        self.verbs.now = now;
        self.verbs.counters.received += 1;
        for_each_transport!(&self.transports, |_shared, Endpoint| {
            if <Endpoint as crate::transport::Endpoint>::Shared::PORT == Some(datagram.flow.dst_port) {
                return self.receive_for::<Endpoint>(datagram);
            }
        });
        self.verbs.counters.dropped_unknown += 1;
    }

    /// Processes a datagram for the transport of `E`. Delivers a multicast datagram to each member of its
    /// group, any other to one queue pair.
    #[inline]
    fn receive_for<E: Member>(&mut self, datagram: &Datagram<'_>) {
        let addresses = &datagram.flow.addresses;
        for nth in 0.. {
            let Self { transports, verbs, qps, numbers, groups, .. } = self;
            let shared = E::shared_mut(transports);
            let Some((number, packet)) = shared.read(datagram, verbs) else { return };
            let is_multicast = number == QpNumber::MULTICAST;
            let index = match is_multicast {
                true => groups.member(addresses.dst(), nth),
                false => numbers.index_of(number),
            };
            let found = index.and_then(|index| Some((index, E::of(qps.at_mut(index)?)?)));
            let Some((index, endpoint)) = found.filter(|(_, endpoint)| {
                !endpoint.qp().on_hold && (is_multicast || endpoint.is_from_peer(addresses))
            }) else {
                // `nth > 0`: the last member of the group has the datagram, so nothing was dropped.
                verbs.counters.dropped_unknown += u64::from(nth == 0);
                return;
            };
            if endpoint.receive(packet, datagram, shared, verbs) {
                // A peer that sends also receives: ends `Device::hold_sends`.
                endpoint.qp_mut().is_blocked = false;
                self.settle(index);
            }
            if !is_multicast {
                return;
            }
        }
    }
}
