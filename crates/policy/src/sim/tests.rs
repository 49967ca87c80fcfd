//! What the promise asks, on simulated links. Every failure prints its seed.

use narrows_core::CodecId;

use crate::{
    adaptive::{Adaptive, Config},
    offers::{Offer, default_offers},
    prior::Kind,
    sim::{engine::Run, scene::{Scene, Truth, truth}},
    simple::{Fixed, NonePolicy},
};

pub(super) fn offers() -> Vec<Offer> {
    let names = ["raw", "lz4", "zstd", "deflate", "shuffle2-lz4", "shuffle2-zstd", "shuffle4-lz4", "shuffle4-zstd",
        "shuffle8-lz4", "shuffle8-zstd", "delta4-zstd", "delta8-zstd"];
    default_offers(|name| names.iter().position(|n| *n == name).map(|id| CodecId(id as u8)), 4 << 20)
}

#[test]
fn fixed_policies_reach_what_the_bound_says_of_them() {
    let offers = offers();
    for (mbit, workers) in [(100.0, 1), (1000.0, 2), (10000.0, 4)] {
        let truths = vec![truth(&offers, Kind::Text, 1, 1, 0.0)];
        let scene = Scene::new(truths, mbit, workers);
        let limits = scene.limits(&offers, 0.0, 256 << 10);
        for (index, expected) in [(0, limits.raw), (limits.best, limits.fixed)] {
            let mut run = Run::new(&scene, &offers);
            run.until(4e9, &mut Fixed::new(offers[index].candidate));
            let reached = run.throughput(1e9, 4e9) * f64::from(expected);
            assert!((0.97..1.02).contains(&reached), "{mbit} {workers} {} {reached}", offers[index].name);
        }
        let _ = NonePolicy::default();
    }
}

#[test]
fn table() {
    let offers = offers();
    let mixes: [(&str, Vec<(Kind, u8)>); 7] = [
        ("text", vec![(Kind::Text, 1)]),
        ("binary", vec![(Kind::Binary, 1)]),
        ("log", vec![(Kind::Log, 1)]),
        ("field", vec![(Kind::Field, 4)]),
        ("random", vec![(Kind::Random, 1)]),
        ("mix2", vec![(Kind::Text, 1), (Kind::Random, 1)]),
        ("mix5", vec![(Kind::Text, 1), (Kind::Binary, 1), (Kind::Random, 1), (Kind::Field, 4), (Kind::Log, 1)]),
    ];
    let clock = std::time::Instant::now();
    for (name, shapes) in &mixes {
        for workers in [1, 2, 4] {
            for mbit in [10.0, 100.0, 1000.0, 2500.0, 10000.0] {
                let truths: Vec<Truth> = shapes.iter().enumerate().map(|(i, &(k, s))| truth(&offers, k, s, i as u64 + 1, 1.0)).collect();
                let scene = Scene::new(truths, mbit, workers);
                let slow = mbit < 400.0;
                let limits = scene.limits(&offers, 0.0, if slow { 1 << 20 } else { 256 << 10 });
                let end = if mbit <= 10.0 { 60e9 } else if mbit <= 100.0 { 20e9 } else { 2e9 };
                let mut policy = Adaptive::new(offers.clone(), Config::default());
                let mut run = Run::new(&scene, &offers);
                run.until(end, &mut policy);
                let start = run.trips[50.min(run.trips.len() - 1)].delivered_ns.max(2e8);
                let reached = run.throughput(start, end);
                println!(
                    "{name:7} n={workers} {mbit:6} bound {:.3} fixed {:.3} raw {:.3} | best {}:{} chunks {} rate {:.0}% aud {:.1}%",
                    reached * f64::from(limits.bound), reached * f64::from(limits.fixed), reached * f64::from(limits.raw),
                    offers[limits.best].name, offers[limits.best].candidate.level,
                    run.trips.len(), policy.rate_bytes_per_s() / mbit * 8e-6 * 100.0,
                    100.0 * run.auditioned_ns / end / f64::from(workers),
                );
            }
        }
    }
    println!("{:?}", clock.elapsed());
}
