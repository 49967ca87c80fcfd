//! The thread that looks after pages nobody asks for.
//!
//! It goes round all slots once in [`RecompressorConfig::idle_after`]. A page it finds untouched since the last round is
//! cold: packed again as hard as we can, if it is text or the like with a dictionary of such pages too, and with its
//! three neighbours as one cluster where that saves an eighth; one that does not pack goes to the backing file, and so
//! does any cold page that is in no cluster while memory is short. Sparse slabs are moved together. The work is done
//! outside the locks and takes at most a quarter of one processor.

use std::{sync::Arc, time::Duration};

use narrows_chains::{
    Chains, PAGE, chain,
    lzt::dictionary::{self, Dictionary},
};
use narrows_io::{
    background::{Background, Bell, Shift},
    region::FRAME,
};
use parking_lot::Mutex;

use crate::{
    cluster,
    dictionary_cache::{self, Number},
    shard::{Shard, Smaller},
    slab::OBJECT_LEN_MAX,
    slot::{Kind, Slot},
    store::Store,
    tools::{Kit, Profile},
};

/// Percent of the limit above which cold pages leave memory, and sparse slabs are moved together however little it
/// gains.
const SHORT_PERCENT: u64 = 80;
/// Groups of which the texts make a dictionary, and how few texts make none.
const SAMPLES: usize = 256;
const SAMPLES_MIN: usize = 256;
/// Objects are moved together at the end of a round if that frees one frame of so many.
const LOOSE_SHARE: u64 = 16;

/// How the keeper goes about it.
#[derive(Debug, Clone)]
pub struct RecompressorConfig {
    /// A page that was not touched for this long, up to twice as long, is cold. The keeper rests so long between
    /// rounds, so next to nothing would keep a processor busy.
    pub idle_after: Duration,
    /// Pack cold pages harder. Otherwise only the backing file and sparse slabs are looked after.
    pub recompress: bool,
    /// The chains to pack with.
    pub chains: Chains,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Pages that were packed again and became smaller.
    pub repacked: u64,
    /// Of these, with a dictionary.
    pub primed: u64,
    /// Clusters that were made.
    pub clusters: u64,
    /// Pages that went to the backing file.
    pub written_back: u64,
    /// Frames that came free by moving objects together.
    pub compacted: u64,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Recompressor(#[expect(dead_code, reason = "held for its drop")] Background);

impl Recompressor {
    /// Starts looking after `stores`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(stores: Vec<Arc<Store>>, config: RecompressorConfig) -> std::io::Result<Self> {
        let background = Background::start("recompressor", &Bell::default(), move |shift| {
            let mut worker = Worker::new(&config, shift);
            while worker.shift.wait(config.idle_after) {
                for store in &stores {
                    let round = worker.round(store);
                    tracing::debug!(?round, "looked after cold pages");
                }
            }
        })?;
        Ok(Self(background))
    }
}

/// One round now, on the calling thread and without rests.
pub fn round(store: &Store, config: &RecompressorConfig) -> Round {
    Worker::new(config, &mut Shift::without_rest()).round(store)
}

struct Worker<'a> {
    kit: Kit,
    recompress: bool,
    /// The dictionary of the store at hand.
    book: Option<(Number, dictionary::PagePacker)>,
    shift: &'a mut Shift,
}

impl<'a> Worker<'a> {
    fn new(config: &RecompressorConfig, shift: &'a mut Shift) -> Self {
        Self {
            kit: Kit::new(Profile::Ratio, &config.chains),
            recompress: config.recompress,
            book: None,
            shift,
        }
    }

    fn round(&mut self, store: &Store) -> Round {
        let mut round = Round::default();
        if self.recompress {
            self.study(store);
        }
        for shard in store.shards() {
            let (groups, before) = {
                let shard = shard.lock();
                (shard.slots() / cluster::PAGES, shard.object_frames())
            };
            let mut ceiling = before + debt(before);
            for group in 0..groups {
                let first = group * cluster::PAGES;
                let (seen, frames) = {
                    let mut shard = shard.lock();
                    (look(&mut shard, first), shard.object_frames())
                };
                if frames >= ceiling {
                    round.compacted += self.compact(shard, 1);
                    let frames = shard.lock().object_frames();
                    ceiling = frames + debt(frames);
                }
                if seen.iter().any(|slot| slot.is_idle()) {
                    self.group(store, shard, first, seen, &mut round);
                }
                if !self.shift.breathe() {
                    return round;
                }
            }
            let frames = shard.lock().object_frames();
            let any = frames > before || store.budget().is_above(SHORT_PERCENT);
            round.compacted += self.compact(
                shard,
                if any {
                    1
                } else {
                    (frames / LOOSE_SHARE).max(1)
                },
            );
        }
        round
    }

