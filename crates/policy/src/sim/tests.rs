//! What the promise asks, on simulated links. Every failure prints its seed.

use narrows_core::CodecId;

use crate::{
    adaptive::{Adaptive, Config},
    offers::{Offer, default_offers},
    prior::Kind,
    sim::{
        data::{Random, SHAPES},
        engine::Run,
        scene::{Limits, Scene, Truth, truth},
    },
    simple::Fixed,
};

fn offers() -> Vec<Offer> {
    let names = [
        "raw",
        "lz4",
        "zstd",
        "deflate",
        "shuffle2-lz4",
        "shuffle2-zstd",
        "shuffle4-lz4",
        "shuffle4-zstd",
        "shuffle8-lz4",
        "shuffle8-zstd",
        "delta4-zstd",
        "delta8-zstd",
    ];
    default_offers(|name| names.iter().position(|n| *n == name).map(|id| CodecId(id as u8)), 4 << 20)
}

/// How a run compares: throughput over that of the bound, of the best fixed choice, of raw.
#[derive(Debug, Clone, Copy)]
struct Score {
    bound: f64,
    fixed: f64,
    raw: f64,
}

/// Runs the adaptive policy until `end_ns` and scores what came after 50 chunks and 0.2 s.
fn score(scene: &Scene, offers: &[Offer], config: Config, end_ns: f64) -> (Score, Limits, String) {
    let mut policy = Adaptive::new(offers.to_vec(), config);
    let mut run = Run::new(scene, offers);
    run.until(end_ns, &mut policy);
    let start = run.trips[50.min(run.trips.len() - 1)].delivered_ns.max(2e8);
    let reached = run.throughput(start, end_ns);
    let len = run.trips[run.trips.len() - 1].raw_len as usize;
    let limits = scene.limits(offers, 0.0, len);
    let mut used: Vec<(usize, usize)> = Vec::new();
    for trip in run.trips.iter().skip(50) {
        match used.iter_mut().find(|(index, _)| *index == trip.index) {
            Some((_, count)) => *count += 1,
            None => used.push((trip.index, 1)),
        }
    }
    used.sort_by_key(|(_, count)| usize::MAX - count);
    let name = |index: usize| format!("{}:{}{}", offers[index].name, offers[index].candidate.level, if offers[index].candidate.history_len > 0 { "h" } else { "" });
    let used: Vec<String> = used.iter().take(4).map(|(index, count)| format!("{} {}%", name(*index), 100 * count / run.trips.len())).collect();
    let note = format!(
        "best {} | used {} | rate {:.2} w {:.2?}",
        name(limits.best),
        used.join(", "),
        policy.rate_bytes_per_s() / 1e9 / Scene::step(&scene.link, end_ns),
        policy.weights(),
    );
    let of = |limit: f32| reached * f64::from(limit);
    (Score { bound: of(limits.bound), fixed: of(limits.fixed), raw: of(limits.raw) }, limits, note)
}

/// A scene by its seed. In a `strange` one data cost what the priors do not foresee: machines three times slower or
/// faster, and half the sorts look like one kind and cost like another.
fn random_scene(seed: u64, strange: bool, offers: &[Offer]) -> (Scene, String) {
    let mut random = Random::new(seed);
    let shapes = 1 + random.below(4);
    let mut names = String::new();
    let truths: Vec<Truth> = (0..shapes)
        .map(|sort| {
            let (kind, stride) = SHAPES[random.below(SHAPES.len())];
            let mut data = truth(offers, kind, stride, seed * 16 + sort as u64, if strange { 2.5 } else { 1.0 });
            let mut looks = kind;
            if strange && random.below(2) == 0 {
                let (kind, stride) = SHAPES[random.below(SHAPES.len())];
                looks = kind;
                data.bytes = truth(offers, kind, stride, 1, 0.0).bytes;
            }
            names += &if looks == kind { format!("{kind:?} ") } else { format!("{kind:?}-as-{looks:?} ") };
            data
        })
        .collect();
    let mbit = 10.0 * 1000.0_f64.powf(random.unit());
    let mut scene = Scene::new(truths, mbit, [1, 2, 4][random.below(3)]);
    // No shorter than a chunk: the simulator takes a chunk to be all of one sort.
    let stretch = (1 << (18 + random.below(5))).max(if mbit < 410.0 { 1 << 20 } else { 0 });
    scene.stretches.iter_mut().for_each(|(len, _)| *len = stretch);
    scene.kernel_bytes = [64e3, 256e3, 1e6][random.below(3)];
    scene.noise = 0.02 + 0.08 * random.unit();
    scene.seed = seed;
    let about = format!("n={} {mbit:.0} Mbit/s {} KiB of each {names}", scene.workers, stretch >> 10);
    (scene, about)
}

