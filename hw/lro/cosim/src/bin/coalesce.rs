//! `coalesce IN OUT [--flows 1|4|8] [--timer-us N] [--max-bytes N] [--verify]`: runs a capture through the
//! simulated module and writes the packets as pcapng; `--verify` first compares them with the engine's.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nichrome_lro::Config;
use nichrome_lro_cosim::compare::{Input, compare};
use nichrome_lro_cosim::{Model, Rtl, RtlConfig};
use nichrome_port::capture::{self, LinkType, PacketOptions};
use nichrome_wire::Instant;

/// Maximum length of a frame in bytes: the module counts them in 16 bits.
const LONGEST_FRAME: usize = 65_535;
/// `timer_ns` has 32 bits.
const LONGEST_TIMER_US: u64 = u32::MAX as u64 / 1000;

const USAGE: &str = "usage: coalesce IN OUT [--flows 1|4|8] [--timer-us N] [--max-bytes N] [--verify]";

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coalesce: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    paths: Vec<String>,
    flows: usize,
    timer: Duration,
    max_bytes: u32,
    verify: bool,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        paths: Vec::new(),
        flows: 1,
        timer: Duration::from_micros(50),
        max_bytes: 49_152,
        verify: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--flows" => options.flows = value()?.parse()?,
            "--timer-us" => options.timer = timer(value()?.parse()?)?,
            "--max-bytes" => options.max_bytes = value()?.parse()?,
            "--verify" => options.verify = true,
            _ if argument.starts_with("--") => return Err(format!("there is no {argument}; {USAGE}").into()),
            _ => options.paths.push(argument),
        }
    }
    Ok(options)
}

fn timer(us: u64) -> Result<Duration, String> {
    if us > LONGEST_TIMER_US {
        return Err(format!("--timer-us is at most {LONGEST_TIMER_US}"));
    }
    Ok(Duration::from_micros(us))
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let options = options(arguments)?;
    let [input, output] = &options.paths[..] else { return Err(USAGE.into()) };
    let model = Model::ALL.iter().find(|model| model.flows == options.flows);
    let model = model.ok_or_else(|| format!("no model has {} flows: use 1, 4 or 8", options.flows))?;
    let config = Config { max_bytes: options.max_bytes, ..Config::default() };
    config.validate()?;
    let rtl = RtlConfig::new(*model, &config, options.timer);
    let inputs = read(input)?;
    if options.verify {
        let report = compare(&config, rtl, &inputs)?;
        println!("{} frames: packets, order, metadata and counters equal the engine's", report.frames);
    }
    write(output, rtl, &inputs)
}

fn read(path: &str) -> Result<Vec<Input>, Box<dyn Error>> {
    let mut reader = capture::open(Path::new(path))?;
    let (mut data, mut now, mut inputs) = (Vec::new(), Instant::ZERO, Vec::new());
    let mut number = 0;
    while let Some(record) = reader.next(&mut data)? {
        number += 1;
        now = now.max(record.time);
        if record.link_type != LinkType::Ethernet {
            return Err(format!("{path}: the module takes Ethernet frames only").into());
        }
        if data.len() > LONGEST_FRAME {
            let len = data.len();
            return Err(format!("{path}: record {number} has {len} bytes, more than {LONGEST_FRAME}").into());
        }
        if !data.is_empty() {
            inputs.push(Input::Frame(now, data.clone()));
        }
    }
    Ok(inputs)
}

fn write(path: &str, rtl: RtlConfig, inputs: &[Input]) -> Result<(), Box<dyn Error>> {
    let mut module = Rtl::new(rtl);
    let mut writer = capture::create(Path::new(path), "nichrome hw/lro")?;
    let interface = writer.add_interface(LinkType::Ethernet, "lro", 0)?;
    let mut packets = 0;
    for input in inputs {
        if let Input::Frame(now, frame) = input {
            module.send(frame, *now, false);
        }
    }
    module.drain();
    while let Some(packet) = module.packet() {
        writer.write(interface, packet.arrival, None, [&packet.bytes], PacketOptions::default())?;
        packets += 1;
    }
    writer.finish()?;
    let [frames, ..] = module.totals();
    println!("{frames} frames in, {packets} packets out, {} cycles", module.cycles());
    Ok(())
}
