//! Sweeps: an experiment with lists of values and seeds.
//!
//! ```toml
//! experiment = "lro-npu-throughput"    # a built-in experiment, or a path that ends in .toml
//! seeds = [1, 2, 3]                    # the experiment's seed if left out
//!
//! [sweep]                              # every combination of these, written as with --set
//! dma-start = ["5us", "10.7us"]
//! connections = [1, 8]                 # the axis' parameter: x values
//! ```

use std::fmt;
use std::path::Path;

use super::definition::{Definition, Point};
use super::document::{Document, FileError, Item, Problem, Table};
use super::library::Library;
use super::parameter::Value;
use super::settings::{SetError, Setting};
use super::source::{LoadError, Source};

/// Maximum runs of a sweep.
const MAX_RUNS: usize = 1_000_000;

/// A parsed sweep.
pub struct Sweep {
    /// The source of the experiment.
    pub source: Source,
    /// The experiment.
    pub definition: Definition,
    /// Each point runs once per seed.
    pub seeds: Vec<u64>,
    /// The settings whose combinations are run.
    lists: Vec<Setting>,
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep")
            .field("definition", &self.definition)
            .field("seeds", &self.seeds)
            .finish_non_exhaustive()
    }
}

/// A run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The settings beside the x value.
    pub settings: Vec<(&'static str, String)>,
    /// The series.
    pub series: String,
    /// The experiment's point.
    pub point: Point,
    /// The seed.
    pub seed: u64,
}

impl Sweep {
    /// Parses a sweep. The experiment is built in, or a path relative to the folder of `file`.
    pub fn parse(file: &str, text: &str, library: &Library) -> Result<Self, LoadError> {
        let document = Document { file, text };
        let tree = document.parse()?;
        let root = document.root(&tree);
        if let Some(item) = root.get("model") {
            let message = "an experiment, not a sweep of one: nichrome sim run runs it";
            return Err(item.error(Problem::OtherKind(message)).into());
        }
        root.only(&["experiment", "seeds", "sweep"])?;
        let item = root.need("experiment", "the name of an experiment, or a path that ends in .toml")?;
        let beside = Path::new(file).parent().unwrap_or(Path::new(""));
        let source = Source::find(item.text()?, beside, library)?;
        let mut definition = source.load(library)?;
        let seeds = seeds(&root, &definition)?;
        let mut lists = Vec::new();
        if let Some(sweep) = root.get("sweep") {
            for item in sweep.table()?.entries() {
                let list = list(&item, &definition)?;
                if list.spec.key == definition.x.parameter.key {
                    definition.apply(&list);
                } else {
                    lists.push(list);
                }
            }
        }
        let sweep = Self { source, definition, seeds, lists };
        match sweep.count() {
            Some(1..=MAX_RUNS) => Ok(sweep),
            _ => Err(root.error(Problem::TooMany { what: "runs", most: MAX_RUNS }).into()),
        }
    }

    /// Returns the number of runs; `None` on overflow.
    fn count(&self) -> Option<usize> {
        let points = self.definition.series.len().checked_mul(self.definition.x.values.len());
        let factors = self.lists.iter().map(|list| list.values.len()).chain([self.seeds.len()]);
        factors.fold(points, |product, factor| product?.checked_mul(factor))
    }

    /// Returns all runs, ordered by combination, point and seed.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for combination in self.combinations() {
            let mut definition = self.definition.clone();
            for setting in &combination {
                definition.apply(setting);
            }
            let shown = |setting: &Setting| {
                let value = setting.values.first().map(|value| setting.spec.show(*value));
                (setting.spec.key, value.unwrap_or_default())
            };
            let settings: Vec<_> = combination.iter().map(shown).collect();
            for point in definition.points() {
                let series = definition.series[point.series].name.clone();
                tasks.extend(self.seeds.iter().map(|seed| Task {
                    settings: settings.clone(),
                    series: series.clone(),
                    point: point.clone(),
                    seed: *seed,
                }));
            }
        }
        tasks
    }

    /// Returns all combinations of one value from each list.
    fn combinations(&self) -> Vec<Vec<Setting>> {
        let mut all = vec![Vec::new()];
        for list in &self.lists {
            let with = |chosen: &Vec<Setting>, value: &Value| {
                let setting = Setting { spec: list.spec, values: vec![*value] };
                [&chosen[..], &[setting]].concat()
            };
            all = all
                .iter()
                .flat_map(|chosen| list.values.iter().map(move |value| with(chosen, value)))
                .collect();
        }
        all
    }
}