/// Long enough for a few thousand chunks on fast links, a hundred on slow ones.
fn span_ns(scene: &Scene) -> f64 {
    let mbit = scene.link[0].1 * 8000.0;
    (1e12 / mbit * 2.5).clamp(1.2e9, 30e9)
}

#[test]
fn fixed_policies_reach_what_the_bound_says_of_them() {
    let offers = offers();
    for (mbit, workers) in [(100.0, 1), (1000.0, 2), (10000.0, 4)] {
        let scene = Scene::new(vec![truth(&offers, Kind::Text, 1, 1, 0.0)], mbit, workers);
        let limits = scene.limits(&offers, 0.0, 256 << 10);
        for (index, expected) in [(0, limits.raw), (limits.best, limits.fixed)] {
            let mut run = Run::new(&scene, &offers);
            run.until(4e9, &mut Fixed::new(offers[index].candidate));
            let reached = run.throughput(1e9, 4e9) * f64::from(expected);
            assert!((0.97..1.02).contains(&reached), "{mbit} {workers} {} {reached}", offers[index].name);
        }
    }
}

/// Prints throughput over the bound in force, in spans of `step_ns`.
fn trace(title: &str, scene: &Scene, offers: &[Offer], config: Config, end_ns: f64, step_ns: f64) {
    let mut policy = Adaptive::new(offers.to_vec(), config);
    let mut run = Run::new(scene, offers);
    println!("== {title}");
    let mut now = 0.0;
    while now < end_ns {
        let first = run.trips.len();
        run.until(now + step_ns, &mut policy);
        let bound = scene.limits(offers, now + 1.0, 256 << 10);
        let mut used: Vec<(String, u32)> = Vec::new();
        for trip in &run.trips[first..] {
            let name = format!("{}:{}", offers[trip.index].name, offers[trip.index].candidate.level);
            match used.iter_mut().find(|(other, _)| *other == name) {
                Some((_, count)) => *count += 1,
                None => used.push((name, 1)),
            }
        }
        used.sort_by_key(|(_, count)| u32::MAX - count);
        used.truncate(4);
        let tp = run.throughput(now, now + step_ns);
        println!("{:6.0} ms {:7.1} MB/s bound {:.3} raw {:.3} rate {:.2} w {:.2?} {}", (now + step_ns) / 1e6, tp * 1e3,
            tp * f64::from(bound.bound), tp * f64::from(bound.raw),
            policy.rate_bytes_per_s() / 1e9 / Scene::step(&scene.link, now + 1.0), policy.weights(),
            used.iter().map(|(n, c)| format!("{n} {c}")).collect::<Vec<_>>().join(", "));
        now += step_ns;
    }
}

