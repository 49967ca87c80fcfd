//! Step responses: how soon a change of link, data or receiver is followed, and whether it swings.

use super::*;

/// Throughput in spans of `span_ns` from `from_ns` on.
fn spans(run: &Run, from_ns: f64, span_ns: f64, count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| from_ns + i as f64 * span_ns)
        .map(|from| run.throughput(from, from + span_ns))
        .collect()
}

fn run<'a>(scene: &'a Scene, offers: &'a [Offer], config: Config, end_ns: f64) -> Run<'a> {
    let mut run = Run::new(scene, offers);
    run.until(end_ns, &mut Adaptive::new(offers.to_vec(), config));
    run
}

fn assert_near(found: &[f64], expected: f64, within: f64, what: &str) {
    assert!(
        found.iter().all(|f| *f > (1.0 - within) * expected),
        "{what}: {found:.4?} against {expected:.4}"
    );
}

#[test]
fn a_link_that_slows_and_recovers_is_followed_within_a_second() {
    let offers = offers();
    for seed in 0..8 {
        for workers in [1, 2, 4] {
            let mut scene = Scene::new(
                vec![truth(&offers, PriorKind::Text, 1, seed, 1.0)],
                1000.0,
                workers,
            );
            scene.link = vec![(0, 0.125), (2_000_000_000, 0.0025), (8_000_000_000, 0.125)];
            let run = run(&scene, &offers, Config::default(), 10e9);
            let what = format!("seed {seed} workers {workers}");
            let fast = 1.0 / f64::from(scene.limits(&offers, 0.0, 256 << 10).bound);
            let slow = run.throughput(5e9, 8e9);
            assert_near(&spans(&run, 1e9, 2e8, 5), fast, 0.1, &what);
            // A second here is ten chunks, some of them trials: a little more room.
            assert_near(&spans(&run, 3e9, 1e9, 5), slow, 0.15, &what);
            assert_near(&spans(&run, 9e9, 2e8, 5), fast, 0.1, &what);
            let bound = 1.0 / f64::from(scene.limits(&offers, 3e9, 512 << 10).bound);
            assert!(slow > 0.9 * bound, "{what}: slow {slow} bound {bound}");
        }
    }
}

#[test]
fn data_that_change_are_followed_at_once() {
    let offers = offers();
    for seed in 0..8 {
        let mut scene = Scene::new(
            vec![truth(&offers, PriorKind::Text, 1, seed, 1.0)],
            1000.0,
            2,
        );
        let text = 1.0 / f64::from(scene.limits(&offers, 0.0, 256 << 10).bound);
        scene
            .truths
            .push(truth(&offers, PriorKind::Random, 1, seed, 1.0));
        // A second of noise, half a gigabyte of text, noise again.
        scene.stretches = vec![
            (125_000_000, 1),
            (1_000_000_000, 0),
            (u64::from(u32::MAX), 1),
        ];
        let run = run(&scene, &offers, Config::default(), 6e9);
        let first = run
            .trips
            .iter()
            .find(|trip| trip.sort == 0)
            .expect("text comes")
            .delivered_ns;
        assert_near(&spans(&run, 0.1e9, 2e8, 4), 0.125, 0.03, "noise");
        assert_near(&spans(&run, first + 2e8, 1e8, 10), text, 0.1, "text");
        let last = run
            .trips
            .iter()
            .rev()
            .find(|trip| trip.sort == 0)
            .expect("text came")
            .delivered_ns;
        assert_near(&spans(&run, last + 1e8, 2e8, 4), 0.125, 0.03, "noise again");
    }
}

