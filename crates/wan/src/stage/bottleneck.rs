//! The bottleneck: a queue before a link that sends one packet at a time.

use nichrome_wire::Instant;

use super::backlog::Backlog;
use super::codel::{Controller, WouldDrop, mark};
use super::impair::{Impair, Passage};
use super::link::{Link, Pacer, Player};
use crate::exits::{Exits, Transit};
use crate::{Aqm, CoDel, DropReason, EcnMode, Impairments, Packet, QueueLimit};

pub(super) struct Bottleneck<P> {
    link: Link,
    limit: QueueLimit,
    mark_above: Option<QueueLimit>,
    codel: Option<Controller>,
    backlog: Backlog<P>,
    sending: Option<Sending<P>>,
    /// When the idle link takes the first queued packet.
    wakes: Instant,
}

struct Sending<P> {
    transit: Transit<P>,
    done: Instant,
}

impl<P: Packet> Bottleneck<P> {
    pub(super) fn new() -> Self {
        Self {
            link: Link::Unlimited,
            limit: QueueLimit::default(),
            mark_above: None,
            codel: None,
            backlog: Backlog::new(),
            sending: None,
            wakes: Instant::ZERO,
        }
    }

    fn configure_link(&mut self, impairments: &Impairments, now: Instant) {
        match (&self.link, impairments.rate, &impairments.trace) {
            (Link::Rate(pacer), Some(rate), _) if pacer.rate == rate => return,
            (Link::Trace(player), _, Some(trace)) if player.trace == *trace => return,
            (Link::Unlimited, None, None) => return,
            (_, Some(rate), _) => self.link = Link::Rate(Pacer::new(rate)),
            (_, _, Some(trace)) => self.link = Link::Trace(Player::new(trace.clone())),
            (_, None, None) => self.link = Link::Unlimited,
        }
        if self.sending.is_none() && !self.backlog.is_empty() {
            self.wakes = self.link.next_start(now);
        }
    }

    fn configure_codel(&mut self, aqm: Aqm, ecn: EcnMode) {
        let Aqm::CoDel(parameters) = aqm else {
            self.codel = None;
            return;
        };
        let would_drop = if ecn == EcnMode::Off { WouldDrop::Drop } else { WouldDrop::Mark };
        if !self.codel_is(parameters, would_drop) {
            self.codel = Some(Controller::new(parameters, would_drop));
        }
    }

    fn codel_is(&self, parameters: CoDel, would_drop: WouldDrop) -> bool {
        self.codel.as_ref().is_some_and(|codel| codel.is_configured_as(parameters, would_drop))
    }

    fn is_quiet(&self) -> bool {
        self.sending.is_none() && self.backlog.is_empty()
    }

    /// Returns true if the link sends a packet that arrives at `at` at once, without queueing.
    fn takes_at_once(&mut self, at: Instant) -> bool {
        if !self.is_quiet() {
            return false;
        }
        self.wakes = self.link.next_start(at);
        self.wakes <= at
    }

    /// Starts transmission of the first queued packet.
    fn begin(&mut self, at: Instant, exits: &mut Exits<P>) {
        let next = match &mut self.codel {
            Some(codel) => codel.dequeue(&mut self.backlog, at, exits),
            None => self.backlog.pop(),
        };
        self.sending = next.map(|waiting| {
            let done = self.link.send(&waiting.transit.packet, at);
            Sending { transit: waiting.transit, done }
        });
    }
}

impl<P: Packet> Impair<P> for Bottleneck<P> {
    fn configure(&mut self, impairments: &Impairments, now: Instant) {
        self.configure_link(impairments, now);
        self.configure_codel(impairments.aqm, impairments.ecn);
        self.limit = impairments.queue;
        self.mark_above = match impairments.ecn {
            EcnMode::MarkAbove(limit) => Some(limit),
            EcnMode::Off | EcnMode::Mark => None,
        };
    }

    fn is_idle(&self) -> bool {
        self.link.is_unlimited() && self.is_quiet()
    }

    fn enter(&mut self, mut transit: Transit<P>, at: Instant, exits: &mut Exits<P>) -> Passage<P> {
        if self.takes_at_once(at) {
            self.backlog.push(transit, at);
            self.begin(at, exits);
            return Passage::Ended;
        }
        if !self.backlog.has_room_for(&transit.packet, self.limit) {
            exits.drop(transit, DropReason::TailDrop);
            return Passage::Ended;
        }
        if self.mark_above.is_some_and(|limit| self.backlog.is_longer_than(limit)) {
            mark(&mut transit.packet, exits);
        }
        self.backlog.push(transit, at);
        Passage::Ended
    }

    fn due(&self) -> Option<Instant> {
        match &self.sending {
            Some(sending) => Some(sending.done),
            None => (!self.backlog.is_empty()).then_some(self.wakes),
        }
    }

    fn fire(&mut self, exits: &mut Exits<P>) -> Option<Transit<P>> {
        let Some(Sending { transit, done }) = self.sending.take() else {
            self.begin(self.wakes, exits);
            return None;
        };
        if !self.backlog.is_empty() {
            self.wakes = self.link.next_start_after(done);
            if self.wakes <= done {
                self.begin(done, exits);
            }
        }
        Some(transit)
    }
}
