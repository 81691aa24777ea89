//! The requests of an adapter whose connections are not set up yet.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;

use super::expected::{Ends, Expected};

/// How long one side waits for the program of the other.
pub(crate) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Failures that are reported individually; further ones get one common line.
const MAX_REPORTS: usize = 8;

/// Peers whose refused connections are remembered. Beyond, the oldest is forgotten.
const MAX_REFUSALS: usize = 16;

/// The requests of an adapter whose connections are not set up yet: counts them, keeps those that no
/// handshake has taken, and reports those that fail.
pub(crate) struct Requests<R> {
    /// Requests for which the peer connects.
    expected: Expected<R>,
    /// Requests for which this side connects, by the peer's address. No queue is empty.
    outbound: BTreeMap<IpAddr, VecDeque<R>>,
    /// The peer whose request was taken last.
    last_peer: Option<IpAddr>,
    /// Requests that are not complete.
    open: Arc<AtomicUsize>,
    failures: usize,
    /// Refusals not yet reported to a request.
    refusals: VecDeque<Refusal>,
    report: fn(&str),
}

/// Refused connections of a peer.
struct Refusal {
    peer: IpAddr,
    why: String,
    is_reported: bool,
}

impl<R: Ends> Requests<R> {
    /// Starts without requests. The caller counts each request in `open`; `report` takes a line per failed
    /// request.
    pub(crate) fn new(open: Arc<AtomicUsize>, report: fn(&str)) -> Self {
        let (expected, outbound, refusals) = (Expected::default(), BTreeMap::new(), VecDeque::new());
        Self { expected, outbound, last_peer: None, open, failures: 0, refusals, report }
    }

    /// Keeps a request until [`next_outbound`](Self::next_outbound) if this side connects; otherwise expects
    /// the peer to connect within [`PROGRAM_TIMEOUT`].
    pub(crate) fn add(&mut self, request: R, now: Instant) {
        let (peer, _) = request.peer();
        if request.connects() {
            self.outbound.entry(peer).or_default().push_back(request);
            return;
        }
        self.expected.insert(request, now + PROGRAM_TIMEOUT);
        self.report_refusal(peer);
    }

    /// Takes the oldest request of a peer that has room and to which this side connects. Such peers take
    /// turns.
    pub(crate) fn next_outbound(&mut self, has_room: impl Fn(IpAddr) -> bool) -> Option<R> {
        let behind_last = (self.last_peer.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let behind_last = self.outbound.range(behind_last).map(|(peer, _)| peer);
        let peer = *behind_last.chain(self.outbound.keys()).find(|peer| has_room(**peer))?;
        self.last_peer = Some(peer);
        let queue = self.outbound.get_mut(&peer)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.outbound.remove(&peer);
        }
        request
    }

    /// Keeps a request that must be tried again, before all others to its peer.
    pub(crate) fn retry(&mut self, request: R) {
        self.outbound.entry(request.peer().0).or_default().push_front(request);
    }

    /// Forgets the request of a queue pair.
    pub(crate) fn withdraw(&mut self, qp: QpNumber) {
        let mut is_found = false;
        self.outbound.retain(|_, queue| {
            let before = queue.len();
            queue.retain(|request| request.number() != qp);
            is_found |= queue.len() < before;
            !queue.is_empty()
        });
        if is_found || self.expected.remove(qp).is_some() {
            self.complete();
        }
    }

    /// Reports that connections of `peer` are refused, once: now if a request expects that peer, else with
    /// the first that does. The request goes on waiting, since others may connect from that address.
    pub(crate) fn refuse(&mut self, peer: IpAddr, why: impl Display) {
        if self.refusals.iter().all(|refusal| refusal.peer != peer) {
            if self.refusals.len() == MAX_REFUSALS {
                self.refusals.pop_front();
            }
            self.refusals.push_back(Refusal { peer, why: why.to_string(), is_reported: false });
        }
        if self.expected.expects(peer) {
            self.report_refusal(peer);
        }
    }

    fn report_refusal(&mut self, peer: IpAddr) {
        let unreported = |refusal: &&mut Refusal| refusal.peer == peer && !refusal.is_reported;
        if let Some(refusal) = self.refusals.iter_mut().find(unreported) {
            refusal.is_reported = true;
            (self.report)(&format!("refused a connection from {peer}: {}", refusal.why));
        }
    }

    /// Takes the request of queue pair `ours` if it is for `peer`.
    pub(crate) fn take(&mut self, ours: QpNumber, peer: (IpAddr, QpNumber)) -> Option<R> {
        self.expected.take(ours, peer)
    }