// A slow receiver must not be taken for a slow link: packing harder would make it slower still.
#[test]
fn a_receiver_that_slows_is_followed_within_a_second() {
    let offers = offers();
    for seed in 0..8 {
        for factor in [4.0, 10.0] {
            let mut scene = Scene::new(
                vec![truth(&offers, PriorKind::Text, 1, seed, 1.0)],
                1000.0,
                2,
            );
            scene.peer_slow = vec![(0, 1.0), (1_000_000_000, factor), (4_000_000_000, 1.0)];
            let run = run(&scene, &offers, Config::default(), 6e9);
            let what = format!("seed {seed} factor {factor}");
            for (from, len) in [(2e9, 10), (5e9, 5)] {
                let bound = 1.0 / f64::from(scene.limits(&offers, from, 256 << 10).bound);
                assert_near(&spans(&run, from, 2e8, len), bound, 0.15, &what);
                let mean = run.throughput(from, from + 2e8 * len as f64);
                assert!(mean > 0.9 * bound, "{what}: {mean} bound {bound}");
            }
        }
    }
}

// Steady worlds: the spread between tenths of a second is the swing of the controller.
// Method: throughput of each tenth of a second beside the mean. At 10 Gbit/s a look at raw, and what is tried after it,
// may fall into one: of 120 runs with other seeds eight have such a tenth.
#[test]
fn nothing_swings() {
    let offers = offers();
    let mut swings = Vec::new();
    for seed in 0..12 {
        for (mbit, workers) in [
            (200.0, 2),
            (1000.0, 1),
            (1000.0, 4),
            (5000.0, 2),
            (10000.0, 4),
        ] {
            let mut scene = Scene::new(
                vec![truth(&offers, PriorKind::Binary, 1, seed, 1.0)],
                mbit,
                workers,
            );
            scene.noise = 0.03;
            let run = run(&scene, &offers, Config::default(), 3e9);
            let mean = run.throughput(1e9, 3e9);
            let span = if mbit < 500.0 { 2.5e8 } else { 1e8 };
            let least = spans(&run, 1e9, span, (2e9 / span) as usize)
                .into_iter()
                .fold(f64::INFINITY, f64::min);
            if least < 0.88 * mean {
                swings.push((seed, mbit, workers, least / mean));
            }
        }
    }
    let is_looked_at = |(_, mbit, ..): &(u64, f64, u32, f64)| *mbit >= 10000.0;
    assert!(swings.iter().all(is_looked_at), "{swings:.3?}");
    assert!(swings.len() <= 4, "{swings:.3?}");
    assert!(swings.iter().all(|swing| swing.3 > 0.78), "{swings:.3?}");
}

#[test]
fn processors_shared_with_the_receiver_or_missing_are_noticed() {
    let offers = offers();
    for seed in 0..6 {
        // On fast links the guard looks at raw now and then, and keeps it where it is nearly as good: the floor before
        // the last percents.
        for (mbit, least) in [
            (300.0, 0.88),
            (1000.0, 0.88),
            (10000.0, 0.86),
            (25000.0, 0.80),
        ] {
            for told in [false, true] {
                let mut scene =
                    Scene::new(vec![truth(&offers, PriorKind::Text, 1, seed, 1.0)], mbit, 2);
                scene.shared = true;
                let config = Config {
                    shared_host: told,
                    ..Config::default()
                };
                let (score, _, note) = score(&scene, &offers, config, 2e9);
                assert!(
                    score.raw > 0.97 && score.bound > least,
                    "seed {seed} {mbit} told {told}: {score:?} {note}"
                );
            }
            let mut scene =
                Scene::new(vec![truth(&offers, PriorKind::Text, 1, seed, 1.0)], mbit, 4);
            scene.cores = 1;
            let (score, _, note) = score(&scene, &offers, Config::default(), 2e9);
            assert!(
                score.raw > 0.97 && score.bound > least,
                "seed {seed} {mbit} one core: {score:?} {note}"
            );
        }
    }
}

#[test]
fn a_slow_source_is_no_reason_to_pack_slower_than_it() {
    let offers = offers();
    for source in [0.005, 0.02, 0.1] {
        let mut scene = Scene::new(vec![truth(&offers, PriorKind::Text, 1, 3, 1.0)], 1000.0, 2);
        scene.source = source;
        let (score, ..) = score(&scene, &offers, Config::default(), 4e9);
        assert!(score.bound > 0.97, "{source}: {score:?}");
    }
}

