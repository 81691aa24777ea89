//! Draining of a send queue (state SQD, IBA 10.3.1.5).

/// The progress of draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Posted requests start.
    #[default]
    Running,
    /// No request starts; some are outstanding.
    Draining,
    /// No request starts and none is outstanding.
    Drained,
}

impl Drain {
    /// Stops the start of further requests.
    pub(crate) fn begin(&mut self) {
        if *self == Self::Running {
            *self = Self::Draining;
        }
    }

    /// Marks a draining queue as drained. Returns true if it was draining.
    pub(crate) fn finish(&mut self) -> bool {
        let finished = *self == Self::Draining;
        if finished {
            *self = Self::Drained;
        }
        finished
    }
}
