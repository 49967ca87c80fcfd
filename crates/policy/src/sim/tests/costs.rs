//! What the policy itself costs. Printed, not asserted: wall times belong to a machine.

use std::{hint::black_box, time::Instant};

use narrows_core::{Gauges, Outcome, Policy, Seq};

use super::*;
use crate::{
    probe::Probe,
    sim::data,
    solve::{Times, solve},
};

fn per_call_ns(calls: u32, mut call: impl FnMut(u32)) -> f64 {
    let best = |call: &mut dyn FnMut(u32)| {
        let start = Instant::now();
        (0..calls).for_each(call);
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..5).map(|_| best(&mut call)).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints times; `cargo test --release -p narrows-policy costs -- --ignored --nocapture`"]
fn costs() {
    let offers = offers();
    for (kind, stride) in SHAPES {
        let bytes = data::bytes(kind, stride, 8 << 20, 1);
        let mut probe = Probe::default();
        let chunks: Vec<&[u8]> = bytes.chunks(256 << 10).collect();
        let look = per_call_ns(2000, |i| {
            black_box(probe.look(chunks[i as usize % chunks.len()]).map(|features| features.class()));
        });
        let warm = per_call_ns(2000, |_| {
            black_box(probe.look(chunks[0]).map(|features| features.class()));
        });
        println!("look {kind:?}/{stride}: {look:.0} ns, {warm:.0} ns in cache");
    }
    let rows: Vec<Vec<Times>> = SHAPES
        .iter()
        .map(|&(kind, stride)| {
            let scene = Scene::new(vec![truth(&offers, kind, stride, 1, 1.0)], 1000.0, 2);
            scene.times(0, &offers, 0.0, 256 << 10)
        })
        .collect();
    for count in [1, 3, 8] {
        let classes: Vec<(f32, &[Times])> = rows[..count].iter().map(|row| (1.0, row.as_slice())).collect();
        let one = per_call_ns(500, |_| {
            black_box(solve(black_box(&classes)));
        });
        println!("solve {count} classes: {one:.0} ns");
    }
    for (name, kind, rate) in [("noise on loopback", Kind::Random, 3.5), ("text at 1 Gbit/s", Kind::Text, 0.125)] {
        let data = truth(&offers, kind, 1, 1, 0.0);
        let mut policy = Adaptive::new(offers.clone(), Config::default());
        let mut gauges = Gauges { workers: 2, ..Gauges::default() };
        let mut spent = [0.0; 2];
        let calls = 40_000_usize;
        for call in 0..calls {
            let start = (call * 4096 * 3) % ((1 << 20) + 4096);
            let before = Instant::now();
            let decision = policy.decide(&data.bytes[start..start + (256 << 10)], &gauges);
            spent[0] += before.elapsed().as_nanos() as f64;
            let index = offers.iter().position(|offer| offer.candidate == decision.candidate).expect("an offer");
            let (size, pack) = (data.costs[index].size.min(1.0), data.costs[index].pack);
            let outcome = Outcome {
                seq: Seq(call as u64),
                candidate: decision.candidate,
                ticket: decision.ticket,
                raw_len: 256 << 10,
                packed_len: (size * 262_144.0) as u32,
                cpu_ns: (pack * 262_144.0) as u64,
                wall_ns: (pack * 262_144.0) as u64,
                audition: false,
            };
            let before = Instant::now();
            policy.learn(&outcome);
            spent[1] += before.elapsed().as_nanos() as f64;
            let wire_ns = (f64::from(outcome.packed_len) / rate) as u64;
            gauges.now_ns += wire_ns;
            gauges.sent_bytes += u64::from(outcome.packed_len);
            gauges.sending_ns += wire_ns;
            gauges.queued_bytes = 1 << 20;
        }
        println!("{name}: decide {:.0} ns, learn {:.0} ns", spent[0] / calls as f64, spent[1] / calls as f64);
    }
}
