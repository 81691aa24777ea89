//! No allocation in the steady state. Only allocations of the test's own thread count: the test harness has
//! other threads.

use std::rc::Rc;

use crate::common::{Change, data, each_profile, ms, us};
use allocation_counter::measure;
use nichrome_lro::{
    ActiveAck, Coalescer, Config, Frame, Hold, NpuConfig, Output, Packet, ProfileConfig, PshRule,
};
use nichrome_wire::engine::{advance, deliver, deliver_batch, end_batch};
use nichrome_wire::{Engine, Instant, TcpFlags, TcpFrame};

/// Traffic of several flows that takes every path: in order, reordered, lost, repeated, control, corrupt.
fn traffic() -> Vec<Rc<[u8]>> {
    let mut frames = Vec::new();
    let mut add = |frame: TcpFrame| frames.push(Rc::from(frame.build()));
    for burst in (0..600u32).step_by(5) {
        for (port, nth) in (0..5u16).flat_map(|port| (burst..burst + 5).map(move |nth| (port, nth))) {
            let flow = |at: u32| {
                let flow = data(at, 100).timestamps(nth / 10, 1).with(|frame| frame.src_port = port);
                if port == 3 { flow.over_ipv6() } else { flow }
            };
            let at = nth * 100;
            match (nth % 40, port) {
                (7, 0 | 1) => {} // lost
                (11, 1) => add(flow(at - 300)),
                (13, _) => add(flow(at + 100)),
                (14, _) => add(flow(at - 100)),
                (20, 2) => add(flow(at).with(|frame| frame.flags = TcpFlags::SYN)),
                (21, 2) => add(flow(at).flags(TcpFlags::FIN)),
                (23, _) => add(flow(at).flags(TcpFlags::PSH)),
                (24, 4) => add(flow(at).at(0, 0)),
                _ => add(flow(at)),
            }
        }
    }
    let mut corrupt: Vec<u8> = data(0, 100).build();
    corrupt[60] ^= 1;
    frames.extend([Rc::from(corrupt), Rc::from(vec![0; 40])]);
    frames
}