    /// Looks for pages that went cold, and makes the dictionary to pack them with ready: a new one when it is time to,
    /// if it saves more than it costs.
    fn study(&mut self, store: &Store) {
        self.book = None;
        let lexicon = store.lexicon();
        lexicon.forget_unused();
        let (mut fresh, mut groups, mut any_ripe) = (0, 0, false);
        each_cold(store, |shard, first| {
            let slots: [Slot; cluster::PAGES] =
                std::array::from_fn(|member| shard.slot(first + member));
            let is_fresh =
                |slot: &&Slot| slot.is_idle() && slot.kind() == Kind::Packed && !slot.is_deep();
            fresh += slots.iter().filter(is_fresh).count() as u64;
            any_ripe |= is_ripe(&slots);
            groups += 1;
        });
        if fresh == 0 && !any_ripe {
            return;
        }
        let pack =
            |(number, dictionary): (Number, Arc<Dictionary>)| Some((number, dictionary.packer()?));
        self.book = lexicon.last().and_then(pack);
        let Some(expected) = lexicon.is_due(fresh) else {
            return;
        };
        let samples = self.samples(store, groups / SAMPLES + 1);
        let pages: Vec<&[u8]> = samples
            .as_chunks::<PAGE>()
            .0
            .iter()
            .map(|page| &page[..])
            .collect();
        if pages.len() < SAMPLES_MIN {
            return;
        }
        let trained = Dictionary::train(&pages, |page| {
            let Kit { tools, image } = &mut self.kit;
            let page = page.try_into().expect("samples are pages");
            let len = tools.packer.pack(page, image).unwrap_or(PAGE);
            let primed = self
                .book
                .as_mut()
                .and_then(|(_, packer)| packer.pack(page, &mut image[..len]));
            primed.unwrap_or(len)
        });
        let Some(trained) = trained else { return };
        // Of the pages to come as many are texts as of those that were looked at.
        let texts = expected * pages.len() as u64 / (groups.min(SAMPLES) * cluster::PAGES) as u64;
        let gain = (trained.without - trained.with) as u64 * texts / trained.pages as u64;
        tracing::debug!(?trained, texts, gain, "made a dictionary");
        if gain > dictionary_cache::frames(&trained.dictionary) * FRAME as u64
            && lexicon.add(trained.dictionary)
        {
            self.book = lexicon.last().and_then(pack);
        }
    }

    /// Cold pages of text or the like, one after another: those of every so many groups.
    fn samples(&mut self, store: &Store, every: usize) -> Vec<u8> {
        let mut samples = Vec::new();
        let mut groups = 0;
        let tools = &mut self.kit.tools;
        each_cold(store, |shard, first| {
            groups += 1;
            if groups % every != 0 {
                return;
            }
            for at in first..first + cluster::PAGES {
                let mut page = [0; PAGE];
                if shard.is_texty(shard.slot(at)) && shard.peek(at, tools, &mut page).is_ok() {
                    samples.extend_from_slice(&page);
                }
            }
        });
        samples
    }

    /// Moves objects together, if that frees `frames_min` frames or more. Returns how many came free. A shard is locked
    /// for some slots at a time only.
    fn compact(&mut self, shard: &Mutex<Shard>, frames_min: u64) -> u64 {
        const SLOTS: usize = 4096;
        const SLABS: usize = 64;
        let (before, slots, moves) = {
            let mut shard = shard.lock();
            (
                shard.object_frames(),
                shard.slots(),
                shard.begin_compaction(frames_min),
            )
        };
        if !moves {
            return 0;
        }
        for first in (0..slots).step_by(SLOTS) {
            shard.lock().compact_part(first..slots.min(first + SLOTS));
            if !self.shift.breathe() {
                break;
            }
        }
        let slabs = shard.lock().slabs();
        for first in (0..slabs).step_by(SLABS) {
            shard.lock().end_compaction(first..slabs.min(first + SLABS));
            if !self.shift.breathe() {
                break;
            }
        }
        before.saturating_sub(shard.lock().object_frames())
    }

