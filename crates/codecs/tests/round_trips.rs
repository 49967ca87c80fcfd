//! Any codec, level, length and kind of data: what was packed comes back. `NARROWS_ROUND_TRIPS` and `NARROWS_SEED` set
//! how many and which.

use std::{collections::BTreeSet, thread};

use narrows_codecs::cpu;
use narrows_core::{Backend, Level, Workspace};
use narrows_testkit::data::{KINDS, make};

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator, so that a failing run can be repeated from its printed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Bytes that travelled and the cells of codec, level and kind that were met.
fn round_trips(count: u64, seed: u64) -> (u64, BTreeSet<(&'static str, i16, usize)>) {
    let dice = &mut Dice(seed * 2 + 1);
    let codecs = cpu().probe().expect("the CPU is there");
    // Cut anywhere, so that lengths and contents differ although making data is slow.
    let pool: Vec<Vec<u8>> = KINDS
        .iter()
        .map(|kind| make(*kind, POOL_LEN, seed))
        .collect();
    let (mut bytes, mut cells, mut ws) = (0, BTreeSet::new(), Workspace::default());
    let (mut packed, mut back) = (vec![0; 2 * LEN_MAX + 1024], vec![0; LEN_MAX]);
    for trip in 0..count {
        let codec = &codecs[dice.below(codecs.len() as u64) as usize];
        let info = codec.info();
        let (low, high) = (*info.levels.start(), *info.levels.end());
        let mut level = low + dice.below((high - low) as u64 + 1) as i16;
        // The hardest levels take milliseconds each: seldom.
        if level > HARD && dice.below(64) > 0 {
            level = level.min(HARD).max(low);
        }
        let kind = dice.below(pool.len() as u64) as usize;
        // Mostly short ones, where the edges are.
        let most = [64, 600, 4096, LEN_MAX as u64][dice.below(4) as usize];
        let len = 1 + dice.below(most) as usize;
        let at = dice.below((POOL_LEN - len) as u64) as usize;
        let raw = &pool[kind][at..at + len];
        cells.insert((info.name, level, kind));
        let Some(n) = codec.pack(raw, Level(level), &[], &mut packed, &mut ws) else {
            continue;
        };
        let name = info.name;
        codec
            .unpack(&packed[..n], &[], &mut back[..len], &mut ws)
            .unwrap_or_else(|fault| panic!("{name} {level}, seed {seed}, trip {trip}: {fault}"));
        assert!(
            back[..len] == *raw,
            "{name} {level}, seed {seed}, trip {trip}: other bytes"
        );
        bytes += len as u64;
    }
    (bytes, cells)
}

const LEN_MAX: usize = 20_000;
const POOL_LEN: usize = 64 << 10;
const HARD: i16 = 6;

// Goal: no codec loses a byte at any level. Method: random cells, on two threads.
#[test]
fn random_chunks_come_back_from_every_codec() {
    let (count, seed) = (
        number("NARROWS_ROUND_TRIPS", 4000),
        number("NARROWS_SEED", 1),
    );
    let halves: Vec<_> = thread::scope(|scope| {
        let work = |part| scope.spawn(move || round_trips(count / 2, 2 * seed + part));
        let running = [work(0), work(1)];
        running
            .map(|half| half.join().expect("a round trip failed: see above"))
            .into()
    });
    let bytes: u64 = halves.iter().map(|(bytes, _)| bytes).sum();
    let cells: BTreeSet<_> = halves.into_iter().flat_map(|(_, cells)| cells).collect();
    println!(
        "{count} round trips of chunks, {bytes} bytes, {} cells of codec, level and kind",
        cells.len()
    );
}