/// The ACKs of a host, as the card sees them.
fn host_frames() -> Vec<Vec<u8>> {
    let ack = |nth: u32| {
        let back = data(0, 0).timestamps(5, 6).with(|frame| {
            std::mem::swap(&mut frame.src_port, &mut frame.dst_port);
            frame.network = nichrome_wire::Network::ipv4([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
            (frame.dst_port, frame.ack.0, frame.window) = (0, 1 + nth * 100, 60_000);
        });
        back.build()
    };
    (0..600).map(ack).collect()
}

/// One pass over the traffic. Reads every output as a driver does, and drops it some outputs later.
struct Driver {
    now: Instant,
    kept: Vec<Output<Rc<[u8]>>>,
    bytes: usize,
}

impl Driver {
    fn pass(&mut self, engine: &mut Coalescer<Rc<[u8]>>, frames: &[Rc<[u8]>], host: &[Vec<u8>]) {
        let Self { now, kept, bytes } = self;
        let mut sink = |_, output: Output<Rc<[u8]>>| {
            *bytes += match &output {
                Output::ToHost(Packet::Frame(frame)) => frame.bytes().len(),
                Output::ToHost(Packet::Aggregate(aggregate)) => {
                    aggregate.header().len() + aggregate.payloads().map(<[u8]>::len).sum::<usize>()
                }
                Output::ToWire(ack) => ack.bytes().len(),
                Output::Dropped(frame, _) => frame.bytes().len(),
            };
            if kept.len() == kept.capacity() {
                kept.clear();
            }
            kept.push(output);
        };
        for (nth, frame) in frames.iter().enumerate() {
            deliver(engine, Frame::new(Rc::clone(frame)), *now, &mut sink);
            if nth % 5 == 0 {
                engine.observe_transmit(&host[nth / 5 % host.len()]);
            }
            if nth % 32 == 0 {
                end_batch(engine, *now, &mut sink);
                *now = *now + us(3);
            }
        }
        *now = *now + ms(5);
        advance(engine, *now, &mut sink);
    }
}

/// The engine exchanges a burst's vector with one of its own, and keeps the memory. The first pass allocates
/// room for outputs.
#[test]
fn nothing_is_allocated_for_bursts_in_the_steady_state() {
    const BURST: usize = 32;
    const OUTPUTS: usize = 4 * BURST * size_of::<Output<Rc<[u8]>>>();
    let (frames, mut profiles) = (traffic(), each_profile(us(200)).to_vec());
    profiles.push(ProfileConfig::Gro(Hold::Batch));
    for profile in profiles {
        let mut engine = Coalescer::new(&Config::default(), &profile).unwrap();
        let (mut burst, mut now) = (Vec::with_capacity(BURST), Instant::ZERO);
        let mut pass = || {
            for frames in frames.chunks(BURST) {
                burst.extend(frames.iter().map(|frame| Frame::new(Rc::clone(frame))));
                deliver_batch(&mut engine, &mut burst, now, &mut |_, output| drop(output));
                now = now + us(3);
            }
        };
        let first = measure(&mut pass);
        assert!(first.bytes_current <= OUTPUTS as i64, "{profile:?}: {first:?}");
        let allocated = measure(pass);
        assert_eq!(allocated.count_total, 0, "{profile:?}: {allocated:?}");
    }
}

#[test]
fn nothing_is_allocated_for_a_batch_of_many_flows_that_comes_in_parts() {
    const FLOWS: u16 = 300;
    let frames = |at: u32| {
        let flows = (0..FLOWS).map(|port| data(at, 100).with(|frame| frame.src_port = port));
        flows.map(|frame| Rc::from(frame.build())).collect::<Vec<Rc<[u8]>>>()
    };
    let rounds: Vec<_> = (0..10).map(|round| [0, 100].map(|at| frames(round * 200 + at))).collect();
    for profile in [ProfileConfig::Gro(Hold::Batch), ProfileConfig::Npu(NpuConfig::default())] {
        let mut engine = Coalescer::new(&Config::default(), &profile).unwrap();
        let (mut burst, mut outputs) = (Vec::with_capacity(FLOWS.into()), Vec::with_capacity(1000));
        let mut now = Instant::ZERO;
        let mut pass = |rounds: &[[Vec<Rc<[u8]>>; 2]]| {
            for parts in rounds {
                for part in parts {
                    burst.extend(part.iter().map(|frame| Frame::new(Rc::clone(frame))));
                    engine.receive_batch(&mut burst, now);
                }
                engine.end_of_batch(now);
                now = now + ms(2);
                advance(&mut engine, now, &mut |_, output| drop(output));
                engine.poll_all(&mut outputs);
                outputs.clear();
            }
        };
        pass(&rounds[..2]);
        let allocated = measure(|| pass(&rounds[2..]));
        assert_eq!(allocated.count_total, 0, "{profile:?}: {allocated:?}");
        assert_eq!(engine.statistics().aggregates, 10 * u64::from(FLOWS));
    }
}

/// Neither in the steady state nor at first: the engine reserves all memory when it is created.
#[test]
fn nothing_is_allocated_from_the_first_frame_on() {
    let npu = NpuConfig { floor: us(200), psh: PshRule::End, ..NpuConfig::default() };
    let mut profiles = each_profile(us(200)).to_vec();
    profiles.push(ProfileConfig::Gro(Hold::Batch));
    profiles.push(ProfileConfig::Npu(NpuConfig { active_ack: ActiveAck::Safe, ..npu }));
    profiles.push(ProfileConfig::Npu(NpuConfig { active_ack: ActiveAck::Paper, ..npu }));
    let (frames, host) = (traffic(), host_frames());
    for profile in profiles {
        for (max_connections, max_aggregates) in [(64, 256), (3, 7)] {
            let config = Config { max_connections, max_aggregates, ..Config::default() };
            let mut engine = Coalescer::new(&config, &profile).unwrap();
            let mut driver = Driver { now: Instant::ZERO, kept: Vec::with_capacity(16), bytes: 0 };
            for pass in ["first", "second"] {
                let allocated = measure(|| driver.pass(&mut engine, &frames, &host));
                assert_eq!(allocated.count_total, 0, "{pass} pass with {profile:?}: {allocated:?}");
            }
            assert!(driver.bytes > 0 && engine.statistics().aggregates > 100, "{:?}", engine.statistics());
        }
    }
}

#[test]
fn an_engine_reserves_what_its_configuration_says() {
    const FRAME: usize = size_of::<Frame<Vec<u8>>>();
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    let mut profiles = each_profile(ms(1)).to_vec();
    profiles.push(ProfileConfig::Npu(npu));
    for (max_connections, max_aggregates, max_segments) in [(1, 1, 2), (1000, 100, 128), (100_000, 4096, 44)]
    {
        let config = Config { max_connections, max_aggregates, max_segments, ..Config::default() };
        for profile in &profiles {
            let mut engine = None;
            let reserved = measure(|| engine = Some(Coalescer::<Vec<u8>>::new(&config, profile).unwrap()));
            let runs = max_aggregates * (760 + FRAME * max_segments);
            let lists = max_aggregates.div_ceil(8) * npu.reorder_segments * (FRAME + 96);
            let lists = if matches!(profile, ProfileConfig::Npu(_)) { lists } else { 0 };
            let said = (500_000 + runs + 250 * max_connections + lists) as i64;
            assert!(
                reserved.bytes_current <= said,
                "{profile:?}: {} of {said} bytes",
                reserved.bytes_current
            );
        }
    }
}