fn seeds(root: &Table<'_, '_>, definition: &Definition) -> Result<Vec<u64>, FileError> {
    match root.get("seeds") {
        Some(seeds) => seeds.some_items()?.iter().map(Item::whole_number).collect(),
        None => Ok(vec![definition.seed]),
    }
}

fn list(item: &Item<'_, '_>, definition: &Definition) -> Result<Setting, FileError> {
    let refused = |error: SetError| match error {
        SetError::Unknown { allowed, .. } => Problem::UnknownKey { key: item.path.clone(), allowed },
        error => Problem::Setting { key: item.path.clone(), error: error.to_string() },
    };
    let spec = definition.settable(item.key()).map_err(|error| item.error(refused(error)))?;
    let value = |item: &Item<'_, '_>| {
        definition.value(spec, &item.scalar()?).map_err(|error| item.wrong_value(error))
    };
    let values = item.some_items()?.iter().map(value).collect::<Result<_, _>>()?;
    Ok(Setting { spec, values })
}

#[cfg(test)]
mod tests {
    use super::super::testing::LIBRARY;
    use super::*;

    fn parse(text: &str) -> Result<Sweep, String> {
        Sweep::parse("sweep.toml", text, &LIBRARY).map_err(|error| error.to_string())
    }

    #[test]
    fn every_combination_comes_once() {
        let text = "experiment = \"share\"\nseeds = [1, 2]\n[sweep]\nsetup = [\"5us\", \"12us\"]\n\
                    arbiter = [\"stack\", \"round-robin\"]\nflows = [1, 8]";
        let tasks = parse(text).unwrap().tasks();
        assert_eq!(tasks.len(), 2 * 2 * 2 * 2 * 2);
        let first = &tasks[0];
        assert_eq!(first.settings, [("arbiter", "stack".to_owned()), ("setup", "5us".into())]);
        assert_eq!((first.series.as_str(), first.point.x, first.seed), ("with offload", 1, 1));
        assert_eq!((tasks[1].seed, tasks[2].point.x, tasks[4].series.as_str()), (2, 8, "without"));
        assert_eq!(tasks[31].point.parameters.nanos("setup"), Ok(12_000));
        let mut hashes: Vec<_> =
            tasks.iter().map(|task| (task.point.parameters.hash("share"), task.seed)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 32);
    }

    #[test]
    fn nothing_but_an_experiment_is_its_points() {
        assert_eq!(parse("experiment = \"share\"").unwrap().tasks().len(), 6);
    }

    #[test]
    fn a_sweep_is_no_longer_than_can_be_run() {
        let seeds: Vec<String> = (0..166_667).map(|seed| seed.to_string()).collect();
        let text = |count: usize| format!("experiment = \"share\"\nseeds = [{}]", seeds[..count].join(","));
        assert!(parse(&text(166_666)).is_ok());
        let message = "sweep.toml, line 1: more than 1000000 runs: split the sweep";
        assert_eq!(parse(&text(166_667)).err().as_deref(), Some(message));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, message) in [
            (
                "seeds = [1]",
                "sweep.toml, line 1: there must be experiment: the name of an experiment, or a path that ends in .toml",
            ),
            (
                "experiment = \"shore\"",
                "there is no experiment 'shore': there are share, and files that end in .toml",
            ),
            ("experiment = \"none.toml\"", "cannot read none.toml: No such file or directory (os error 2)"),
            (
                "experiment = \"share\"\nseeds = []",
                "sweep.toml, line 2: seeds must be an array of at least one value",
            ),
            (
                "name = \"share\"\nmodel = \"share\"",
                "sweep.toml, line 2: this is an experiment, not a sweep of one: nichrome sim run runs it",
            ),
            (
                "experiment = \"share\"\nseeds = [-1]",
                "sweep.toml, line 2: seeds must be a whole number from 0 to 18446744073709551615",
            ),
            ("experiment = \"share\"\nseeds = 1", "sweep.toml, line 2: seeds must be an array"),
            (
                "experiment = \"share\"\n[sweep]\noffload = [true]",
                "sweep.toml, line 3: sweep.offload: offload differs from series to series: change it in the experiment's file",
            ),
            (
                "experiment = \"share\"\n[sweep]\nset-up = [1]",
                "sweep.toml, line 3: there is no 'sweep.set-up': there are flows, offload, rate, setup, arbiter",
            ),
            (
                "experiment = \"share\"\n[sweep]\nsetup = [1]",
                "sweep.toml, line 3: sweep.setup: the unit is missing: a time is in ns, us, ms, s, min",
            ),
        ] {
            assert_eq!(parse(text).err().as_deref(), Some(message));
        }
    }
}
