//! Creating, modifying, querying and destroying queue pairs.

use nichrome_wire::rdma::{PathMtu, Psn, QKey, QpNumber, RnrTimer};

use super::transports::{Transport, Transports, for_endpoint};
use super::{Device, in_range};
use crate::core::access::Access;
use crate::core::attributes::{AddressVector, QpChange, QpState, QpType};
use crate::core::completion::Status;
use crate::core::drain::Drain;
use crate::core::error::{ModifyError, ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QpCapacity, QueuePair, Receives, Settings, Signaling};
use crate::core::receive_queue::ReceiveQueue;
use crate::core::send_queue::SendQueue;
use crate::core::slab::Handle;
use crate::core::verbs::Verbs;
use crate::transport::Endpoint;

/// The configuration of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Transport service.
    pub kind: QpType,
    /// Protection domain.
    pub domain: Handle<kind::Domain>,
    /// Completion queue of the sends.
    pub send_cq: Handle<kind::Cq>,
    /// Completion queue of the receives.
    pub receive_cq: Handle<kind::Cq>,
    /// Shared receive queue; `None` for a receive queue of its own. It may be of another protection domain,
    /// whose keys its receives use.
    pub srq: Option<Handle<kind::Srq>>,
    /// Capacity of the queues.
    pub capacity: QpCapacity,
    /// Which successful sends generate a CQE.
    pub signaling: Signaling,
}

/// Configuration, state and attributes of a queue pair. Attributes are as in [`QpChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpReport {
    /// The configuration it was created with.
    pub config: QpConfig,
    /// Queue pair number.
    pub number: QpNumber,
    /// Current state.
    pub state: QpState,
    /// True in state SQD while requests are outstanding.
    pub draining: bool,
    /// The operations that the peer may execute.
    pub access: Access,
    /// The Q_Key that received datagrams must carry.
    pub qkey: QKey,
    /// The path to the peer.
    pub path: Option<AddressVector>,
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// The peer's queue pair.
    pub destination: Option<QpNumber>,
    /// PSN of the next packet received.
    pub rq_psn: Psn,
    /// PSN of the next packet sent.
    pub sq_psn: Psn,
    /// Retransmission timeout.
    pub timeout: u8,
    /// Maximum number of retransmissions.
    pub retry_count: u8,
    /// Maximum number of retries after an RNR NAK.
    pub rnr_retry: u8,
    /// The delay that RNR NAKs request.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: u8,
}

impl<M: Memory> Device<M> {
    /// Creates a queue pair in state [`QpState::Reset`]. [`Device::create_xrc_target`] creates XRC targets.
    ///
    /// # Errors
    /// An object does not exist, a size is out of range, or the limit of queue pairs is reached.
    pub fn create_qp(&mut self, config: QpConfig) -> Result<Handle<kind::Qp>, ObjectError> {
        if config.kind == QpType::XrcReceive {
            return Err(ObjectError::Unknown(ObjectKind::Xrc));
        }
        self.domain_mut(config.domain)?;
        self.cq_mut(config.send_cq)?;
        self.cq_mut(config.receive_cq)?;
        if let Some(srq) = config.srq {
            self.srq_mut(srq)?;
        }
        self.check_capacity(&config)?;
        self.insert_qp(config, None)
    }