// From the first byte on: what learning costs may not show against raw in a transfer of a second.
#[test]
fn a_first_second_is_no_slower_than_raw() {
    let offers = offers();
    for (kind, stride) in SHAPES {
        for mbit in [20.0, 200.0, 1000.0, 5000.0, 10000.0, 25000.0] {
            for workers in [1, 2, 4] {
                let scene = Scene::new(vec![truth(&offers, kind, stride, 5, 1.0)], mbit, workers);
                let delivered = |run: &Run| -> f64 {
                    run.trips
                        .iter()
                        .filter(|trip| trip.delivered_ns <= 1e9)
                        .map(|trip| f64::from(trip.raw_len))
                        .sum()
                };
                let adaptive = delivered(&run(&scene, &offers, Config::default(), 1e9));
                let mut raw = Run::new(&scene, &offers);
                raw.until(
                    1e9,
                    &mut crate::NonePolicy {
                        chunk_len: 256 << 10,
                    },
                );
                let share = adaptive / delivered(&raw);
                assert!(share > 0.97, "{kind:?} {mbit} n={workers}: {share}");
            }
        }
    }
}

#[test]
fn the_same_history_gives_the_same_decisions() {
    let offers = offers();
    let (scene, _) = random_scene(11, false, &offers);
    let choices = || -> Vec<usize> {
        run(&scene, &offers, Config::default(), 1e9)
            .trips
            .iter()
            .map(|trip| trip.index)
            .collect()
    };
    assert_eq!(choices(), choices());
}

#[test]
fn what_users_set_is_kept() {
    let offers = offers();
    let scene = Scene::new(vec![truth(&offers, PriorKind::Text, 1, 3, 1.0)], 20.0, 2);
    let level_max = Some(narrows_core::Level(3));
    let config = Config {
        chunk_len: Some(128 << 10),
        level_max,
        history_len_max: 0,
        ..Config::default()
    };
    for trip in run(&scene, &offers, config, 2e9).trips {
        let candidate = offers[trip.index].candidate;
        assert!(
            trip.raw_len == 128 << 10 && candidate.level.0 <= 3 && candidate.history_len == 0,
            "{candidate:?}"
        );
    }
    // A price of processor time far above what the link saves leaves only what costs next to nothing.
    let config = Config {
        cpu_price: 1e3,
        ..Config::default()
    };
    assert!(
        run(&scene, &offers, config, 2e9)
            .trips
            .iter()
            .skip(20)
            .all(|trip| trip.index == 0 || trip.why == "explore")
    );
}

#[test]
fn a_price_of_processor_time_refuses_levels_that_save_little() {
    let offers = offers();
    let scene = Scene::new(vec![truth(&offers, PriorKind::Binary, 1, 3, 1.0)], 100.0, 4);
    let spent = |cpu_price: f64| {
        let trips = run(
            &scene,
            &offers,
            Config {
                cpu_price,
                ..Config::default()
            },
            8e9,
        )
        .trips;
        let late: Vec<_> = trips
            .iter()
            .filter(|trip| trip.delivered_ns <= 8e9)
            .skip(20)
            .collect();
        let raw: f64 = late.iter().map(|trip| f64::from(trip.raw_len)).sum();
        let packed: f64 = late.iter().map(|trip| f64::from(trip.packed_len)).sum();
        let cpu: f64 = late
            .iter()
            .map(|trip| {
                let (offer, raw_len) = (&offers[trip.index], trip.raw_len);
                let pack = offer.prior(PriorKind::Binary, 1).pack
                    + offer.indexing_beyond(raw_len as usize);
                f64::from(raw_len) * f64::from(pack)
            })
            .sum();
        (packed / raw, cpu / raw)
    };
    let ((size_free, cpu_free), (size, cpu)) = (spent(0.0), spent(0.1));
    assert!(
        cpu < 0.75 * cpu_free,
        "{cpu} ns a byte, {cpu_free} where it costs nothing"
    );
    assert!(
        size < 1.15 * size_free,
        "{size} of a byte, {size_free} where it costs nothing"
    );
    assert!(spent(3.0).1 < 0.75 * cpu, "a higher price leaves less");
}
