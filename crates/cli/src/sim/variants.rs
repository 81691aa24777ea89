//! Runs an experiment with other settings: readings, and samples of assumed parameters.

use anyhow::Context;
use nichrome_sim::experiment::{Definition, Plan, Values, Variant};

use super::runs::{self, Jobs};

/// Returns the values of the points that the paper's statements need, for each variant.
pub(super) fn run(
    definition: &Definition,
    variants: &[Variant],
    seed: u64,
    jobs: &Jobs,
) -> anyhow::Result<Vec<Values>> {
    let plans: Vec<Plan> =
        variants.iter().map(|variant| definition.with(variant).plan_of_statements()).collect();
    let tasks: Vec<(usize, usize)> =
        (0..).zip(&plans).flat_map(|(nth, plan)| (0..plan.runs.len()).map(move |run| (nth, run))).collect();
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let records = runs::each(&tasks, jobs, |(nth, run), progress| {
        let record = progress.run(definition.runner, &plans[*nth].runs[*run], seed);
        record.with_context(|| format!("{}, {}", definition.name, variants[*nth].name))
    })?;
    let mut records = records.into_iter();
    let values = plans.iter().map(|plan| {
        let of_plan: Vec<_> = records.by_ref().take(plan.runs.len()).collect();
        definition.values(plan, |run, metric| of_plan[run].metrics.get(metric).copied())
    });
    Ok(values.collect())
}
