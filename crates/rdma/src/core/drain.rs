//! Draining a send queue (state SQD, IBA 10.3.1.5).

/// How far the draining of a send queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Requests begin as they are posted.
    #[default]
    Running,
    /// No request begins; some are outstanding.
    Draining,
    /// No request begins and none is outstanding.
    Drained,
}

impl Drain {
    /// Begins no further request.
    pub(crate) fn begin(&mut self) {
        if *self == Self::Running {
            *self = Self::Draining;
        }
    }

    /// Returns true once: when the last outstanding request of a draining queue is done.
    pub(crate) fn finish(&mut self) -> bool {
        let finished = *self == Self::Draining;
        if finished {
            *self = Self::Drained;
        }
        finished
    }
}