    /// Adds a queue pair. The caller has checked that its objects exist.
    pub(super) fn insert_qp(
        &mut self,
        config: QpConfig,
        xrc: Option<Handle<kind::Xrc>>,
    ) -> Result<Handle<kind::Qp>, ObjectError> {
        if !self.config.native.has(config.kind) {
            return Err(ObjectError::Service(config.kind));
        }
        let Self { qps, numbers, config: device, transports, .. } = self;
        let made = qps.insert(|handle| {
            let number = numbers.number_of(handle.index());
            let qp = QueuePair { xrc, ..queue_pair(handle, number, &config, device) };
            Transport::new(qp, device.native, transports)
        });
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Qp))?;
        self.wheel.grow(made.index() as usize + 1);
        self.join(config.domain);
        self.qps_of.insert(config.domain, made.index());
        self.cq_mut(config.send_cq)?.users += 1;
        self.cq_mut(config.receive_cq)?.users += 1;
        if let Some(srq) = config.srq {
            self.srq_mut(srq)?.users += 1;
        }
        Ok(made)
    }

    fn check_capacity(&self, config: &QpConfig) -> Result<(), ObjectError> {
        let (limits, capacity) = (&self.config.limits, &config.capacity);
        in_range("the size of the send queue", capacity.send_wrs, 0, limits.wrs)?;
        in_range("the size of the receive queue", capacity.receive_wrs, 0, limits.wrs)?;
        in_range("the number of buffers in a send", capacity.send_sges, 0, limits.sges)?;
        in_range("the number of buffers in a receive", capacity.receive_sges, 0, limits.sges)?;
        in_range("the number of inline bytes", capacity.inline, 0, limits.inline)
    }

    /// Returns the queue pair with this number.
    pub fn qp_of(&self, number: QpNumber) -> Option<Handle<kind::Qp>> {
        let handle = self.qps.handle_at(self.numbers.index_of(number)?)?;
        self.qp_number(handle).is_ok_and(|known| known == number).then_some(handle)
    }

    /// Modifies a queue pair. A change to [`QpState::Reset`] removes its completions from their queues.
    /// Completions of an XRC target stay, because they are of shared receives.
    ///
    /// # Errors
    /// The transition or an attribute is not allowed, or a value is out of range. The queue pair is
    /// unchanged.
    pub fn modify_qp(&mut self, handle: Handle<kind::Qp>, change: &QpChange) -> Result<(), ModifyError> {
        let Self { qps, config, environment, transports, verbs, .. } = self;
        let transport = qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        let to = check_transition(transport, change)?;
        check_values(change, config.limits.rd_atomic, config.mtu)?;
        if let Some(path) = change.path.filter(|path| environment.addresses.route(path, 0, 0).is_none()) {
            return Err(ObjectError::Address(path.source_index).into());
        }
        let qp = transport.qp_mut();
        apply(&mut qp.settings, change);
        let from = qp.state;
        if to != QpState::Err {
            qp.state = to;
        }
        if from == QpState::Sqd && to == QpState::Rts {
            qp.drain = Drain::Running;
        }
        for_endpoint!(transport, transports, |endpoint, shared| {
            endpoint.modified(change, shared);
            match to {
                QpState::Err => endpoint.enter_error(Status::Flushed, shared, verbs),
                QpState::Sqd if from == QpState::Rts => endpoint.drain(shared, verbs),
                _ => {}
            }
        });
        if change.access.is_some() {
            self.rights_changed(handle);
        }
        if to == QpState::Reset {
            self.reset(handle);
        }
        self.settle(handle.index());
        Ok(())
    }

    /// Returns configuration, state and attributes of a queue pair.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn query_qp(&self, handle: Handle<kind::Qp>) -> Result<QpReport, ObjectError> {
        let transport = self.qps.get(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        let (qp, settings) = (transport.qp(), &transport.qp().settings);
        let (rq_psn, sq_psn) = for_endpoint!(transport, |endpoint| endpoint.packet_numbers());
        let srq = match qp.receives {
            Receives::Own(_) => None,
            Receives::Shared(srq) => Some(srq),
        };
        Ok(QpReport {
            config: QpConfig {
                kind: qp.kind,
                domain: qp.domain,
                send_cq: qp.send_cq,
                receive_cq: qp.receive_cq,
                srq,
                capacity: qp.capacity,
                signaling: qp.signaling,
            },
            number: qp.number,
            state: qp.state,
            draining: qp.drain == Drain::Draining,
            access: settings.access,
            qkey: settings.qkey,
            path: settings.path,
            path_mtu: settings.path_mtu,
            destination: settings.destination,
            rq_psn,
            sq_psn,
            timeout: settings.timeout,
            retry_count: settings.retry_count,
            rnr_retry: settings.rnr_retry,
            min_rnr_timer: settings.min_rnr_timer,
            max_rd_atomic: settings.max_rd_atomic,
            max_dest_rd_atomic: settings.max_dest_rd_atomic,
        })
    }

    /// Returns a queue pair's number.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn qp_number(&self, handle: Handle<kind::Qp>) -> Result<QpNumber, ObjectError> {
        let transport = self.qps.get(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        Ok(transport.qp().number)
    }

    /// Returns true if a completion queue of the queue pair holds a completion of it, other than of a flushed
    /// request, or holds more than 1,024 completions of any queue pairs.
    pub fn may_have_unpolled_completions(&self, number: QpNumber) -> bool {
        let Some(transport) = self.qp_of(number).and_then(|handle| self.qps.get(handle)) else {
            return false;
        };
        let QueuePair { send_cq, receive_cq, .. } = *transport.qp();
        [send_cq, receive_cq]
            .into_iter()
            .any(|cq| self.verbs.cqs.get(cq).is_some_and(|cq| cq.may_hold(number)))
    }

    /// Returns the number of queue pairs.
    pub fn qps(&self) -> usize {
        self.qps.len()
    }

    /// Retransmits the last ACK of a reliable connection, if any. Drivers call it before
    /// [`Device::destroy_qp`]: afterwards the peer's retransmissions are not answered, and its requests would
    /// fail if the ACK was lost.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn acknowledge_again(&mut self, handle: Handle<kind::Qp>) -> Result<(), ObjectError> {
        let transport = self.qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        for_endpoint!(transport, |endpoint| endpoint.repeat_acknowledgement());
        self.settle(handle.index());
        Ok(())
    }

    /// Detaches a queue pair from all multicast groups and destroys it. Outstanding requests do not complete,
    /// and its unpolled completions are removed, as RDMA cards do: programs free the objects that `wr_id`
    /// refers to together with the queue pair.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn destroy_qp(&mut self, handle: Handle<kind::Qp>) -> Result<(), ObjectError> {
        for group in self.multicast_groups(handle) {
            // Cannot fail: the queue pair is attached.
            let _ = self.detach_multicast(handle, group);
        }
        let Self { qps, transports, verbs, .. } = self;
        let transport = qps.remove(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        let qp = transport.dissolve(transports, verbs);
        let qp = self.restore_xrc_objects(qp);
        self.wheel.cancel(handle.index());
        self.leave(qp.domain);
        self.qps_of.remove(qp.domain, handle.index());
        for cq in [qp.send_cq, qp.receive_cq] {
            let cq = self.cq_mut(cq)?;
            cq.forget(qp.number);
            cq.users -= 1;
        }
        if let Receives::Shared(srq) = qp.receives {
            self.srq_mut(srq)?.users -= 1;
        }
        if let Some(xrc) = qp.xrc {
            self.leave_xrc(xrc);
        }
        Ok(())
    }
}