#[test]
#[ignore = "prints traces to look at"]
fn traces() {
    let offers = offers();
    let text = || vec![truth(&offers, Kind::Text, 1, 1, 1.0)];
    let mut scene = Scene::new(text(), 1000.0, 2);
    scene.link = vec![(0, 0.125), (2_000_000_000, 0.0025), (6_000_000_000, 0.125)];
    trace("link 1000 -> 20 -> 1000", &scene, &offers, Config::default(), 8e9, 2.5e8);
    let mut scene = Scene::new(text(), 1000.0, 2);
    scene.peer_slow = vec![(0, 1.0), (1_000_000_000, 8.0), (3_000_000_000, 1.0)];
    trace("receiver x8 slow", &scene, &offers, Config::default(), 4e9, 1.25e8);
    let mut scene = Scene::new(text(), 1000.0, 2);
    scene.truths.push(truth(&offers, Kind::Random, 1, 2, 1.0));
    scene.stretches = vec![(100 << 20, 1), (200 << 20, 0)];
    trace("random -> text -> random", &scene, &offers, Config::default(), 4e9, 1.25e8);
    for mbit in [10000.0, 30000.0] {
        let mut scene = Scene::new(text(), mbit, 2);
        scene.shared = true;
        scene.kernel_bytes = 2e6;
        trace(&format!("shared cores {mbit}"), &scene, &offers, Config::default(), 1e9, 1.25e8);
        trace(&format!("shared cores {mbit}, told"), &scene, &offers, Config { shared_host: true, ..Config::default() }, 1e9, 1.25e8);
    }
    let mut scene = Scene::new(text(), 10.0, 2);
    scene.kernel_bytes = 4e6;
    trace("kernel 4 MB on 10 Mbit/s", &scene, &offers, Config::default(), 20e9, 1e9);
    let mut scene = Scene::new(text(), 1000.0, 2);
    scene.source = 0.02;
    trace("source 20 MB/s", &scene, &offers, Config::default(), 2e9, 2.5e8);
    let mut scene = Scene::new(text(), 10000.0, 4);
    scene.cores = 1;
    trace("4 workers on 1 core", &scene, &offers, Config::default(), 1e9, 1.25e8);
    for (mbit, end) in [(10.0, 4e9), (10000.0, 2e8), (25000.0, 2e8)] {
        trace(&format!("start {mbit}"), &Scene::new(text(), mbit, 2), &offers, Config::default(), end, end / 10.0);
    }
}

#[test]
fn random_scenes() {
    let offers = offers();
    let clock = std::time::Instant::now();
    let count = std::env::var("NARROWS_SIM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let mut scores = Vec::new();
    for seed in 0..count {
        let (scene, about) = random_scene(seed, std::env::var_os("STRANGE").is_some(), &offers);
        let (score, _, note) = score(&scene, &offers, Config::default(), span_ns(&scene));
        scores.push((score, format!("seed {seed} {about}| {note}")));
    }
    for (what, of) in [("bound", (|s| s.bound) as fn(&Score) -> f64), ("fixed", |s| s.fixed), ("raw", |s| s.raw)] {
        scores.sort_by(|a, b| of(&a.0).total_cmp(&of(&b.0)));
        let at = |share: f64| of(&scores[(share * (scores.len() - 1) as f64) as usize].0);
        println!("{what}: min {:.3} 1% {:.3} 5% {:.3} 10% {:.3} 50% {:.3} max {:.3}", at(0.0), at(0.01), at(0.05), at(0.1), at(0.5), at(1.0));
        for (score, about) in scores.iter().take(7) {
            println!("   {:.3} {:.3} {:.3} {about}", score.bound, score.fixed, score.raw);
        }
    }
    println!("{:?}", clock.elapsed());
}

#[test]
#[ignore = "debug"]
fn debug_one() {
    let offers = offers();
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    let (scene, about) = random_scene(seed, std::env::var_os("STRANGE").is_some(), &offers);
    println!("{about}");
    let mut policy = Adaptive::new(offers.to_vec(), Config::default());
    let mut run = Run::new(&scene, &offers);
    run.until(span_ns(&scene), &mut policy);
    for trip in run.trips.iter().take(60) {
        println!("{:.1} {}:{} {} sort {} {}", trip.decided_ns/1e6, offers[trip.index].name, offers[trip.index].candidate.level, trip.raw_len, trip.sort, trip.why);
    }
    policy.dump(&scene.truths.iter().map(|t| t.costs.clone()).collect::<Vec<_>>());
}
