//! What the promise asks, on simulated links. Every failure prints its seed.

use crate::{
    adaptive::Adaptive,
    config::Config,
    offers::Offer,
    prior::PriorKind,
    sim::{
        data::SHAPES,
        engine::Run,
        scene::{Limits, Scene, truth},
        suite::{MANY_WORKERS_NS, label, many_workers, offers, random_scene, span_ns},
    },
    simple::Fixed,
};

mod steps;

/// Raw bytes per nanosecond that `index` reaches as a fixed choice in this pipeline.
fn simulated(
    scene: &Scene,
    offers: &[Offer],
    index: usize,
    len: usize,
    start: f64,
    end: f64,
) -> f64 {
    let mut run = Run::new(scene, offers);
    run.until(
        end,
        &mut Fixed {
            chunk_len: len,
            ..Fixed::new(offers[index].candidate)
        },
    );
    run.throughput(start, end)
}

/// How a run compares: throughput over that of the bound, of the best fixed choice, of raw.
#[derive(Debug, Clone, Copy)]
struct Score {
    bound: f64,
    fixed: f64,
    raw: f64,
}

/// Runs the adaptive policy until `end_ns` and scores what came after 50 chunks and 0.2 s. The fixed choice and raw are
/// what the bound says of them, with no loss in their pipelines; where that is not reached on data that change, the
/// best of them are simulated, because no pipeline is deep enough to level out megabytes of each sort.
fn score(scene: &Scene, offers: &[Offer], config: Config, end_ns: f64) -> (Score, Limits, String) {
    let mut policy = Adaptive::new(offers.to_vec(), config);
    let mut run = Run::new(scene, offers);
    run.until(end_ns, &mut policy);
    let start = run.trips[50.min(run.trips.len() - 1)].delivered_ns.max(2e8);
    let reached = run.throughput(start, end_ns);
    let len = run.trips[run.trips.len() - 1].raw_len as usize;
    let mut limits = scene.limits(offers, 0.0, len);
    if scene.truths.len() > 1 && reached * f64::from(limits.fixed) < 0.98 {
        let fixed = |index| 1.0 / simulated(scene, offers, index, len, start, end_ns) as f32;
        limits.fixed = (0..offers.len()).map(fixed).fold(f32::INFINITY, f32::min);
    }
    let note = format!(
        "best {} | used {} | rate {:.2} weights {:.2?}",
        label(&offers[limits.best]),
        used(&run.trips[50.min(run.trips.len() - 1)..], offers),
        policy.rate_bytes_per_s() / 1e9 / Scene::step(&scene.link, end_ns),
        policy.weights(),
    );
    let of = |limit: f32| reached * f64::from(limit);
    (
        Score {
            bound: of(limits.bound),
            fixed: of(limits.fixed),
            raw: of(limits.raw),
        },
        limits,
        note,
    )
}

/// The four candidates used most.
fn used(trips: &[crate::sim::engine::Trip], offers: &[Offer]) -> String {
    let mut counts = vec![(0, 0); offers.len()];
    counts
        .iter_mut()
        .enumerate()
        .for_each(|(index, count)| count.1 = index);
    trips.iter().for_each(|trip| counts[trip.index].0 += 1);
    counts.sort_by(|a, b| b.cmp(a));
    let share = |&(count, index): &(usize, usize)| {
        format!(
            "{} {}%",
            label(&offers[index]),
            100 * count / trips.len().max(1)
        )
    };
    counts
        .iter()
        .take(4)
        .filter(|(count, _)| *count > 0)
        .map(share)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Scores of many seeds, worst first, and their descriptions. `NARROWS_SIM_CASES` asks for more of them,
/// `NARROWS_SIM_FIRST` for others: what was mended on some is to hold on those.
fn scores(strange: bool) -> Vec<(Score, String)> {
    let offers = offers();
    let scores = seeds(1)
        .map(|seed| {
            let (scene, about) = random_scene(seed, strange, &offers);
            let (score, _, note) = score(&scene, &offers, Config::default(), span_ns(&scene));
            (score, format!("seed {seed} {about}| {note}"))
        })
        .collect();
    listed(scores)
}

/// The seeds of a test. Where a scene takes `times` as long as others, there are so many times fewer.
fn seeds(times: u64) -> std::ops::Range<u64> {
    let set = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(default)
    };
    let first = set("NARROWS_SIM_FIRST", 0);
    first..first + (set("NARROWS_SIM_CASES", 600) / times).max(1)
}

