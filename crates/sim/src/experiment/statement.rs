//! Statements of a paper, their kinds, and their evaluation.

/// How much agreement with a statement says about the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatementKind {
    /// A prediction: no parameter was chosen by this statement.
    Predicted,
    /// A parameter, or the reading of a setting, was chosen so that it holds.
    Fitted,
    /// Repeats another statement.
    Repeated,
    /// Follows arithmetically from other statements.
    Derived,
    /// Follows from the parameters without a run.
    ByConstruction,
}

impl StatementKind {
    /// All kinds with their names in files.
    pub const NAMES: [(&str, Self); 5] = [
        ("predicted", Self::Predicted),
        ("fitted", Self::Fitted),
        ("repeated", Self::Repeated),
        ("derived", Self::Derived),
        ("by construction", Self::ByConstruction),
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// A statement of the paper about a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The name of a measured or derived series.
    pub series: String,
    /// The numbers that it is about.
    pub subject: Subject,
    /// The claim about these numbers.
    pub claim: Claim,
    /// The unit of the claim.
    pub unit: String,
    /// The kind.
    pub kind: StatementKind,
    /// The section or figure.
    pub source: String,
    /// The paper's sentence, or the nearest one for a derived statement.
    pub sentence: String,
}

/// The numbers of a series that a statement is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The values at these x values, in the axis' base unit.
    At(Vec<u64>),
    /// The maximum.
    Maximum,
    /// The ratio of the maximum to that of the named series.
    MaximumOver(String),
    /// The first x value whose value is at least 95 % of the maximum.
    MaximumBegins,
    /// The decrease from the first to the last value, in percent.
    Fall,
}

/// A claim about a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// Equal, within the tolerance if one is given.
    Value(f64, Option<Tolerance>),
    /// A lower bound.
    AtLeast(f64),
    /// An upper bound.
    AtMost(f64),
}

/// A tolerance around the paper's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Relative.
    Relative(f64),
    /// Absolute, in the number's unit.
    Absolute(f64),
}

impl Tolerance {
    /// Returns true if `value` is within the tolerance of `expected`.
    pub fn allows(self, value: f64, expected: f64) -> bool {
        (value - expected).abs() <= self.distance(expected)
    }

    /// Returns the absolute tolerance around `expected`, in its unit.
    pub fn distance(self, expected: f64) -> f64 {
        match self {
            Self::Relative(part) => part * expected.abs(),
            Self::Absolute(most) => most,
        }
    }
}

impl Claim {
    /// Returns the paper's number.
    pub fn number(self) -> f64 {
        match self {
            Self::Value(number, _) | Self::AtLeast(number) | Self::AtMost(number) => number,
        }
    }

    /// Returns false for a value without a tolerance, with which no number agrees or disagrees.
    pub fn is_decidable(self) -> bool {
        !matches!(self, Self::Value(_, None))
    }

    /// Returns true if a number agrees; `None` without a tolerance.
    pub fn allows(self, value: f64) -> Option<bool> {
        match self {
            Self::Value(number, tolerance) => Some(tolerance?.allows(value, number)),
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
        }
    }
}

/// An evaluated statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<'a> {
    /// The statement.
    pub expected: &'a Expected,
    /// The simulated numbers; `None` without measurements.
    pub found: Vec<Option<f64>>,
}

impl Statement<'_> {
    /// Returns true if all numbers were measured and agree; `None` without a tolerance.
    pub fn holds(&self) -> Option<bool> {
        let mut verdict = Some(true);
        for found in &self.found {
            let allows = found.map_or(Some(false), |value| self.expected.claim.allows(value))?;
            verdict = verdict.map(|verdict| verdict && allows);
        }
        verdict
    }

    /// Returns the smallest and largest number found.
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
