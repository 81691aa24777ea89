//! Builds the models: Verilator's C++ for each set of parameters, behind one small C interface.
//! `NICHROME_RTL` is the folder of the RTL, `NICHROME_RTL_MODELS` the list of models to build (`64_1,64_4`;
//! all by default), `NICHROME_RTL_OPT` the compiler's optimization level, 2 by default.
//! `NICHROME_RTL_NETLIST` is a folder with a netlist of the only model to build, and with the definitions of
//! its cells. With `NICHROME_RTL_COVERAGE`, a folder, the models write coverage counts to it. With
//! `NICHROME_RTL_UNMADE` no model is built, which is enough for lints: they do not link.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Word width, flows and pages of each model; `src/model.rs` has the same list. No configuration of the tests
/// uses up 512 KB; the last model is for tests in which the pages run out.
const MODELS: [(u32, u32, u32); 9] = [
    (64, 1, 4096),
    (64, 4, 4096),
    (64, 8, 4096),
    (128, 1, 4096),
    (128, 4, 4096),
    (128, 8, 4096),
    (256, 1, 4096),
    (256, 4, 4096),
    (64, 2, 128),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let rtl = env::var_os("NICHROME_RTL").map_or_else(|| PathBuf::from("../rtl"), PathBuf::from);
    println!("cargo:rerun-if-env-changed=NICHROME_RTL");
    println!("cargo:rerun-if-env-changed=NICHROME_RTL_COVERAGE");
    println!("cargo:rerun-if-env-changed=NICHROME_RTL_NETLIST");
    println!("cargo:rerun-if-changed={}", rtl.display());
    println!("cargo:rerun-if-changed=src/shim.cpp");
    println!("cargo:rerun-if-env-changed=NICHROME_RTL_MODELS");
    println!("cargo:rerun-if-env-changed=NICHROME_RTL_OPT");
    println!("cargo:rerun-if-env-changed=NICHROME_RTL_UNMADE");
    let models = wanted_models();
    if env::var_os("NICHROME_RTL_UNMADE").is_some() {
        return;
    }
    let include = verilator_include();
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for (data_w, flows, pages) in models {
        let prefix = format!("Vlro_{data_w}_{flows}");
        let folder = out.join(&prefix);
        verilate(&rtl, &folder, &prefix, [data_w, flows, pages]);
        let (slow_parts, mut parts) = parts(&folder);
        parts.push(fs::canonicalize("src/shim.cpp").expect("the shim is there"));
        let defines = [
            ("MODEL", prefix.clone()),
            ("MODEL_HEADER", format!("\"{}\"", folder.join(format!("{prefix}.h")).display())),
            ("MODEL_SYMBOLS", format!("\"{}\"", folder.join(format!("{prefix}__Syms.h")).display())),
            ("DATA_W", data_w.to_string()),
            ("FLOWS", flows.to_string()),
        ];
        fast.extend(units(&out, &prefix, &defines, parts));
        slow.extend(units(&out, &format!("{prefix}_slow"), &[], slow_parts));
    }
    let runtime_parts =
        ["verilated.cpp", "verilated_threads.cpp", "verilated_cov.cpp"].map(|part| include.join(part));
    let runtime_parts = &runtime_parts[..if has_coverage() { 3 } else { 2 }];
    let runtime = units(&out, "runtime", &[], runtime_parts.to_vec());
    let level =
        env::var("NICHROME_RTL_OPT").map_or(2, |text| text.parse().expect("NICHROME_RTL_OPT is a number"));
    // The files that Verilator calls slow run once, and take the compiler longest.
    for (name, level, units) in [("slow", 0, slow), ("models", level, fast), ("verilated", 1, runtime)] {
        let mut build = cc::Build::new();
        // Debug information would take the compiler ten times as long.
        build.cpp(true).std("c++17").opt_level(level).debug(false).warnings(false).include(&include);
        if has_coverage() {
            build.define("VM_COVERAGE", "1");
        }
        build.files(units).compile(name);
    }
    println!("cargo:rustc-link-lib=pthread");
}

