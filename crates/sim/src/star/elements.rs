//! StaR's elements (WQEP or CQEP) in one direction: numbered, taken in order, acknowledged by the next that is expected (EA).

/// The sender's and the receiver's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    next: u32,
    unacknowledged: u32,
    expected: u32,
}

impl Elements {
    /// The number of an element that is sent now.
    pub(super) fn send(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// The receiver gets an element; says whether it is the next one.
    pub(super) fn receive(&mut self, sequence: u32) -> bool {
        let is_next = sequence == self.expected;
        self.expected += u32::from(is_next);
        is_next
    }

    /// What an EA says: the next that is expected.
    pub(super) fn expected(&self) -> u32 {
        self.expected
    }

    /// An EA is there.
    pub(super) fn acknowledge(&mut self, expected: u32) {
        self.unacknowledged = self.unacknowledged.max(expected);
    }

    /// Those that are to be sent again when nothing was heard for too long.
    pub(super) fn unacknowledged(&self) -> std::ops::Range<u32> {
        self.unacknowledged..self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_taken_once_and_in_order() {
        let mut elements = Elements::default();
        assert_eq!([(); 3].map(|()| elements.send()), [0, 1, 2]);
        assert_eq!([1, 0, 0, 1].map(|sequence| elements.receive(sequence)), [false, true, false, true]);
        elements.acknowledge(elements.expected());
        elements.acknowledge(1);
        assert_eq!(elements.unacknowledged(), 2..3);
    }
}
