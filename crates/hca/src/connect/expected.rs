//! Requests whose peer connects: each waits for a limited time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;

/// The two ends that a request connects.
pub(crate) trait Ends {
    /// This side's address.
    fn address(&self) -> IpAddr;

    /// This side's queue pair.
    fn number(&self) -> QpNumber;

    /// The peer's address and queue pair.
    fn peer(&self) -> (IpAddr, QpNumber);

    /// Returns true if this side connects: the one with the lower address and number does.
    fn connects(&self) -> bool {
        (self.address(), self.number()) < self.peer()
    }

    /// Returns true if the queue pair is connected to itself.
    fn is_loop(&self) -> bool {
        (self.address(), self.number()) == self.peer()
    }
}

/// Requests of type `R` by queue pair number.
pub(crate) struct Expected<R> {
    requests: HashMap<QpNumber, (R, Instant)>,
    /// Deadlines in order, also of requests that are no longer expected.
    deadlines: VecDeque<(Instant, QpNumber)>,
}

impl<R> Default for Expected<R> {
    fn default() -> Self {
        Self { requests: HashMap::new(), deadlines: VecDeque::new() }
    }
}

impl<R: Ends> Expected<R> {
    /// Adds a request that waits until `until`, which is not before the deadlines added earlier.
    pub(crate) fn insert(&mut self, request: R, until: Instant) {
        let number = request.number();
        self.deadlines.push_back((until, number));
        self.requests.insert(number, (request, until));
    }

    /// Removes the request of queue pair `ours` if it is for `peer`.
    pub(crate) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<R> {
        self.requests.get(&ours).filter(|(request, _)| request.peer() == peer)?;
        self.remove(ours)
    }

    /// Removes the request of queue pair `ours`.
    pub(crate) fn remove(&mut self, ours: QpNumber) -> Option<R> {
        let taken = self.requests.remove(&ours).map(|(request, _)| request);
        let requests = &self.requests;
        let is_stale = |(_, number): &mut (Instant, QpNumber)| !requests.contains_key(number);
        while self.deadlines.pop_front_if(is_stale).is_some() {}
        taken
    }

    /// Returns true if a request is for a queue pair at `peer`.
    pub(crate) fn expects(&self, peer: IpAddr) -> bool {
        self.requests.values().any(|(request, _)| request.peer().0 == peer)
    }

    /// Deadline of the next request.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(until, _)| *until)
    }

    /// Removes a request whose deadline has passed.
    pub(crate) fn pop_late(&mut self, now: Instant) -> Option<R> {
        while let Some((until, number)) = self.deadlines.pop_front_if(|(until, _)| *until <= now) {
            // A queue pair may have been requested again since.
            if self.requests.get(&number).is_some_and(|(_, latest)| *latest == until) {
                return self.requests.remove(&number).map(|(request, _)| request);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct To(u32, u32);

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn number(value: u32) -> QpNumber {
        QpNumber::new(value).unwrap()
    }

    impl Ends for To {
        fn address(&self) -> IpAddr {
            PEER
        }

        fn number(&self) -> QpNumber {
            number(self.0)
        }

        fn peer(&self) -> (IpAddr, QpNumber) {
            (PEER, number(self.1))
        }
    }

    #[test]
    fn only_the_expected_peer_matches_a_request_until_its_deadline() {
        let (mut expected, at) = (Expected::default(), Instant::from_nanos);
        expected.insert(To(1, 10), at(100));
        expected.insert(To(2, 20), at(200));
        assert_eq!(expected.take(number(1), (PEER, number(11))), None);
        assert_eq!(expected.take(number(1), (PEER, number(10))), Some(To(1, 10)));
        assert_eq!(expected.take(number(1), (PEER, number(10))), None);
        assert_eq!(expected.poll_timeout(), Some(at(200)));
        assert_eq!([(); 2].map(|()| expected.remove(number(2))), [Some(To(2, 20)), None]);
        assert_eq!(expected.poll_timeout(), None);
        expected.insert(To(2, 20), at(200));
        expected.insert(To(3, 30), at(200));
        expected.remove(number(2));
        expected.insert(To(2, 21), at(300));
        assert_eq!(expected.pop_late(at(200)), Some(To(3, 30)));
        assert_eq!(expected.pop_late(at(250)), None);
        assert_eq!(expected.pop_late(at(300)), Some(To(2, 21)));
        assert_eq!((expected.pop_late(at(300)), expected.poll_timeout()), (None, None));
    }
}