impl<M: Memory> Device<M> {
    /// Returns the queue pair to RESET and removes its completions from their queues.
    fn reset(&mut self, handle: Handle<kind::Qp>) {
        let Self { qps, verbs, transports, config, .. } = self;
        qps.replace(handle, |transport| {
            let mut qp = transport.dissolve(transports, verbs);
            // An XRC target's completions are of receives of shared queues, not of its own: they stay.
            let own = [qp.send_cq, qp.receive_cq].into_iter().filter(|_| qp.xrc.is_none());
            for cq in own {
                if let Some(cq) = verbs.cqs.get_mut(cq) {
                    cq.forget(qp.number);
                }
            }
            (qp.state, qp.drain) = (QpState::Reset, Drain::Running);
            (qp.cq_overrun, qp.on_hold, qp.is_blocked, qp.is_set_up) = (false, false, false, false);
            Transport::new(qp, config.native, transports)
        });
    }
}

impl Transport {
    /// Drops the transport's state and all queued requests.
    pub(super) fn dissolve<M: Memory>(self, transports: &mut Transports, verbs: &mut Verbs<M>) -> QueuePair {
        let mut qp = for_endpoint!(self, transports, |endpoint, shared| endpoint.dissolve(shared, verbs));
        qp.clear(verbs);
        qp
    }
}

