//! The published table: cells of data x link x workers, against *simulated* fixed choices.

use super::*;

/// Raw bytes per nanosecond that `index` reaches as a fixed choice in this pipeline.
pub(super) fn simulated(scene: &Scene, offers: &[Offer], index: usize, len: usize, start: f64, end: f64) -> f64 {
    let mut run = Run::new(scene, offers);
    run.until(end, &mut Fixed { candidate: offers[index].candidate, chunk_len: len });
    run.throughput(start, end)
}

#[test]
#[ignore = "prints a table; `cargo test -p narrows-policy cells -- --ignored --nocapture`"]
fn cells() {
    let offers = offers();
    let text = (Kind::Text, 1);
    let mixes: [(&str, &[(Kind, u8)]); 8] = [
        ("text", &[text]),
        ("binary", &[(Kind::Binary, 1)]),
        ("log", &[(Kind::Log, 1)]),
        ("f32", &[(Kind::Field, 4)]),
        ("bf16", &[(Kind::Weights, 2)]),
        ("random", &[(Kind::Random, 1)]),
        ("text+random", &[text, (Kind::Random, 1)]),
        ("mix of 5", &[text, (Kind::Binary, 1), (Kind::Random, 1), (Kind::Field, 4), (Kind::Log, 1)]),
    ];
    println!("{:12} {:>6} n  bound  fixed  raw   best fixed", "data", "Mbit/s");
    let mut all = Vec::new();
    for (name, shapes) in mixes {
        for mbit in [10.0, 100.0, 1000.0, 2500.0, 10000.0] {
            for workers in [1, 2, 4] {
                let truths: Vec<Truth> =
                    shapes.iter().enumerate().map(|(i, &(k, s))| truth(&offers, k, s, i as u64 + 1, 1.0)).collect();
                let scene = Scene::new(truths, mbit, workers);
                let end = span_ns(&scene).max(2e9);
                let mut run = Run::new(&scene, &offers);
                run.until(end, &mut Adaptive::new(offers.clone(), Config::default()));
                let start = run.trips[50.min(run.trips.len() - 1)].delivered_ns.max(2e8);
                let reached = run.throughput(start, end);
                let len = run.trips[run.trips.len() - 1].raw_len as usize;
                let limits = scene.limits(&offers, 0.0, len);
                let (fixed, best) = (0..offers.len())
                    .map(|index| (simulated(&scene, &offers, index, len, start, end), index))
                    .max_by(|a, b| a.0.total_cmp(&b.0))
                    .expect("offers");
                let raw = simulated(&scene, &offers, 0, len, start, end);
                let bound = reached * f64::from(limits.bound);
                all.push((bound, reached / fixed, reached / raw));
                println!(
                    "{name:12} {mbit:6} {workers}  {bound:.3}  {:.3}  {:.2}  {}",
                    reached / fixed,
                    reached / raw,
                    label(&offers[best])
                );
            }
        }
    }
    let count = |test: &dyn Fn(&(f64, f64, f64)) -> bool| all.iter().filter(|cell| test(cell)).count();
    println!(
        "{} cells: bound >= 0.95 in {}, fixed >= 0.97 in {}, fixed >= 1 in {}, raw >= 0.97 in {}",
        all.len(),
        count(&|c| c.0 >= 0.95),
        count(&|c| c.1 >= 0.97),
        count(&|c| c.1 >= 1.0),
        count(&|c| c.2 >= 0.97)
    );
}