/// Returns the models of `NICHROME_RTL_MODELS`, and sets a `cfg` of the crate for each.
fn wanted_models() -> Vec<(u32, u32, u32)> {
    let wanted = env::var("NICHROME_RTL_MODELS").unwrap_or_default();
    let mut models = MODELS.to_vec();
    models.retain(|(data_w, flows, _)| {
        let name = format!("{data_w}_{flows}");
        println!("cargo:rustc-check-cfg=cfg(model_{name})");
        let is_wanted = wanted.is_empty() || wanted.split(',').any(|model| model == name);
        if is_wanted {
            println!("cargo:rustc-cfg=model_{name}");
        }
        is_wanted
    });
    models
}

fn has_coverage() -> bool {
    env::var_os("NICHROME_RTL_COVERAGE").is_some()
}

/// Returns the folder of the headers and sources that the models include.
fn verilator_include() -> PathBuf {
    let output = Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]).output();
    let output = output.expect("the models need verilator: install the Debian package");
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("include")
}

/// Translates the RTL, always to an empty folder: old files there would be compiled, too.
fn verilate(rtl: &Path, folder: &Path, prefix: &str, [data_w, flows, pages]: [u32; 3]) {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("the folder of the model is ours");
    }
    let mut verilator = Command::new("verilator");
    verilator.args(["--cc", "-O3", "--x-assign", "unique", "--x-initial", "unique", "-Wno-fatal"]);
    verilator.args(["--top-module", "lro", "--prefix", prefix, "--Mdir"]).arg(folder);
    if has_coverage() {
        verilator.args(["--coverage-line", "--coverage-toggle", "--coverage-max-width", "1024"]);
        println!("cargo:rerun-if-changed=../coverage/lro_cover.sv");
    }
    match env::var_os("NICHROME_RTL_NETLIST").map(PathBuf::from) {
        Some(netlist) => {
            println!("cargo:rerun-if-changed={}", netlist.display());
            verilator.arg(format!("+incdir+{}", netlist.display())).arg("-y").arg(rtl);
            verilator.arg(netlist.join("cells_sim_ecp5.v")).arg(netlist.join("lro.v"));
        }
        None => {
            verilator
                .arg(format!("-GDATA_W={data_w}"))
                .arg(format!("-GFLOWS={flows}"))
                .arg(format!("-GPAGES={pages}"));
            for package in ["lro_pkg", "lro_types_pkg", "lro_parser_pkg"] {
                verilator.arg(rtl.join(format!("{package}.sv")));
            }
            verilator.arg("-y").arg(rtl).arg(rtl.join("lro.sv"));
            if has_coverage() {
                verilator.arg("../coverage/lro_cover.sv");
            }
        }
    }
    let status = verilator.status().expect("the models need verilator: install the Debian package");
    assert!(status.success(), "verilator does not accept the RTL");
}

/// Returns the files that Verilator has written for a model: those that it calls slow, and the others.
fn parts(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .expect("verilator has filled the folder")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cpp"))
        .collect();
    sources.sort();
    sources.into_iter().partition(|path| path.to_string_lossy().ends_with("Slow.cpp"))
}

/// Writes files that include the parts: the compiler reads Verilator's headers once for each, which takes it
/// a second. A netlist becomes several files, which are compiled in parallel.
fn units(out: &Path, name: &str, defines: &[(&str, String)], parts: Vec<PathBuf>) -> Vec<PathBuf> {
    const MOST_BYTES: u64 = 1_000_000;
    let defines: String = defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
    let mut units = vec![(0, defines.clone())];
    for part in parts {
        let bytes = fs::metadata(&part).map_or(0, |file| file.len());
        if let Some((sum, _)) = units.last()
            && *sum > 0
            && sum + bytes > MOST_BYTES
        {
            units.push((0, defines.clone()));
        }
        if let Some((sum, text)) = units.last_mut() {
            *sum += bytes;
            *text += &format!("#include \"{}\"\n", part.display());
        }
    }
    let write = |(nth, (_, text)): (usize, (u64, String))| {
        let path = out.join(format!("{name}_{nth}.cpp"));
        fs::write(&path, text).expect("cargo's folder can be written");
        path
    };
    units.into_iter().enumerate().map(write).collect()
}
