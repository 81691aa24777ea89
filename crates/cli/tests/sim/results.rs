//! The output and the files of a run.

use std::fs::{self, File};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use tempfile::tempdir;

use crate::command::{SHORT, json, names, printed, text};

fn short(more: &[&'static str]) -> Vec<&'static str> {
    [&["run"], &SHORT[..], more].concat()
}

#[test]
fn json_has_the_papers_value_beside_ours() {
    let summary = json(&short(&["--set", "frame=64,1514,1000"]));
    assert_eq!(summary["experiment"], "lro-netfpga-cpu");
    let points = summary["points"].as_array().unwrap();
    let keys: Vec<_> = points[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["series", "x", "value", "unit", "paper", "deviation", "bound", "kind", "readings", "samples"]
    );
    let xs: Vec<_> = points.iter().map(|point| point["x"].as_f64().unwrap()).collect();
    assert_eq!(xs, [64.0, 1514.0, 1000.0].repeat(3));
    let saved = &points[6];
    assert_eq!(
        (&saved["series"], &saved["unit"], &saved["paper"]),
        (&"saved".into(), &"%".into(), &28.0.into())
    );
    let (value, deviation) = (saved["value"].as_f64().unwrap(), saved["deviation"].as_f64().unwrap());
    assert!((value / 28.0 - 1.0 - deviation).abs() < 1e-12, "{saved}");
    assert_eq!((&points[8]["paper"], &points[8]["deviation"]), (&Value::Null, &Value::Null));
    assert_eq!((&saved["kind"], &points[7]["kind"]), (&"fitted".into(), &"predicted".into()));
    let statement = &summary["statements"][0];
    assert_eq!((&statement["found"][0], &statement["paper"]), (&saved["value"], &"28 ± 3".into()));
    assert!(statement["sentence"].as_str().unwrap().contains("saving 28%"), "{statement}");
    assert_eq!(summary["statements"].as_array().unwrap().len(), 2);
}

#[test]
fn a_bound_of_the_paper_is_marked_and_has_no_deviation() {
    let folder = tempdir().unwrap();
    let page = folder.path().join("page.html");
    let settings = ["--set", "duration=1ms", "--set", "warm-up=0", "--html", text(&page)];
    for (name, axis, series, bound) in [
        ("lro-netfpga-ttl", "other-ttl=1", "saved", ["least", "at least"]),
        ("lro-netfpga-two-flows", "second-flow=100", "saved", ["most", "at most"]),
    ] {
        let summary = json(&[&["run", name, "--set", axis], &settings[..]].concat());
        let points = summary["points"].as_array().unwrap();
        let point = points.iter().find(|point| point["series"] == series).unwrap();
        assert_eq!((&point["paper"], &point["deviation"]), (&9.0.into(), &Value::Null));
        assert_eq!(point["bound"], bound[0]);
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.contains(&format!("{series}, the paper: {}", bound[1])), "{name}");
        assert!(!html.contains(&format!("{series}, the paper\"")), "{name}");
    }
    let value = json(&short(&["--set", "frame=64"]));
    assert_eq!(value["points"][2]["bound"], Value::Null);
}

#[test]
fn results_do_not_depend_on_the_number_of_parallel_runs() {
    let arguments = short(&["--set", "frame=64,256,1514"]);
    let with = |more: &[&'static str]| printed(&[&arguments[..], more].concat());
    assert_eq!(with(&["--jobs", "1"]), with(&["--jobs", "4"]));
    assert_eq!(with(&["--seed", "1"]), with(&[]));
}

#[test]
fn examples_in_help_are_valid_settings() {
    let help = printed(&["run", "--help"]);
    let examples = help.split_whitespace().filter(|word| word.contains('=') && !word.contains("KEY"));
    let examples: Vec<_> = examples.map(|word| word.trim_end_matches(';')).collect();
    assert!(examples.len() == 2, "{help}");
    let settings = examples.iter().flat_map(|example| ["--set", example]);
    let arguments: Vec<_> = ["run", "lro-npu-throughput"].into_iter().chain(settings).collect();
    let short = ["--set", "repetitions=1", "--set", "warm-up=0", "--set", "duration=1ms"];
    assert_eq!(json(&[&arguments[..], &short].concat())["experiment"], "lro-npu-throughput");
}

#[test]
fn records_name_the_run() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("new/folder");
    let arguments =
        ["run", SHORT[0], "--set", "duration=1ms", "--set", "warm-up=0", "--set", "frame=64,1514", "--out"];
    let stdout = printed(&[&arguments[..], &[text(&out)]].concat());
    let files = ["json", "jsonl", "parquet", "svg"].map(|extension| format!("lro-netfpga-cpu.{extension}"));
    assert_eq!(names(&out), files);
    assert_eq!(stdout, printed(&arguments[..8]));

    let summary: Value = serde_json::from_slice(&fs::read(out.join(&files[0])).unwrap()).unwrap();
    assert_eq!(summary, json(&arguments[..8]));
    let lines = fs::read_to_string(out.join(&files[1])).unwrap();
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 4);
    assert_eq!(records[1]["parameters"]["frame"], 1514);
    assert_eq!(records[1]["metrics"]["cpu"], summary["points"][1]["value"]);
    assert_eq!((&records[1]["units"]["frame"], &records[1]["units"]["cpu"]), (&"B".into(), &"%".into()));

    let reader = SerializedFileReader::new(File::open(out.join(&files[2])).unwrap()).unwrap();
    let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4);
    for (row, record) in rows.iter().zip(&records) {
        for (column, of_record) in [
            ("model", &record["model"]),
            ("seed", &record["seed"]),
            ("trace_hash", &record["trace_hash"]),
            ("parameters.frame", &record["parameters"]["frame"]),
            ("parameters.lro", &record["parameters"]["lro"]),
            ("metrics.cpu", &record["metrics"]["cpu"]),
        ] {
            assert_eq!(&cell(row, column), of_record, "{column}");
        }
    }
    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let units = metadata.iter().find(|pair| pair.key == "units").unwrap().value.as_ref().unwrap();
    assert_eq!(serde_json::from_str::<Value>(units).unwrap(), records[0]["units"]);

    let svg = fs::read_to_string(out.join(&files[3])).unwrap();
    for text in [
        "<svg",
        "LRO-enabled NIC",
        "the paper, predicted",
        "the paper: fitted, repeated",
        "length of the frames (B)",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

fn cell(row: &Row, column: &str) -> Value {
    match row.get_column_iter().find(|(name, _)| *name == column).unwrap().1 {
        Field::Str(text) => text.as_str().into(),
        Field::ULong(number) => (*number).into(),
        Field::Double(number) => (*number).into(),
        Field::Bool(flag) => (*flag).into(),
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn a_file_is_an_experiment_like_those_that_are_built_in() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    fs::write(&file, built_in.replace("name = \"lro-netfpga-cpu\"", "name = \"own\"")).unwrap();
    let arguments = ["--set", "duration=1ms", "--set", "warm-up=0", "--set", "frame=64"];
    let [own, built_in] =
        [text(&file), "lro-netfpga-cpu"].map(|name| json(&[&["run", name], &arguments[..]].concat()));
    assert_eq!((&own["experiment"], &own["points"]), (&"own".into(), &built_in["points"]));
}

#[test]
fn sensitivity_names_what_a_prediction_depends_on() {
    let short =
        ["sensitivity", "lro-netfpga-cpu", "--set", "duration=1ms", "--set", "warm-up=1ms", "--samples", "4"];
    let summary = json(&short);
    let [fitted, predicted] = [0, 1].map(|nth| &summary["statements"][nth]);
    assert_eq!((&fitted["kind"], &predicted["kind"]), (&"fitted".into(), &"predicted".into()));
    let ends = [0, 1].map(|end| predicted["interval"][end].as_f64().unwrap());
    assert!(ends[0] < ends[1] && predicted["holds_in"].as_u64().unwrap() <= 4, "{predicted}");
    let by_factor = predicted["by_factor"].as_array().unwrap();
    let swings: Vec<f64> = by_factor.iter().map(|effect| effect["swing"].as_f64().unwrap()).collect();
    assert!(swings.is_sorted_by(|more, less| more >= less), "{swings:?}");
    assert_eq!(by_factor[0]["factor"], summary["most_important"][0]);
    let stdout = printed(&short);
    assert!(stdout.contains("predictions depend most on checksum-cost"), "{stdout}");
}

/// Returns the rows of a table of sensitivity: the end and the change.
fn rows(text: &str) -> Vec<(&str, Option<&str>)> {
    let rows = text.lines().filter(|line| line.contains(" = "));
    rows.map(|row| (row.split("  ").next().unwrap().trim(), row.trim_end().strip_suffix(" %"))).collect()
}

#[test]
fn sensitivity_prints_the_change_of_each_end() {
    let short =
        ["sensitivity", "lro-netfpga-cpu", "--set", "duration=1ms", "--set", "warm-up=1ms", "--samples", "1"];
    let summary = json(&short);
    let stdout = printed(&short);
    let mut printed = rows(&stdout).into_iter();
    let mut compared = 0;
    for statement in summary["statements"].as_array().unwrap() {
        let found = statement["found"][0].as_f64().unwrap();
        let effects = statement["by_factor"].as_array().unwrap();
        for effect in effects.iter().filter(|effect| effect["swing"].as_f64().unwrap() >= 0.01) {
            let ends = effect["at_ends"].as_array().unwrap();
            let changes: Vec<f64> =
                ends.iter().map(|end| (end[1][0].as_f64().unwrap() / found - 1.0).abs()).collect();
            assert_eq!(effect["changes"], serde_json::json!(changes), "{effect}");
            assert_eq!(effect["swing"], changes.iter().copied().fold(0.0, f64::max));
            for (end, change) in ends.iter().zip(changes) {
                let (name, row) = printed.next().unwrap();
                assert_eq!(name, end[0]);
                assert!(
                    row.is_some_and(|row| row.ends_with(&format!(" {:.1}", change * 100.0))),
                    "{name}: {row:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(printed.next().is_none() && compared > 10, "{stdout}");
}

#[test]
fn sensitivity_does_not_count_agreement_with_a_number_without_tolerance() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    assert!(built_in.contains("value = 12\nunit = \"%\"\ntolerance = 3\n"));
    fs::write(
        &file,
        built_in.replacen("value = 12\nunit = \"%\"\ntolerance = 3\n", "value = 12\nunit = \"%\"\n", 1),
    )
    .unwrap();
    let settings =
        ["--set", "frame=64,1514", "--set", "duration=1ms", "--set", "warm-up=0", "--samples", "1"];
    let arguments = [&["sensitivity", text(&file)], &settings[..]].concat();
    let summary = json(&arguments);
    assert!(summary["statements"][0]["holds_in"].is_u64(), "{summary}");
    assert_eq!(summary["statements"][1]["holds_in"], Value::Null);
    let stdout = printed(&arguments);
    let counts: Vec<bool> = stdout
        .lines()
        .filter(|line| line.starts_with("  paper "))
        .map(|line| line.contains("agree"))
        .collect();
    assert_eq!(counts, [true, false], "{stdout}");
}

#[test]
fn sensitivity_without_statements_has_the_same_formats() {
    let folder = tempdir().unwrap();
    let arguments = ["sensitivity", "lro-netfpga-cpu", "--set", "frame=100", "--samples", "2"];
    let output = printed(&arguments);
    assert_eq!(output, "lro-netfpga-cpu: its paper states nothing that could be checked\n");
    let summary = json(&[&arguments[..], &["--out", text(folder.path())]].concat());
    assert_eq!((&summary["experiment"], &summary["samples"]), (&"lro-netfpga-cpu".into(), &2.into()));
    assert_eq!(
        (&summary["statements"], &summary["most_important"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    assert!(summary["factors"].as_array().unwrap().iter().any(|factor| factor["name"] == "stack-cost"));
    assert_eq!(names(folder.path()), ["lro-netfpga-cpu-sensitivity.json", "lro-netfpga-cpu-sensitivity.svg"]);
    let written = fs::read(folder.path().join("lro-netfpga-cpu-sensitivity.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), summary);
}

#[test]
fn a_statement_about_the_whole_axis_is_not_judged_on_a_part_of_it() {
    let part = ["--set", "connections=20", "--set", "duration=100us", "--set", "warm-up=100us"];
    let summary = json(&[&["run", "star-rpc"], &part[..]].concat());
    assert_eq!(summary["statements"], serde_json::json!([]));
    assert_eq!(summary["tally"], "no prediction");
}

#[test]
fn sensitivity_counts_a_change_from_0() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-drops.toml").unwrap();
    let own = r#"
[[expected]]
series = "LRO-enabled NIC"
x = 1514
value = 0
unit = "%"
tolerance = 1
kind = "predicted"
source = "test"
sentence = "test"

[parameters]
pci-burst-overhead = { value = 2, unit = "cycles", source = "test", range = [2, 60], reason = "test" }
"#;
    fs::write(&file, built_in + own).unwrap();
    let settings = ["--set", "frame=1514", "--set", "duration=2ms", "--set", "warm-up=5ms", "--samples", "1"];
    let summary = json(&[&["sensitivity", text(&file)], &settings[..]].concat());
    let statements = summary["statements"].as_array().unwrap();
    let of_zero = statements.iter().find(|statement| statement["line"] == "LRO-enabled NIC").unwrap();
    let largest = &of_zero["by_factor"][0];
    assert_eq!(of_zero["found"], serde_json::json!([0.0, 0.0]));
    assert_eq!((&largest["factor"], &largest["swing"]), (&"pci-burst-overhead".into(), &1.0.into()));
    assert!(largest["at_ends"][0][1][0].as_f64().unwrap() > 1.0, "{largest}");
}

#[test]
fn a_figure_is_xml_whatever_its_title_has() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let built_in = fs::read_to_string("../../experiments/lro-netfpga-cpu.toml").unwrap();
    let title = "title = \"<a> & \\u0001\\u000b\\u001b\\uffff\\t\u{e9}\"";
    fs::write(&file, built_in.replacen("title = \"Load of the receiving core at line rate\"", title, 1))
        .unwrap();
    let settings = ["--set", "frame=64", "--set", "duration=1ms", "--set", "warm-up=0"];
    printed(&[&["run", text(&file), "--out", text(folder.path())], &settings[..]].concat());
    let svg = fs::read_to_string(folder.path().join("lro-netfpga-cpu.svg")).unwrap();
    assert!(svg.contains("&lt;a&gt; &amp; \u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\t\u{e9} (lro-netfpga"), "{svg}");
}

/// A logarithmic axis has no place for 0, which a model may accept.
#[test]
fn a_figure_says_that_its_axis_does_not_show_0() {
    let folder = tempdir().unwrap();
    let page = folder.path().join("page.html");
    let figures = |pauses: &str| {
        let settings = [&format!("pause={pauses}"), "repetitions=1", "warm-up=1ms", "duration=5ms"];
        let settings = settings.into_iter().flat_map(|setting| ["--set", setting]);
        let run = ["run", "lro-npu-pause", "--out", text(folder.path()), "--html", text(&page)];
        printed(&run.into_iter().chain(settings).collect::<Vec<_>>());
        [folder.path().join("lro-npu-pause.svg"), page.clone()].map(|file| fs::read_to_string(file).unwrap())
    };
    let note = "the next 8 KB (ms); 0 is not shown";
    assert!(figures("0,1ms").iter().all(|figure| figure.contains(note)));
    assert!(figures("1ms").iter().all(|figure| !figure.contains(note)));
}

/// A number that the paper gives as a bound is no value that the line should meet.
#[test]
fn a_figure_draws_a_bound_as_a_triangle_that_points_to_what_it_allows() {
    let folder = tempdir().unwrap();
    let settings = ["--set", "duration=1ms", "--set", "warm-up=0"];
    printed(&[&["run", "lro-netfpga-flows", "--out", text(folder.path())], &settings[..]].concat());
    let svg = fs::read_to_string(folder.path().join("lro-netfpga-flows.svg")).unwrap();
    assert!(svg.contains("the paper: at least this"), "{svg}");
    assert!(svg.contains("the paper: at most this"), "{svg}");
    assert!(!svg.contains("the paper, predicted"), "all of its statements about points are bounds: {svg}");
}
