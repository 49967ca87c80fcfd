//! The proof: whatever a crash leaves, the store opens and holds what it must.
//!
//! A workload runs on a simulated device that keeps every write, discard and flush. Then the device
//! is crashed at points of that record, in every way it may (`CrashChoice`), and the store opened
//! on what is left. The model knows the order of all changes, and where in the record flushes
//! returned. What is read must be the state after some prefix of the changes, not shorter than what
//! was flushed: so nothing flushed is lost (a), no block is a mix or garbage (b), and no trim is
//! undone after a flush (c). The check of the whole store finds nothing (d). Recovery is crashed as
//! well, and a second recovery finds the same (e).
//!
//! `NARROWS_CRASH_STATES=N` tries N states, `NARROWS_CRASH_SEED=N` begins with that seed.

use std::{collections::HashMap, env, sync::Arc};

use narrows_core::{BlockDevice, BlockError, block::Zeroing};

use super::{Sabotage, bytes_of, noise};
use crate::{
    Creation, Disk, DiskError, Profile, Settings, Tuning,
    backing::{Backing, Call, CrashChoice, CrashCursor, FaultPlan, Geometry, SimulatedDevice},
    format::BLOCK,
    fsck,
};

/// splitmix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Content of a block, by number: 0 is zeroes.
type Value = u32;

/// What the device may hold at each point of its record.
#[derive(Debug)]
struct Model {
    blocks: usize,
    contents: Vec<Box<[u8]>>,
    by_hash: HashMap<u64, Value>,
    /// Every change of a block, in order.
    changes: Vec<(usize, Value)>,
    now: Vec<Value>,
    /// From this point of the record on, this many changes may be seen.
    begun: Vec<(usize, usize)>,
    /// From this point of the record on, this many changes must be seen.
    kept: Vec<(usize, usize)>,
}

impl Model {
    fn new(blocks: usize) -> Self {
        let mut model = Self {
            blocks,
            contents: Vec::new(),
            by_hash: HashMap::new(),
            changes: Vec::new(),
            now: vec![0; blocks],
            begun: Vec::new(),
            kept: vec![(0, 0)],
        };
        model.value(&[0; BLOCK]);
        model
    }

    fn value(&mut self, content: &[u8]) -> Value {
        let contents = &mut self.contents;
        *self.by_hash.entry(hash(content)).or_insert_with(|| {
            contents.push(content.into());
            contents.len() as Value - 1
        })
    }

    /// Notes the changes that a write of `data` at `offset` makes, in the store's order.
    fn write(&mut self, offset: usize, data: &[u8]) {
        let mut at = offset;
        let end = offset + data.len();
        while at < end {
            let block = at / BLOCK;
            let until = ((block + 1) * BLOCK).min(end);
            let mut content = self.contents[self.now[block] as usize].to_vec();
            content[at % BLOCK..][..until - at].copy_from_slice(&data[at - offset..until - offset]);
            let value = self.value(&content);
            self.change(block, value);
            at = until;
        }
    }

    fn change(&mut self, block: usize, value: Value) {
        self.changes.push((block, value));
        self.now[block] = value;
    }

    /// Changes that must be seen after a crash at `at`, and those that may be.
    fn bounds(&self, at: usize) -> (usize, usize) {
        let most = |list: &[(usize, usize)]| {
            let until = list.partition_point(|(from, _)| *from <= at);
            list[..until].iter().map(|(_, n)| *n).max().unwrap_or(0)
        };
        let (low, high) = (most(&self.kept), most(&self.begun));
        (low, high.max(low))
    }

    /// The number of changes after which the device held `values`, within bounds.
    fn matches(&self, values: &[Value], (low, high): (usize, usize)) -> Option<usize> {
        let mut state = vec![0; self.blocks];
        for &(block, value) in &self.changes[..low] {
            state[block] = value;
        }
        let differs = |state: &[Value]| state.iter().zip(values).filter(|(a, b)| a != b).count();
        let mut wrong = differs(&state);
        let mut n = low;
        loop {
            if wrong == 0 {
                return Some(n);
            }
            if n == high {
                return None;
            }
            let (block, value) = self.changes[n];
            wrong -= usize::from(state[block] != values[block]);
            state[block] = value;
            wrong += usize::from(state[block] != values[block]);
            n += 1;
        }
    }

