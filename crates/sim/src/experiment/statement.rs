//! Statements of a paper, each with its kind, and what came of one.

/// How much the agreement with a statement is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatementKind {
    /// No parameter was chosen by it: the model could have come to anything else.
    Predicted,
    /// A parameter, or the reading of a setting, was chosen so that it holds.
    Fitted,
    /// What another statement says already.
    Repeated,
    /// Our arithmetic with numbers of other statements.
    Derived,
    /// It follows from the parameters without a run.
    ByConstruction,
}

impl StatementKind {
    /// All kinds by their names in files.
    pub const NAMES: [(&str, Self); 5] = [
        ("predicted", Self::Predicted),
        ("fitted", Self::Fitted),
        ("repeated", Self::Repeated),
        ("derived", Self::Derived),
        ("by construction", Self::ByConstruction),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// A statement of the paper about a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The name of a series or of a derived one.
    pub series: String,
    /// Which numbers of the line.
    pub subject: Subject,
    /// What they are to be.
    pub claim: Claim,
    /// The unit of the claim.
    pub unit: String,
    /// How much agreement is worth.
    pub kind: StatementKind,
    /// The section or figure.
    pub source: String,
    /// The paper's words, or those that are nearest to them where it is derived.
    pub sentence: String,
}

/// The numbers of a line that a statement is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// Those at these places, in the base unit of the axis.
    At(Vec<u64>),
    /// The largest.
    Maximum,
    /// The largest, over the largest of the line of this name.
    MaximumOver(String),
    /// The first place whose number is at least 95 % of the largest.
    MaximumBegins,
    /// By how many % the last is below the first.
    Fall,
}

/// What a number is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// This, within a tolerance where one is agreed on.
    Value(f64, Option<Tolerance>),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// How far a value may be away from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A part of the other.
    Relative(f64),
    /// In its unit.
    Absolute(f64),
}

impl Tolerance {
    /// Whether `value` is near enough to `expected`.
    pub fn allows(self, value: f64, expected: f64) -> bool {
        (value - expected).abs() <= self.distance(expected)
    }

    /// How far a value may be from `expected`, in its unit.
    pub fn distance(self, expected: f64) -> f64 {
        match self {
            Self::Relative(part) => part * expected.abs(),
            Self::Absolute(most) => most,
        }
    }
}

impl Claim {
    /// The paper's number.
    pub fn number(self) -> f64 {
        match self {
            Self::Value(number, _) | Self::AtLeast(number) | Self::AtMost(number) => number,
        }
    }

    /// Whether a number agrees; `None` where the claim has no tolerance.
    pub fn allows(self, value: f64) -> Option<bool> {
        match self {
            Self::Value(number, tolerance) => Some(tolerance?.allows(value, number)),
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
        }
    }
}

/// A statement and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<'a> {
    /// What the paper says.
    pub expected: &'a Expected,
    /// The numbers that it is about; `None` where there was nothing to measure.
    pub found: Vec<Option<f64>>,
}

impl Statement<'_> {
    /// Whether all its numbers agree; `None` where the claim has no tolerance.
    pub fn holds(&self) -> Option<bool> {
        let mut verdict = Some(true);
        for found in &self.found {
            let allows = found.map_or(Some(false), |value| self.expected.claim.allows(value))?;
            verdict = verdict.map(|verdict| verdict && allows);
        }
        verdict
    }

    /// The least and the largest number that were found.
    pub fn span(&self) -> Option<(f64, f64)> {
        let found = self.found.iter().flatten();
        found.fold(None, |span, value| {
            let (least, most) = span.unwrap_or((*value, *value));
            Some((least.min(*value), most.max(*value)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(claim: Claim) -> Expected {
        Expected {
            series: "with offload".into(),
            subject: Subject::At(vec![1, 2]),
            claim,
            unit: "Mb/s".into(),
            kind: StatementKind::Predicted,
            source: "abstract".into(),
            sentence: "it is fast".into(),
        }
    }

    #[test]
    fn a_statement_holds_where_all_its_numbers_agree() {
        let within = Claim::Value(100.0, Some(Tolerance::Relative(0.05)));
        for (claim, found, holds) in [
            (within, [Some(96.0), Some(105.0)], Some(true)),
            (within, [Some(96.0), Some(106.0)], Some(false)),
            (within, [Some(96.0), None], Some(false)),
            (Claim::Value(100.0, None), [Some(100.0), Some(100.0)], None),
            (Claim::AtLeast(160.0), [Some(160.0), Some(165.0)], Some(true)),
            (Claim::AtMost(16.0), [Some(16.0), Some(37.0)], Some(false)),
        ] {
            let expected = expected(claim);
            assert_eq!(Statement { expected: &expected, found: found.to_vec() }.holds(), holds, "{claim:?}");
        }
    }

    #[test]
    fn kinds_have_names() {
        assert_eq!(StatementKind::ByConstruction.name(), "by construction");
        assert!(StatementKind::Predicted < StatementKind::Fitted);
    }
}