    /// Counts a completed request.
    pub(crate) fn complete(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a failed request, and reports why.
    pub(crate) fn fail(&mut self, request: &R, why: impl Display) {
        self.complete();
        self.failures += 1;
        if self.failures > MAX_REPORTS {
            if self.failures == MAX_REPORTS + 1 {
                (self.report)(
                    "further queue pairs cannot be connected; these failures are not reported individually",
                );
            }
            return;
        }
        let (number, (address, theirs)) = (request.number().value(), request.peer());
        let theirs = theirs.value();
        (self.report)(&format!(
            "queue pair {number:#x} has no connection with {theirs:#x} at {address}: {why}"
        ));
    }

    /// Deadline of the next expected peer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.expected.poll_timeout()
    }

    /// Removes a request whose peer has not connected in time.
    pub(crate) fn pop_late(&mut self, now: Instant) -> Option<R> {
        self.expected.pop_late(now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Requests from queue pair 5 on, to queue pair 100.
    struct From(u32);

    /// A request to a peer with this last byte of its address.
    struct To(u8);

    impl Ends for To {
        fn address(&self) -> IpAddr {
            HERE
        }

        fn number(&self) -> QpNumber {
            QpNumber::new(5).unwrap()
        }

        fn peer(&self) -> (IpAddr, QpNumber) {
            (Ipv4Addr::new(127, 0, 0, self.0).into(), QpNumber::new(100).unwrap())
        }
    }

    #[test]
    fn peers_to_which_this_side_connects_take_turns() {
        let mut requests = Requests::new(Arc::default(), |line| panic!("{line}"));
        [9, 9, 9, 5, 7, 7].into_iter().for_each(|peer| requests.add(To(peer), Instant::ZERO));
        let full = IpAddr::from([127, 0, 0, 5]);
        let taken: Vec<_> =
            std::iter::from_fn(|| requests.next_outbound(|peer| peer != full)).map(|To(peer)| peer).collect();
        assert_eq!(taken, [7, 9, 7, 9, 9]);
        assert!(requests.next_outbound(|_| true).is_some_and(|To(peer)| peer == 5));
    }

    impl Ends for From {
        fn address(&self) -> IpAddr {
            HERE
        }

        fn number(&self) -> QpNumber {
            QpNumber::new(self.0).unwrap()
        }

        fn peer(&self) -> (IpAddr, QpNumber) {
            (HERE, QpNumber::new(100).unwrap())
        }
    }

    #[test]
    fn the_lower_end_connects_and_withdrawn_requests_are_complete() {
        let open = Arc::new(AtomicUsize::new(5));
        let mut requests = Requests::new(Arc::clone(&open), |line| panic!("{line}"));
        [97, 98, 99, 101, 102].into_iter().for_each(|from| requests.add(From(from), Instant::ZERO));
        let next =
            |requests: &mut Requests<From>| requests.next_outbound(|_| true).map(|From(number)| number);
        assert_eq!(next(&mut requests), Some(97));
        for withdrawn in [97, 98, 101] {
            requests.withdraw(QpNumber::new(withdrawn).unwrap());
        }
        assert_eq!(open.load(Ordering::SeqCst), 3, "98 and 101");
        requests.retry(From(97));
        assert!(requests.next_outbound(|_| false).is_none());
        assert_eq!([(); 3].map(|()| next(&mut requests)), [Some(97), Some(99), None]);
        assert_eq!(requests.poll_timeout(), Some(Instant::ZERO + PROGRAM_TIMEOUT));
        let late = requests.pop_late(Instant::ZERO + PROGRAM_TIMEOUT);
        assert!(matches!(late, Some(From(102))) && requests.poll_timeout().is_none());
    }

    #[test]
    fn failures_are_reported_one_by_one_up_to_a_limit() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let open = Arc::new(AtomicUsize::new(20));
        let mut requests =
            Requests::new(Arc::clone(&open), |line| LINES.lock().unwrap().push(line.to_owned()));
        (0..20).for_each(|nth| requests.fail(&From(nth + 5), "why"));
        let lines = LINES.lock().unwrap();
        assert_eq!((lines.len(), open.load(Ordering::SeqCst)), (MAX_REPORTS + 1, 0));
        assert_eq!(lines[0], "queue pair 0x5 has no connection with 0x64 at 127.0.0.1: why");
        assert!(lines[MAX_REPORTS].contains("not reported individually"));
    }

    #[test]
    fn a_refused_peer_is_reported_once_when_a_request_expects_it() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let mut requests: Requests<From> =
            Requests::new(Arc::default(), |line| LINES.lock().unwrap().push(line.to_owned()));
        requests.refuse(HERE, "why");
        (0..100).for_each(|host| requests.refuse(IpAddr::from([10, 0, 0, host]), "other"));
        assert!(LINES.lock().unwrap().is_empty() && requests.refusals.len() == MAX_REFUSALS);
        requests.refuse(HERE, "why");
        requests.add(From(101), Instant::ZERO);
        requests.add(From(102), Instant::ZERO);
        requests.refuse(HERE, "why");
        assert_eq!(*LINES.lock().unwrap(), ["refused a connection from 127.0.0.1: why"]);
    }
}