    /// Blocks that differ from the state after `n` changes, with the changes that made what they
    /// hold.
    fn difference(&self, values: &[Value], n: usize) -> String {
        let mut state = vec![0; self.blocks];
        for &(block, value) in &self.changes[..n] {
            state[block] = value;
        }
        let made = |block: usize, value: Value| {
            let changes = self.changes.iter().enumerate();
            let made = changes.filter(|(_, change)| **change == (block, value));
            made.map(|(i, _)| i).collect::<Vec<_>>()
        };
        let blocks = (0..self.blocks).filter(|block| state[*block] != values[*block]);
        let words = blocks.map(|block| {
            let (held, wanted) = (values[block], state[block]);
            format!(
                "{block}: value {held} of changes {:?}, not {wanted} of {:?}",
                made(block, held),
                made(block, wanted)
            )
        });
        words.take(8).collect::<Vec<_>>().join("; ")
    }

    /// Only the first `n` changes happened: the others were in memory when the process was killed.
    fn cut(&mut self, n: usize) {
        self.changes.truncate(n);
        for (_, end) in &mut self.begun {
            *end = (*end).min(n);
        }
        self.now.fill(0);
        for &(block, value) in &self.changes {
            self.now[block] = value;
        }
    }

    /// Reads the whole device; `Err` says which block holds what was never written, or cannot be
    /// read.
    fn read(&self, disk: &Disk) -> Result<Vec<Value>, String> {
        let mut bytes = vec![0; self.blocks * BLOCK];
        disk.read(0, &mut bytes)
            .map_err(|error| error.to_string())?;
        let value = |(block, content): (usize, &[u8])| {
            let found = self.by_hash.get(&hash(content)).copied();
            found.ok_or_else(|| format!("block {block} holds garbage: {:02x?}…", &content[..16]))
        };
        bytes.chunks(BLOCK).enumerate().map(value).collect()
    }
}

