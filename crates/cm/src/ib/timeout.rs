//! Deadlines: retransmission, giving up, and removal of ended connections.

use nichrome_wire::Instant;
use nichrome_wire::cm::CommId;

use super::connection::State;
use super::connections::Connections;
use super::indication::Indication;

impl Connections {
    /// Handles one deadline that is due at `now`; `None` if none is. The inner value is the event for the
    /// program, if any.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Option<Indication>> {
        let id = self.due(now)?;
        self.set_deadline(id, None);
        Some(self.expire(id, now))
    }

    fn expire(&mut self, id: CommId, now: Instant) -> Option<Indication> {
        if self.retransmit(id, now) {
            return None;
        }
        let connection = self.get(id)?;
        let owner = connection.owner;
        match connection.state {
            State::ReqSent => {
                let rej = connection.timed_out(self.guid);
                self.send(id, rej);
                self.remove(id);
                Some(Indication::Unreachable(owner?))
            }
            // The peer may have sent RTUs that were all lost.
            State::RepSent => {
                let rej = connection.timed_out(self.guid);
                self.send(id, rej);
                self.abandon(id, now);
                Some(Indication::Unreachable(owner?))
            }
            State::DreqSent => {
                self.enter_time_wait(id, now);
                Some(Indication::DisconnectTimedOut(owner?))
            }
            State::SidrReqSent => {
                self.remove(id);
                Some(Indication::Unreachable(owner?))
            }
            State::TimeWait => {
                self.remove(id);
                Some(Indication::TimeWaitOver(owner?))
            }
            State::Refused | State::SidrAnswered => {
                self.remove(id);
                None
            }
            // These have no deadline.
            State::RepReceived | State::ReqReceived | State::SidrReqReceived | State::Established => None,
        }
    }

    /// Retransmits the unanswered message; returns false if the retransmissions are used up.
    fn retransmit(&mut self, id: CommId, now: Instant) -> bool {
        let timeout = self.config.response_timeout.nanos();
        let sent = self.get_mut(id).and_then(|connection| connection.sent.as_mut());
        let Some(sent) = sent.filter(|sent| sent.retries > 0) else { return false };
        sent.retries -= 1;
        sent.is_acknowledged = false;
        self.send_again(id);
        self.set_deadline(id, Some(now.plus_nanos(timeout)));
        true
    }
}