/// Prints how the scores are spread, and the worst.
fn listed(mut scores: Vec<(Score, String)>) -> Vec<(Score, String)> {
    // Every seed's scores, bit for bit, to compare two builds.
    if std::env::var_os("NARROWS_SIM_ALL").is_some() {
        for (score, about) in &scores {
            let Score { bound, fixed, raw } = score;
            println!("all {bound:?} {fixed:?} {raw:?} {about}");
        }
    }
    for (what, of) in [
        ("bound", (|s| s.bound) as fn(&Score) -> f64),
        ("fixed", |s| s.fixed),
        ("raw", |s| s.raw),
    ] {
        scores.sort_by(|a, b| of(&a.0).total_cmp(&of(&b.0)));
        let at = |share: f64| of(&scores[(share * (scores.len() - 1) as f64) as usize].0);
        println!(
            "{what}: min {:.3} 1% {:.3} 5% {:.3} 10% {:.3} 50% {:.3}",
            at(0.0),
            at(0.01),
            at(0.05),
            at(0.1),
            at(0.5)
        );
        let below = |least: f64| scores.iter().filter(|(score, _)| of(score) < least).count();
        println!(
            "   of {}: {} below 0.97, {} below 0.95, {} below 0.90",
            scores.len(),
            below(0.97),
            below(0.95),
            below(0.9)
        );
        for (score, about) in scores.iter().take(5) {
            println!(
                "   {:.3} {:.3} {:.3} {about}",
                score.bound, score.fixed, score.raw
            );
        }
    }
    scores
}

/// A line for the reliability sheet.
fn tell_below_raw(scores: &[(Score, String)]) {
    let below = scores.iter().filter(|(score, _)| score.raw < 0.97).count();
    println!("{below} below raw of {} scenes", scores.len());
}

/// Fails with the offenders where more than `share` of the scores lie below `least`.
fn at_least(scores: &[(Score, String)], of: fn(&Score) -> f64, least: f64, share: f64) {
    let below: Vec<_> = scores
        .iter()
        .filter(|(score, _)| of(score) < least)
        .collect();
    assert!(
        below.len() as f64 <= share * scores.len() as f64,
        "below {least}: {below:#?}"
    );
}

#[test]
fn fixed_policies_reach_what_the_bound_says_of_them() {
    let offers = offers();
    for (mbit, workers) in [(100.0, 1), (1000.0, 2), (10000.0, 4)] {
        let scene = Scene::new(
            vec![truth(&offers, PriorKind::Text, 1, 1, 0.0)],
            mbit,
            workers,
        );
        let limits = scene.limits(&offers, 0.0, 256 << 10);
        for (index, expected) in [(0, limits.raw), (limits.best, limits.fixed)] {
            let mut run = Run::new(&scene, &offers);
            run.until(4e9, &mut Fixed::new(offers[index].candidate));
            let reached = run.throughput(1e9, 4e9) * f64::from(expected);
            assert!(
                (0.97..1.02).contains(&reached),
                "{mbit} {workers} {} {reached}",
                offers[index].name
            );
        }
    }
}

// Goal: the promise. Method: links, machines, data and their costs by seed, costs scattered around the priors.
#[test]
fn the_promise_holds_on_random_scenes() {
    let scores = scores(false);
    tell_below_raw(&scores);
    at_least(&scores, |s| s.raw, 0.97, 0.0);
    at_least(&scores, |s| s.fixed, 0.97, 0.03);
    // Known misses, a few in a thousand, not yet explained to the end: above 4 Gbit/s with one thread a side, sparse
    // data or runs of 4 MiB of each sort. See them with NARROWS_SIM_CASES=3000.
    at_least(&scores, |s| s.fixed, 0.90, 0.005);
    // The bound knows every cost from the start. Of 3000 scenes 3.5 % stay below 0.95 of it, most of them where several
    // sorts share a link above 2 Gbit/s, and are above the best fixed choice even so.
    at_least(&scores, |s| s.bound, 0.95, 0.04);
}

// Goal: what the priors get wrong costs little, and never against raw.
#[test]
fn wrong_priors_cost_little() {
    let scores = scores(true);
    tell_below_raw(&scores);
    // Not so yet on more scenes than a test run has: with NARROWS_SIM_CASES=5000 and NARROWS_SIM_FIRST=9100000 seven lie
    // below, all above 2 Gbit/s, where the probe takes one sort for another: the worst gets 0.16 of what raw would get.
    at_least(&scores, |s| s.raw, 0.97, 0.0);
    // What packs with history cannot be tried on a slice, and here costs what it will, whatever its neighbours do.
    at_least(&scores, |s| s.fixed, 0.97, 0.19);
    // The worst hold sorts that the probe puts into one class and that cost differently: their mean fits neither.
    at_least(&scores, |s| s.fixed, 0.75, 0.01);
}

// Goal: sixteen processors at each end lose nothing beside the best fixed setting. Method: the same scenes at 10 and 40
// Gbit/s.
#[test]
fn many_workers_reach_the_best_fixed_setting() {
    let offers = offers();
    for mbit in [10_000.0, 40_000.0] {
        let scores = seeds(30)
            .map(|seed| {
                let (mut scene, about) = random_scene(seed, false, &offers);
                many_workers(&mut scene, 16, mbit);
                let (score, _, note) = score(&scene, &offers, Config::default(), MANY_WORKERS_NS);
                (score, format!("seed {seed} {mbit} Mbit/s: {about}| {note}"))
            })
            .collect();
        let scores = listed(scores);
        at_least(&scores, |s| s.fixed, 0.95, 0.1);
    }
}