fn hash(content: &[u8]) -> u64 {
    let mix = |sum: u64, word: &[u8; 8]| {
        (sum.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    content.as_chunks::<8>().0.iter().fold(1, mix)
}

/// A workload that has run, and what may be left of it.
pub(super) struct Run {
    backing: Arc<SimulatedDevice>,
    model: Model,
    settings: Settings,
    /// What was wrong while it ran.
    violation: Option<String>,
}

/// Runs a workload drawn from `seed`.
fn run(seed: u64, sabotage: Option<Sabotage>) -> Run {
    run_with(seed, sabotage, None, 60 + Dice(!seed).below(200))
}

/// Runs `steps` requests of a workload, with calls on the device failing as planned.
fn run_with(seed: u64, sabotage: Option<Sabotage>, fault: Option<FaultPlan>, steps: usize) -> Run {
    let mut dice = Dice(seed);
    let segments = 20 + dice.below(14);
    let blocks = 60 + dice.below(200);
    let size = segments << 16;
    let backing = Arc::new(SimulatedDevice::new(size, Geometry::default()));
    let profile = [Profile::Fast, Profile::Fast, Profile::Balanced][dice.below(3)];
    let creation = Creation::new((blocks * BLOCK) as u64)
        .segment_len(64 << 10)
        .profile(profile);
    Disk::create(&*backing, &creation).unwrap();
    let tuning = Tuning {
        checkpoint_every: (128 << 10) << dice.below(3),
        warm_bytes: (64 << 10) * dice.below(4) as u64,
        unit_blocks: [1, 4, 8][dice.below(3)],
        sabotage,
        ..Tuning::default()
    };
    let settings = Settings::default().background(false).tuning(tuning);
    let mut run = Run {
        model: Model::new(blocks),
        backing,
        settings,
        violation: None,
    };
    let position = run.backing.position();
    run.model.kept.push((position, 0));
    let mut disk = Disk::open(run.backing.clone(), run.settings.clone()).unwrap();
    run.backing.set_fault(fault);
    for step in 0..steps {
        if dice.below(100) < 4 {
            disk = run.restart(disk, dice.below(2) == 0);
        } else if !run.step(&disk, &mut dice, seed << 16 | step as u64) {
            break;
        }
    }
    disk.abandon();
    run.backing.set_fault(None);
    run
}

impl Run {
    /// One request. `false` if the store takes no more.
    fn step(&mut self, disk: &Disk, dice: &mut Dice, stamp: u64) -> bool {
        let size = self.model.blocks * BLOCK;
        let block = dice.below(self.model.blocks);
        let count = (1 + dice.below(9)).min(self.model.blocks - block);
        let (offset, len) = (block * BLOCK, count * BLOCK);
        let fua = dice.below(10) == 0;
        let begun = self.backing.position();
        let before = self.model.changes.len();
        let kind = dice.below(100);
        let is_flush = (73..94).contains(&kind);
        let done = match kind {
            0..55 => {
                let data: Vec<u8> = (0..count as u64)
                    .flat_map(|i| match dice.below(8) {
                        0 => vec![0; BLOCK],
                        1..4 => noise(stamp << 8 | i, BLOCK),
                        _ => bytes_of(stamp << 8 | i, BLOCK),
                    })
                    .collect();
                self.model.write(offset, &data);
                disk.write(offset as u64, &data, fua)
            }
            55..63 => {
                let at = dice.below(size - 3000);
                let data = bytes_of(stamp, 1 + dice.below(3000));
                self.model.write(at, &data);
                disk.write(at as u64, &data, fua)
            }
            63..70 => {
                (block..block + count).for_each(|block| self.model.change(block, 0));
                disk.trim(offset as u64, len as u64, fua)
            }
            70..73 => {
                (block..block + count).for_each(|block| self.model.change(block, 0));
                let how = Zeroing {
                    keep_allocated: dice.below(2) == 0,
                    ..Zeroing::default()
                };
                disk.write_zeroes(offset as u64, len as u64, how, fua)
            }
            73..90 => disk.flush(),
            90..94 => disk.checkpoint().map_err(BlockError::from),
            94 => disk.compact(|_, _| ()).map_err(BlockError::from),
            _ => {
                let idle = dice.below(2) == 0;
                disk.maintain(idle).map(drop).map_err(BlockError::from)
            }
        };
        self.model.begun.push((begun, self.model.changes.len()));
        let changed = self.model.changes.len() > before;
        match done {
            Ok(()) if fua && changed => self.kept(self.model.changes.len()),
            Ok(()) if is_flush => self.kept(before),
            Ok(()) => {}
            Err(_) if disk.stat().poisoned.is_some() => return false,
            // A refused write may have been done in part: what was done is found by reading.
            Err(BlockError::NoSpace(_) | BlockError::Io(_)) if changed => {
                self.refused(disk, before)
            }
            Err(BlockError::NoSpace(_) | BlockError::Io(_)) => {}
            Err(error) => panic!("{error}"),
        }
        true
    }

    fn kept(&mut self, changes: usize) {
        self.model.kept.push((self.backing.position(), changes));
    }

    fn refused(&mut self, disk: &Disk, before: usize) {
        self.backing.set_fault(None);
        let values = self.read_now(disk);
        let bounds = (before, self.model.changes.len());
        self.settle(
            &values,
            bounds,
            "a refused write is done in part or not at all",
        );
    }

    fn read_now(&mut self, disk: &Disk) -> Vec<Value> {
        let read = self.model.read(disk).or_else(|_| {
            // Perhaps a call was to fail.
            self.backing.set_fault(None);
            self.model.read(disk)
        });
        read.unwrap_or_else(|what| {
            self.violation.get_or_insert(what);
            self.model.now.clone()
        })
    }

    /// Finds what was done of the last changes, and forgets the others.
    fn settle(&mut self, values: &[Value], bounds: (usize, usize), rule: &str) -> usize {
        let found = self.model.matches(values, bounds);
        if found.is_none() {
            self.violation.get_or_insert(format!("{rule}: not so"));
        }
        let n = found.unwrap_or(bounds.0);
        self.model.cut(n);
        n
    }

    /// Closes the store in order or kills it, and opens it again on the same device: what it had
    /// not flushed is there, but may still be lost by a crash, until it is open.
    fn restart(&mut self, disk: Disk, kill: bool) -> Disk {
        let kill = kill || disk.close().is_err();
        disk.abandon();
        let open = || Disk::open(self.backing.clone(), self.settings.clone());
        let disk = open().unwrap_or_else(|_| {
            // A call failed while it was opened. Without that it opens.
            self.backing.set_fault(None);
            open().unwrap()
        });
        let values = self.read_now(&disk);
        let bounds = self.model.bounds(self.backing.position());
        let bounds = if kill { bounds } else { (bounds.1, bounds.1) };
        let n = self.settle(&values, bounds, "killing keeps a prefix that was written");
        self.kept(n);
        disk
    }

    /// Crashes it as chosen and opens what is left; what is wrong then.
    fn try_crash(
        &self,
        choice: CrashChoice,
        cursor: &mut CrashCursor,
        image: &mut Vec<u8>,
        dice: &mut Dice,
    ) -> Result<usize, String> {
        self.backing.crash(choice, cursor, image);
        let bounds = self.model.bounds(choice.at);
        // Now and then recovery is crashed, too; then what it left is recovered.
        let nested = dice.below(8) == 0;
        let bytes = std::mem::take(image);
        let device = if nested {
            SimulatedDevice::from_image(bytes, Geometry::default())
        } else {
            SimulatedDevice::unrecorded(bytes, Geometry::default())
        };
        let device = Arc::new(device);
        let (n, values) = self.recover(&device, bounds)?;
        let mut states = 1;
        if nested {
            let mut inner = CrashCursor::default();
            // A recovery's own writes come first in the record, what it discards last.
            for at in 1..=device.position().min(14) {
                let torn = CrashChoice {
                    keep: 0,
                    tear: 256,
                    ..random_choice(0, dice)
                };
                let choice = [torn, random_choice(0, dice)][dice.below(2)];
                let choice = CrashChoice { at, ..choice };
                let mut bytes = Vec::new();
                device.crash(choice, &mut inner, &mut bytes);
                let again = Arc::new(SimulatedDevice::unrecorded(bytes, Geometry::default()));
                let (_, second) = self
                    .recover(&again, bounds)
                    .map_err(|what| format!("after a crash in recovery ({choice:?}): {what}"))?;
                if second != values {
                    return Err(format!("a second recovery differs ({choice:?}; first {n})"));
                }
                states += 1;
            }
        }
        *image = Arc::into_inner(device).map_or_else(Vec::new, SimulatedDevice::into_image);
        Ok(states)
    }

    fn recover(
        &self,
        device: &Arc<SimulatedDevice>,
        bounds: (usize, usize),
    ) -> Result<(usize, Vec<Value>), String> {
        let disk = Disk::open(device.clone(), self.settings.clone())
            .map_err(|error: DiskError| format!("cannot be opened: {error}"))?;
        let values = self.model.read(&disk)?;
        let n = self.model.matches(&values, bounds).ok_or_else(|| {
            let differ = self.model.difference(&values, bounds.0);
            format!("no state between changes {bounds:?} is left; from the first differ {differ}")
        })?;
        disk.abandon();
        if n % 4 == 0 {
            let backing: Arc<dyn Backing> = device.clone();
            let findings = fsck(&backing).map_err(|error| error.to_string())?;
            if !findings.is_clean() {
                return Err(format!("the check finds {:?}", findings.errors));
            }
        }
        Ok((n, values))
    }
}

fn random_choice(positions: usize, dice: &mut Dice) -> CrashChoice {
    CrashChoice {
        at: dice.below(positions + 1),
        keep: [0, 64, 128, 192, 240, 256][dice.below(6)],
        tear: [0, 128, 256][dice.below(3)],
        reorder: dice.below(2) == 0,
        subset: None,
        seed: dice.next(),
    }
}

/// Runs workloads and crashes them until `states` were tried; the states tried, and the first
/// violation.
fn search(states: usize, first_seed: u64, sabotage: Option<Sabotage>) -> (usize, Option<String>) {
    let mut tried = 0;
    for seed in first_seed.. {
        let run = run(seed, sabotage);
        if let Some(violation) = run.violation {
            return (tried, Some(format!("seed {seed}: {violation}")));
        }
        let begin = run.model.kept[1].0;
        let mut dice = Dice(!seed);
        let positions = run.backing.position();
        let mut choices: Vec<CrashChoice> = Vec::new();
        for at in begin..=positions {
            // The first workload is crashed everywhere; of later ones a part, so that there are
            // more of them.
            if seed > first_seed && dice.below(6) > 0 {
                continue;
            }
            // Every point, with all subsets of what is pending where they are few, and some random
            // ways.
            let pending = run.backing.pending(at);
            if pending <= 3 {
                choices.extend((0..1_u64 << pending).map(|subset| CrashChoice {
                    at,
                    keep: 0,
                    tear: 0,
                    reorder: false,
                    subset: Some(subset),
                    seed: 0,
                }));
            }
            for keep in [None, None, None, Some(0)] {
                let mut choice = random_choice(0, &mut dice);
                if let Some(keep) = keep {
                    (choice.keep, choice.tear) = (keep, 256);
                }
                choices.push(CrashChoice { at, ..choice });
            }
        }
        let (mut cursor, mut image) = (CrashCursor::default(), Vec::new());
        for choice in choices {
            match run.try_crash(choice, &mut cursor, &mut image, &mut dice) {
                Ok(n) => tried += n,
                Err(what) => return (tried, Some(format!("seed {seed}, {choice:?}: {what}"))),
            }
            if tried >= states {
                return (tried, None);
            }
        }
    }
    (tried, None)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

// Goal: no crash loses what was flushed, nor leaves what never was. Method: see the head of this
// file.
#[test]
fn no_crash_loses_or_invents_anything() {
    let states = number("NARROWS_CRASH_STATES").unwrap_or(3000) as usize;
    let seed = number("NARROWS_CRASH_SEED").unwrap_or(1);
    let (tried, violation) = search(states, seed, None);
    println!("{tried} crash states from seed {seed}");
    assert_eq!(violation, None, "after {tried} states");
}

// Goal: the proof sees what it is to see. Method: plant each bug, and have it found.
#[test]
fn every_planted_bug_is_found() {
    for bug in [
        Sabotage::SkipSync,
        Sabotage::FreeEarly,
        Sabotage::ReplayPastGap,
        Sabotage::AcknowledgeEarly,
        Sabotage::SkipChecksum,
        Sabotage::SuperblockOrder,
    ] {
        let (tried, violation) = search(60_000, 1, Some(bug));
        let violation =
            violation.unwrap_or_else(|| panic!("{bug:?} was not found in {tried} states"));
        println!("{bug:?} found after {tried} states: {violation}");
    }
}

// Goal: whatever call fails, and however, nothing flushed is lost and nothing is invented. Method:
// every call of a workload fails in turn, with and without a part done, as an I/O error or for lack
// of space; then the device is crashed.
#[test]
fn every_failing_call_is_survived() {
    let mut tried = 0;
    for (call, count) in [
        (Call::Write, 1),
        (Call::Flush, 1),
        (Call::Discard, 3),
        (Call::Read, 2),
    ] {
        for after in 0..40 {
            for (no_space, written) in [(false, 0), (false, 1024), (true, 0), (true, 4608)] {
                if call != Call::Write && (no_space || written > 0) {
                    continue;
                }
                let fault = FaultPlan {
                    call,
                    after,
                    count: count << (after % 3),
                    no_space,
                    written,
                };
                let seed = 77 + after % 5;
                let run = run_with(seed, None, Some(fault.clone()), 70);
                assert_eq!(run.violation, None, "{fault:?}, seed {seed}");
                let mut dice = Dice(after);
                let (mut cursor, mut image) = (CrashCursor::default(), Vec::new());
                let end = run.backing.position();
                for back in 0..6 {
                    let choice = random_choice(0, &mut dice);
                    let at = end.saturating_sub(back / 2);
                    let choice = CrashChoice { at, ..choice };
                    run.try_crash(choice, &mut cursor, &mut image, &mut dice)
                        .unwrap_or_else(|what| {
                            panic!("{fault:?}, seed {seed}, {choice:?}: {what}")
                        });
                    tried += 1;
                }
            }
        }
    }
    println!("{tried} states after failing calls");
}

// Goal: a failed flush poisons the store, in words; reads go on, and what was flushed before is
// there when it is opened again.
#[test]
fn a_failed_flush_poisons_in_words() {
    let mut run = run_with(5, None, None, 0);
    let disk = Disk::open(run.backing.clone(), run.settings.clone()).unwrap();
    let data = bytes_of(1, BLOCK);
    disk.write(0, &data, true).unwrap();
    run.backing.set_fault(Some(FaultPlan {
        call: Call::Flush,
        after: 0,
        count: 1,
        no_space: false,
        written: 0,
    }));
    disk.write(BLOCK as u64, &data, false).unwrap();
    let error = disk.flush().unwrap_err().to_string();
    assert!(error.contains("takes no more writes"), "{error}");
    // The second flush would succeed beneath; it must not be taken for an answer.
    assert!(disk.flush().is_err());
    assert!(disk.write(0, &data, false).is_err());
    let mut out = vec![0; BLOCK];
    disk.read(0, &mut out).unwrap();
    assert!(out == data);
    assert!(disk.close().is_err());
    assert!(disk.stat().poisoned.unwrap().contains("flush"));
    run.settings = Settings::default().background(false);
    let again = Disk::open(run.backing.clone(), run.settings.clone()).unwrap();
    again.read(0, &mut out).unwrap();
    assert!(out == data);
}