fn queue_pair(
    handle: Handle<kind::Qp>,
    number: QpNumber,
    config: &QpConfig,
    device: &crate::Config,
) -> QueuePair {
    let QpConfig { kind, domain, send_cq, receive_cq, srq, capacity, signaling } = *config;
    let own = || Receives::Own(ReceiveQueue::new(capacity.receive_wrs, capacity.receive_sges));
    QueuePair {
        handle,
        number,
        kind,
        state: QpState::Reset,
        domain,
        send_cq,
        receive_cq,
        capacity,
        signaling,
        settings: Settings::new(device.mtu),
        sends: SendQueue::default(),
        receives: srq.map_or_else(own, Receives::Shared),
        xrc: None,
        receiving: None,
        cq_overrun: false,
        drain: Drain::Running,
        in_transmit_queue: false,
        on_hold: false,
        is_blocked: false,
        is_set_up: false,
    }
}

/// Checks that a change is allowed in the current state; returns the new state.
fn check_transition(transport: &Transport, change: &QpChange) -> Result<QpState, ModifyError> {
    let (kind, from) = (transport.qp().kind, transport.qp().state);
    if let Some(expected) = change.current_state.filter(|expected| *expected != from) {
        return Err(ModifyError::State { expected, actual: from });
    }
    let to = change.state.unwrap_or(from);
    let rule = for_endpoint!(transport, |endpoint| endpoint.rule(kind, from, to));
    let rule = rule.ok_or(ModifyError::Transition { kind, from, to })?;
    let mask = change.mask();
    let missing = rule.required.without(mask);
    if !missing.is_empty() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let extra = mask.without(rule.required | rule.optional);
    if !extra.is_empty() {
        return Err(ModifyError::NotAllowed { from, to, extra });
    }
    let leaves = matches!(to, QpState::Err | QpState::Reset);
    if from == QpState::Sqd && transport.qp().drain == Drain::Draining && !leaves {
        return Err(ModifyError::Draining);
    }
    Ok(to)
}

fn check_values(change: &QpChange, rd_atomic: u8, mtu: PathMtu) -> Result<(), ModifyError> {
    if let Some(port) = change.port.filter(|port| *port != 1) {
        return Err(ModifyError::Port(port));
    }
    let ranges = [
        ("the partition key index", change.pkey_index.map(u64::from), 0),
        ("the timeout", change.timeout.map(u64::from), 31),
        ("the retry count", change.retry_count.map(u64::from), 7),
        ("the RNR retry count", change.rnr_retry.map(u64::from), 7),
        ("max_rd_atomic", change.max_rd_atomic.map(u64::from), u64::from(rd_atomic)),
        ("max_dest_rd_atomic", change.max_dest_rd_atomic.map(u64::from), u64::from(rd_atomic)),
        ("the path MTU", change.path_mtu.map(|mtu| mtu.bytes() as u64), mtu.bytes() as u64),
    ];
    for (attribute, value, max) in ranges {
        if let Some(value) = value.filter(|value| *value > max) {
            return Err(ModifyError::Value { attribute, value, max });
        }
    }
    Ok(())
}

fn apply(settings: &mut Settings, change: &QpChange) {
    fn set<T: Copy>(setting: &mut T, change: Option<T>) {
        if let Some(value) = change {
            *setting = value;
        }
    }
    set(&mut settings.access, change.access);
    set(&mut settings.qkey, change.qkey);
    set(&mut settings.path, change.path.map(Some));
    set(&mut settings.path_mtu, change.path_mtu);
    set(&mut settings.destination, change.destination.map(Some));
    set(&mut settings.timeout, change.timeout);
    set(&mut settings.retry_count, change.retry_count);
    set(&mut settings.rnr_retry, change.rnr_retry);
    set(&mut settings.min_rnr_timer, change.min_rnr_timer);
    set(&mut settings.max_rd_atomic, change.max_rd_atomic);
    set(&mut settings.max_dest_rd_atomic, change.max_dest_rd_atomic);
    set(&mut settings.drain_notice, change.drain_notice);
}