    /// Looks after the cold pages of a group.
    fn group(
        &mut self,
        store: &Store,
        shard: &Mutex<Shard>,
        first: usize,
        mut seen: [Slot; 4],
        round: &mut Round,
    ) {
        for (member, slot) in seen
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.is_idle())
        {
            let at = first + member;
            let leaves = match slot.kind() {
                Kind::Raw => true,
                Kind::Packed | Kind::Primed => store.budget().is_above(SHORT_PERCENT),
                _ => false,
            };
            let Kit { tools, image } = &mut self.kit;
            let mut page = [0; PAGE];
            if leaves && store.backing_has_room() {
                let mut shard = shard.lock();
                if shard.slot(at) == *slot && shard.peek(at, tools, &mut page).is_ok() {
                    round.written_back += u64::from(shard.write_back(at, *slot, &page));
                }
                *slot = shard.slot(at);
                // Written to meanwhile. ABA: a rewritten page can land at the same place and length, so skip it unless
                // it is still idle.
                if !slot.is_idle() {
                    continue;
                }
            }
            if slot.kind() == Kind::Packed && !slot.is_deep() && self.recompress {
                {
                    let shard = shard.lock();
                    if shard.slot(at) != *slot || shard.peek(at, tools, &mut page).is_err() {
                        continue;
                    }
                }
                let packed = tools.packer.pack(&page, image);
                let mut smaller = packed
                    .map(|len| Smaller {
                        kind: Kind::Packed,
                        bytes: &image[..len],
                    })
                    .filter(|it| it.bytes.len() < slot.len());
                if let Some((number, packer)) = &mut self.book
                    && packed.is_none_or(|len| chain::has_matches(&image[..len]))
                {
                    let room = smaller
                        .map_or(slot.len(), |smaller| smaller.bytes.len())
                        .max(2)
                        - 1;
                    let (head, rest) = tools.packed[..room.min(OBJECT_LEN_MAX)]
                        .split_first_mut()
                        .expect("a byte or more");
                    *head = *number;
                    if let Some(len) = packer.pack(&page, rest) {
                        smaller = Some(Smaller {
                            kind: Kind::Primed,
                            bytes: &tools.packed[..1 + len],
                        });
                        round.primed += 1;
                    }
                }
                round.repacked += u64::from(smaller.is_some());
                let mut shard = shard.lock();
                shard.repack(at, *slot, smaller);
                *slot = shard.slot(at);
            }
        }
        if is_ripe(&seen) {
            self.bundle(shard, first, seen, round);
        }
    }

    /// Makes a cluster of four cold pages if that saves an eighth.
    fn bundle(&mut self, shard: &Mutex<Shard>, first: usize, seen: [Slot; 4], round: &mut Round) {
        let tools = &mut self.kit.tools;
        for (member, slot) in seen.into_iter().enumerate() {
            let mut page = [0; PAGE];
            let shard = shard.lock();
            if shard.slot(first + member) != slot
                || shard.peek(first + member, tools, &mut page).is_err()
            {
                return;
            }
            tools.bundler.raw[member * PAGE..][..PAGE].copy_from_slice(&page);
        }
        let now: usize = seen.iter().map(|slot| slot.len()).sum();
        let book = self.book.as_mut().map(|(number, packer)| (*number, packer));
        let saves = tools.bundler.pack(now / 8 * 7, book);
        let mut shard = shard.lock();
        match saves {
            true => round.clusters += u64::from(shard.bundle(first, seen, tools).unwrap_or(false)),
            false => shard.keep_apart(first, seen),
        }
    }
}

/// A page that is packed again leaves its object empty among full ones. So many frames more than before are in use at
/// most before objects are moved together.
fn debt(frames: u64) -> u64 {
    const SHARE: u64 = 32;
    const MIN: u64 = 16;
    (frames / SHARE).max(MIN)
}

/// Whether a group is cold, packed as hard as its pages are alone, and not yet tried as a cluster.
fn is_ripe(slots: &[Slot; cluster::PAGES]) -> bool {
    let is_alone = |slot: &Slot| matches!(slot.kind(), Kind::Packed | Kind::Primed);
    slots
        .iter()
        .all(|slot| slot.is_idle() && slot.is_deep() && is_alone(slot))
        && !slots.iter().all(|slot| slot.is_apart())
}

/// Calls `look` with each group that has an idle page packed alone, under the lock of its shard.
fn each_cold(store: &Store, mut look: impl FnMut(&Shard, usize)) {
    // Of so many at a time, since to look may be to unpack.
    const SLOTS: usize = 256;
    for shard in store.shards() {
        let slots = shard.lock().slots() / cluster::PAGES * cluster::PAGES;
        for part in (0..slots).step_by(SLOTS) {
            let shard = shard.lock();
            for first in (part..slots.min(part + SLOTS)).step_by(cluster::PAGES) {
                let mut group = (first..first + cluster::PAGES).map(|at| shard.slot(at));
                if group.any(|slot| {
                    slot.is_idle() && matches!(slot.kind(), Kind::Packed | Kind::Primed)
                }) {
                    look(&shard, first);
                }
            }
        }
    }
}

/// The slots of a group as they are; marks those as idle that were not.
fn look(shard: &mut Shard, first: usize) -> [Slot; 4] {
    std::array::from_fn(|member| {
        let slot = shard.slot(first + member);
        if !slot.is_idle() {
            shard.mark_idle(first + member);
        }
        slot
    })
}
