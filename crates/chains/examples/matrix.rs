//! Packed size of every page of some files by every chain: `matrix PAGES_MAX FILE…`, for those who look for chains.
use std::{env, fs};

use narrows_chains::{Chain, PAGE, chain::Scratch};

fn main() {
    let mut args = env::args().skip(1);
    let most: usize = args.next().expect("pages").parse().expect("a number");
    let extra: Vec<Chain> =
        env::var("EXTRA").unwrap_or_default().split_whitespace().map(|c| Chain::parse(c).unwrap()).collect();
    let chains: Vec<Chain> = Chain::builtins().iter().copied().chain(extra).collect();
    let scratch = &mut Scratch::default();
    for path in args {
        let bytes = fs::read(&path).expect("readable");
        let pages = bytes.as_chunks::<PAGE>().0;
        let step = (pages.len() / most).max(1);
        let mut sizes: Vec<Vec<usize>> = vec![];
        for page in pages.iter().step_by(step).take(most) {
            if page[..PAGE - 8] == page[8..] {
                continue;
            }
            let mut out = [0; PAGE];
            sizes.push(chains.iter().map(|c| c.pack(page, &mut out[..3264], scratch).unwrap_or(PAGE)).collect());
        }
        let n = sizes.len();
        if n == 0 {
            continue;
        }
        let ratio = |total: usize| (n * PAGE) as f64 / total as f64;
        let sum = |c: usize| ratio(sizes.iter().map(|s| s[c]).sum());
        let oracle = ratio(sizes.iter().map(|s| *s.iter().min().unwrap()).sum());
        let peers = ratio(sizes.iter().map(|s| s[0]).sum()).max(sum(1)).max(sum(2));
        let mut order: Vec<usize> = (0..chains.len()).collect();
        order.sort_by(|&a, &b| sum(b).total_cmp(&sum(a)));
        let mut wins = vec![0; chains.len()];
        for s in &sizes {
            let m = (0..chains.len()).min_by_key(|&c| s[c]).unwrap();
            wins[m] += 1;
        }
        // greedy cover
        let mut cover: Vec<usize> = vec![];
        let mut text = String::new();
        for _ in 0..4 {
            let best = (0..chains.len())
                .max_by(|&a, &b| {
                    let t = |c: usize| {
                        ratio(sizes.iter().map(|s| cover.iter().map(|&k| s[k]).min().unwrap_or(PAGE).min(s[c])).sum())
                    };
                    t(a).total_cmp(&t(b)).then(b.cmp(&a))
                })
                .unwrap();
            cover.push(best);
            let r = ratio(sizes.iter().map(|s| cover.iter().map(|&k| s[k]).min().unwrap()).sum());
            text += &format!(" +{} {:.3}", chains[best], r);
        }
        println!(
            "{:32} peer {:.3} oracle {:.3} x{:.2}  |{}",
            path.rsplit('/').next().unwrap(),
            peers,
            oracle,
            oracle / peers,
            text
        );
    }
}
