//! What each candidate cost on each class of data: guesses that outcomes move, corrected priors where nothing was
//! measured.
//!
//! Why corrected priors: nobody can try thirty candidates on every class. A candidate never tried on a class takes its
//! prior times what the *nearest tried candidate of the same family* (by level) showed against its own prior, so that one
//! audition of zstd 1 also tells about zstd 3.
//!
//! Why three layers, a guess for each candidate and kind, a level for each class, a factor for each candidate and class: how candidates compare depends on the kind of data and the width of its numbers; how well all of
//! them do together, on the class. So a candidate's guess is kept per kind, relative to a level that each class has of
//! its own and that any outcome moves: data that pack worse than thought for one codec do so for all. Without it the
//! policy would, chunk after chunk, run after whichever candidate it had not been disappointed by yet. And classes of a
//! kind may differ in which candidate packs better (zstd 1 packs records a sixth smaller than -5, tables of digits a
//! fifth larger), so each has a factor of its own for every candidate's size, which starts at 1 and is a little unsure.
//!
//! How far an outcome moves either is [`estimate`](crate::estimate)'s business. Auditions are compared with the reference's
//! on the same slice, which leaves the chunk out of it.
//!
//! Neighbours: [`crate::adaptive`] feeds it outcomes and reads rows. Units: [`PriorCost`], per raw byte.

use std::collections::BTreeMap;

use crate::{
    estimate::{CostEstimate, Level, Spread},
    offers::Offer,
    prior::PriorCost,
    probe::Class,
    receiver::UnpackedReport,
    tuning::tuning,
};

/// Means per class and candidate.
#[derive(Debug)]
pub struct CostTable {
    offers: Vec<Offer>,
    /// Candidates of one number differ by level or history only. Raw's is 0.
    families: Vec<u16>,
    /// What a slice can tell of each candidate's chunks: itself, or the one nearest to it that names no history.
    references: Vec<usize>,
    spreads: Vec<Spread>,
    kinds: BTreeMap<Class, Known>,
    classes: BTreeMap<Class, Own>,
    /// Measured over prior unpacking time, as the receiver tells, common to all candidates.
    unpack_speed: f32,
}

/// One kind: what the priors say of each candidate, and what was measured.
#[derive(Debug)]
struct Known {
    priors: Vec<PriorCost>,
    cells: Vec<Cell>,
    /// What each candidate is taken to cost, where `stale` does not say that there was an outcome since.
    relative: Vec<Relative>,
    stale: bool,
}

/// What one class has of its own, beside what is known of its kind.
#[derive(Debug)]
struct Own {
    level: Level,
    /// How much larger each candidate's packed sizes are than its kind's and the level have it, as factors.
    sizes: Vec<CostEstimate>,
}

/// What one candidate is taken to cost where the class has nothing of its own.
#[derive(Debug, Clone, Copy)]
struct Relative {
    cost: PriorCost,
    basis: Basis,
    /// The doubt about its packing time.
    doubt: f32,
    /// Whose factor of the class's own applies: its own, or that of the one in its family that it was corrected by.
    like: usize,
}

/// What one candidate is taken to cost on one kind, to be multiplied by the class's level.
#[derive(Debug, Clone, Copy)]
struct Cell {
    size: CostEstimate,
    pack: CostEstimate,
    count: u32,
    auditions: u32,
    /// How far auditions are off what was believed of the size: mean square, in logarithms.
    unlike: f32,
}

/// How an estimate came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// From whole chunks of this class.
    Chunks,
    /// From slices of this class.
    Slices,
    /// From the prior and its neighbours.
    Prior,
}

/// What a candidate is expected to cost.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedCost {
    /// The likeliest.
    pub cost: PriorCost,
    /// How it came about.
    pub basis: Basis,
    /// How many times longer it may take to pack where nobody tried it.
    pub doubt: f32,
    /// How far its size may be off: one standard deviation of the logarithm.
    pub size_noise: f32,
    /// Slices of its kind it was tried on.
    pub slices: u32,
    /// Packing time that few chunks exceed, in CPU nanoseconds per raw byte.
    pub pack_most: f32,
    /// What unpacking would take on the priors' machine, in CPU nanoseconds per raw byte.
    pub unpack_prior: f32,
}

/// What a chunk or a slice of it was seen to cost.
#[derive(Debug, Clone, Copy)]
pub struct CostSample {
    /// Raw bytes that were packed.
    pub raw_len: usize,
    /// Packed bytes per raw byte.
    pub size: f32,
    /// CPU nanoseconds per raw byte.
    pub pack: f32,
    /// A whole chunk or a slice.
    pub basis: Basis,
}

impl CostTable {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(offers: Vec<Offer>) -> Self {
        let families = offers
            .iter()
            .map(|o| offers.iter().position(|p| p.name == o.name).unwrap_or(0) as u16)
            .collect();
        let reference = |(index, offer): (usize, &Offer)| {
            let like = |other: &usize| {
                offers[*other].name == offer.name && offers[*other].candidate.history_len == 0
            };
            (0..offers.len())
                .filter(like)
                .min_by_key(|other| other.abs_diff(index))
                .unwrap_or(index)
        };
        Self {
            references: offers.iter().enumerate().map(reference).collect(),
            spreads: offers.iter().map(Spread::of).collect(),
            families,
            kinds: BTreeMap::new(),
            classes: BTreeMap::new(),
            unpack_speed: 1.0,
            offers,
        }
    }

    /// One outcome of a chunk, or what its slice shows where nothing else tells.
    pub fn learn(&mut self, class: Class, index: usize, sample: CostSample) {
        let CostSample {
            raw_len,
            size,
            pack,
            basis,
        } = sample;
        let size = size.max(SIZE_MIN);
        let pack = (pack - indexing_beyond(&self.offers[index], raw_len)).max(pack / 2.0);
        let known = Known::of(&mut self.kinds, &self.offers, class);
        known.stale = true;
        let cell = &mut known.cells[index];
        let Own { level, sizes } = Own::of(&mut self.classes, &self.spreads, class);
        if index == 0 {
            cell.count += 1;
            // Raw says nothing of how the data would pack: what was thought of them comes back by and by.
            level.fade();
            cell.pack.follow(pack);
            return;
        }
        let run = level.run_of(index);
        let tried = cell.count > 0;
        let frozen = &mut CostEstimate::new(1.0, 0.001);
        let own = if tuning().rule_table_own_sizes {
            &mut sizes[index]
        } else {
            frozen
        };
        let found = [
            size / (cell.size.value() * own.value()),
            pack / cell.pack.value(),
        ];
        let unsure = [cell.size.variance() + own.variance(), cell.pack.variance()];
        let [size_noise, pack_noise] = level.learn(index, found, unsure, tried);
        if size < tuning().table_nothing && tuning().rule_table_nothing {
            return;
        }
        *if basis == Basis::Chunks {
            &mut cell.count
        } else {
            &mut cell.auditions
        } += 1;
        let pack_step_max = pack_step_max();
        let relative = (pack / level.pack()).min(pack_step_max * cell.pack.value());
        let share = 1.0 / (1.0 + run as f32);
        CostEstimate::learn_product(
            [&mut cell.size, own],
            size / level.size(),
            size_noise,
            share,
        );
        // One that is slower than thought must show at once; one chunk that is faster may just be an easy one.
        if tuning().rule_table_slower_at_once && run == 0 && relative > cell.pack.value() {
            cell.pack.learn_sure(relative, pack_noise);
        } else {
            cell.pack.learn(relative, pack_noise, share);
        }
    }

    /// One audition: `size` and `pack` are those of candidate `index` over those of `reference` on the same slice.
    pub fn learn_audition(
        &mut self,
        class: Class,
        index: usize,
        reference: usize,
        size: f32,
        pack: f32,
    ) {
        Known::of(&mut self.kinds, &self.offers, class);
        let Relative {
            cost: beside, like, ..
        } = self.relative(&self.kinds[&class.kind_class()], reference);
        let known = self.kinds.get_mut(&class.kind_class()).expect("just made");
        known.stale = true;
        let same_family = self.families[index] == self.families[reference];
        let spread = self.spreads[index].against(self.spreads[reference], same_family);
        let cell = &mut known.cells[index];
        cell.auditions += 1;
        let sizes = &mut Own::of(&mut self.classes, &self.spreads, class).sizes;
        // Where slice after slice says the same, each is believed more than slices of any data can be.
        let size = beside.size * sizes[like].value() * size;
        let frozen = &mut CostEstimate::new(1.0, 0.001);
        let own = if tuning().rule_table_own_sizes {
            &mut sizes[index]
        } else {
            frozen
        };
        let off = (size / (cell.size.value() * own.value())).ln();
        if tuning().rule_table_unlike {
            cell.unlike += (off.powi(2) - cell.unlike) / tuning().table_audition_memory;
        }
        let noise = cell.unlike.sqrt().clamp(
            spread.slice.min(tuning().table_slice_noise_min),
            spread.slice,
        );
        CostEstimate::learn_product_sure([&mut cell.size, own], size, noise);
        let believed = cell.pack.value();
        let pack =
            (beside.pack * pack).clamp(believed / pack_step_max(), believed * pack_step_max());
        cell.pack.learn_sure(pack, tuning().estimate_pack_slice);
    }

    /// The receiver unpacked these. One factor for the machine is learnt: a report does not say which candidate took longer
    /// than thought.
    pub fn learn_unpack(&mut self, unpacked: &UnpackedReport) {
        let prior: f32 = unpacked.prior_ns.iter().map(|&(_, prior)| prior).sum();
        let expected = prior * self.unpack_speed;
        if !tuning().rule_table_unpack || expected <= 0.0 || unpacked.measured_ns <= 0.0 {
            return;
        }
        let ratio = (unpacked.measured_ns / expected).clamp(0.1, 10.0);
        let step = ratio.powf(tuning().table_unpack_follow);
        self.unpack_speed = (self.unpack_speed * step).clamp(0.05, 50.0);
    }

    /// What every candidate is expected to cost on `class` with chunks of `raw_len` bytes, in the order of the offers.
    pub fn estimate(&mut self, class: Class, raw_len: usize, out: &mut Vec<ExpectedCost>) {
        out.clear();
        self.refresh(class);
        let known = &self.kinds[&class.kind_class()];
        let Own { level, sizes } = Own::of(&mut self.classes, &self.spreads, class);
        for index in 0..self.offers.len() {
            let Relative {
                mut cost,
                basis,
                doubt,
                like,
            } = known.relative[index];
            if index > 0 {
                let size = cost.size * sizes[like].value();
                (cost.size, cost.pack) = (level.size_of(size), level.pack() * cost.pack);
            }
            let noise = known.cells[index].pack.variance() + level.pack_noise().powi(2);
            cost.pack += indexing_beyond(&self.offers[index], raw_len).max(-0.5 * cost.pack);
            // The slowest levels take their time on chunks, too, that all others are done with at once.
            let likely = if index > 0 && tuning().rule_table_most {
                cost.pack.max(known.priors[index].pack)
            } else {
                cost.pack
            };
            let pack_most = likely * noise.sqrt().exp().max(doubt);
            let unpack_prior = unpacking(known.priors[index], cost.size);
            cost.unpack = unpack_prior * self.unpack_speed;
            let Cell {
                size,
                auditions: slices,
                ..
            } = &known.cells[index];
            let (size_noise, slices) = (size.variance().sqrt(), *slices);
            out.push(ExpectedCost {
                cost,
                basis,
                doubt,
                size_noise,
                slices,
                pack_most,
                unpack_prior,
            });
        }
    }

    /// Costs of the class's kind, with all that was learnt of it. Kinds have several classes and few outcomes between two
    /// estimates. What other kinds tell counts from the next outcome on, and at once where this one had none.
    fn refresh(&mut self, class: Class) {
        let known = Known::of(&mut self.kinds, &self.offers, class);
        if std::mem::take(&mut known.stale) {
            let mut relative = std::mem::take(&mut known.relative);
            let known = &self.kinds[&class.kind_class()];
            relative.clear();
            relative.extend((0..self.offers.len()).map(|index| self.relative(known, index)));
            let known = Known::of(&mut self.kinds, &self.offers, class);
            known.relative = relative;
            known.stale = known
                .cells
                .iter()
                .all(|cell| cell.count + cell.auditions == 0);
        }
    }

    /// The candidate whose slices are compared with others' where `index` was chosen: slices have no history.
    #[must_use]
    pub fn reference(&self, index: usize) -> usize {
        self.references[index]
    }

    fn relative(&self, known: &Known, index: usize) -> Relative {
        let (mut cost, cell) = (known.priors[index], &known.cells[index]);
        let basis = match () {
            // Raw is what everything else is measured by: nothing to correct but its copying.
            () if index == 0 || cell.count > 0 => Basis::Chunks,
            () if cell.auditions > 0 => Basis::Slices,
            () => return self.corrected(known, index),
        };
        (cost.size, cost.pack) = (cell.size.value(), cell.pack.value());
        Relative {
            cost,
            basis,
            doubt: 1.0,
            like: index,
        }
    }

    /// The prior, corrected by the nearest candidate of the family that was tried, or by any. The further
    /// that one is from it, the more it is doubted.
    fn corrected(&self, known: &Known, index: usize) -> Relative {
        let mut cost = known.priors[index];
        let cells = &known.cells;
        let near = |same_family: bool| {
            (0..cells.len())
                .filter(|&other| cells[other].count + cells[other].auditions > 0)
                .filter(|&other| self.families[other] != 0)
                .filter(|&other| !same_family || self.families[other] == self.families[index])
                .min_by_key(|&other| other.abs_diff(index))
        };
        match near(true)
            .filter(|_| tuning().rule_table_family)
            .map(|other| (other, 1.0))
            .or_else(|| {
                let other = near(false).filter(|_| tuning().rule_table_other_family)?;
                Some((other, tuning().table_trust))
            }) {
            Some((other, trust)) => {
                let (cell, prior) = (&cells[other], known.priors[other]);
                let beside = self.beside(index, other);
                let further = if beside.is_none() {
                    cost.pack / prior.pack
                } else {
                    1.0
                };
                cost.size =
                    (cost.size * (cell.size.value() / prior.size).powf(trust)).clamp(0.001, 1.0);
                cost.pack *= (cell.pack.value() / prior.pack).powf(trust) * beside.unwrap_or(1.0);
                let (doubt, like) = (
                    doubt(further.powf(tuning().table_doubt)),
                    if trust == 1.0 { other } else { index },
                );
                Relative {
                    cost,
                    basis: Basis::Prior,
                    doubt,
                    like,
                }
            }
            None => Relative {
                cost,
                basis: Basis::Prior,
                doubt: doubt(1.0),
                like: index,
            },
        }
    }

    /// How much longer than the priors have it `index` takes beside `other` on the kinds on which both were tried: what
    /// needs more of the caches does worse on one machine than on another, whatever the data.
    fn beside(&self, index: usize, other: usize) -> Option<f32> {
        let mut logs = (0.0, 0.0);
        for Known { priors, cells, .. } in self.kinds.values() {
            let [own, beside] = [index, other].map(|at| cells[at].pack.value() / priors[at].pack);
            if [index, other]
                .iter()
                .all(|&at| cells[at].count + cells[at].auditions > 0)
            {
                logs = (logs.0 + (own / beside).ln(), logs.1 + 1.0);
            }
        }
        let most = tuning().table_beside_max;
        (logs.1 > 0.0 && tuning().rule_table_beside)
            .then(|| (logs.0 / logs.1).exp().clamp(1.0 / most, most))
    }
}

impl Known {
    fn of<'a>(
        kinds: &'a mut BTreeMap<Class, Self>,
        offers: &[Offer],
        class: Class,
    ) -> &'a mut Self {
        kinds.entry(class.kind_class()).or_insert_with(|| {
            let priors: Vec<PriorCost> = offers
                .iter()
                .map(|offer| offer.prior(class.kind(), class.stride()))
                .collect();
            let cells = priors.iter().zip(offers).map(|(prior, offer)| Cell {
                size: CostEstimate::new(prior.size, Spread::of(offer).prior),
                pack: CostEstimate::new(prior.pack, tuning().estimate_pack_prior),
                count: 0,
                auditions: 0,
                unlike: Spread::of(offer).slice.powi(2),
            });
            Self {
                cells: cells.collect(),
                priors,
                relative: Vec::new(),
                stale: true,
            }
        })
    }
}

impl Own {
    fn of<'a>(
        classes: &'a mut BTreeMap<Class, Self>,
        spreads: &[Spread],
        class: Class,
    ) -> &'a mut Self {
        classes.entry(class).or_insert_with(|| {
            let sizes = spreads
                .iter()
                .map(|spread| CostEstimate::new(1.0, spread.class));
            Self {
                level: Level::unknown(),
                sizes: sizes.collect(),
            }
        })
    }
}

/// How far one outcome may show packing times to be off, as a factor.
fn pack_step_max() -> f32 {
    if tuning().rule_table_pack_step {
        tuning().table_pack_step_max
    } else {
        f32::MAX.sqrt()
    }
}

/// How many times longer than estimated what nobody tried may take, where its distance alone says so much.
fn doubt(by_distance: f32) -> f32 {
    if tuning().rule_table_doubt {
        by_distance.max(tuning().table_doubt_min)
    } else {
        1.0
    }
}

/// What indexing takes more before a chunk of this length than before one of the usual length.
fn indexing_beyond(offer: &Offer, chunk_len: usize) -> f32 {
    if tuning().rule_table_indexing {
        offer.indexing_beyond(chunk_len)
    } else {
        0.0
    }
}

/// What unpacking takes where data packs to `size` and not to what the prior has: the fewer codes, the more of it is
/// copying.
fn unpacking(prior: PriorCost, size: f32) -> f32 {
    if !tuning().rule_table_unpack_by_size {
        return prior.unpack;
    }
    (prior.unpack
        * (size / prior.size)
            .min(1.0)
            .powf(tuning().table_unpack_by_size))
    .max(PriorCost::RAW.unpack.min(prior.unpack))
}

/// Smaller sizes are nothing, and their quotients noise.
const SIZE_MIN: f32 = 0.002;

#[cfg(test)]
mod tests {
    use narrows_core::CodecId;

    use super::*;
    use crate::{offers::default_offers, prior::PriorKind};

    fn table() -> (CostTable, Class) {
        let table = CostTable::new(default_offers(|name| Some(CodecId(name.len() as u8)), 0));
        (table, Class(PriorKind::Text as u16))
    }

    fn find(table: &CostTable, name: &str, level: i16) -> usize {
        table
            .offers
            .iter()
            .position(|o| o.name == name && o.candidate.level.0 == level)
            .unwrap()
    }

    #[test]
    fn one_audition_corrects_its_whole_family() {
        let (mut table, class) = table();
        let (one, three) = (find(&table, "zstd", 1), find(&table, "zstd", 3));
        let prior = table.offers[three].prior(class.kind(), class.stride());
        let first = table.offers[one].prior(class.kind(), class.stride());
        table.learn(
            class,
            one,
            CostSample {
                raw_len: 1,
                size: first.size * 0.5,
                pack: first.pack * 2.0,
                basis: Basis::Slices,
            },
        );
        let mut row = Vec::new();
        table.estimate(class, 1, &mut row);
        assert_eq!(row[one].basis, Basis::Slices);
        assert_eq!(row[three].basis, Basis::Prior);
        // Nothing else is known of the class: all of its candidates are taken to do as this one.
        assert!(
            (row[three].cost.size / prior.size - 0.5).abs() < 0.01
                && (row[three].cost.pack / prior.pack - 2.0).abs() < 0.01
        );
    }

    // Goal: what is used says nothing against what is not. Method: thousands of chunks of one candidate, one in twenty of
    // which is zeros and packs in a twentieth of the time, after some of another.
    #[test]
    fn what_is_used_for_long_does_not_move_how_others_compare() {
        let (mut table, class) = table();
        let (one, three) = (find(&table, "zstd", 1), find(&table, "zstd", 3));
        for at in 0..5000 {
            let easy = if at % 20 == 17 { 0.05 } else { 1.0 };
            table.learn(
                class,
                one,
                CostSample {
                    raw_len: 1,
                    size: 0.4 * easy,
                    pack: 3.0 * easy,
                    basis: Basis::Chunks,
                },
            );
            if at < 8 {
                table.learn(
                    class,
                    three,
                    CostSample {
                        raw_len: 1,
                        size: 0.36 * easy,
                        pack: 6.0 * easy,
                        basis: Basis::Chunks,
                    },
                );
            }
        }
        let mut row = Vec::new();
        table.estimate(class, 1, &mut row);
        let [one, three] = [one, three].map(|index| row[index].cost);
        assert!(
            (1.6..2.5).contains(&(three.pack / one.pack)),
            "{one:?} {three:?}"
        );
        assert!(
            (0.8..1.0).contains(&(three.size / one.size)),
            "{one:?} {three:?}"
        );
    }

    // Goal: the same of two that take turns, where one chunk in four is zeros.
    #[test]
    fn zeros_do_not_move_how_candidates_compare() {
        let (mut table, class) = table();
        let [lz4, one, three] =
            [("lz4", 0), ("zstd", 1), ("zstd", 3)].map(|(name, level)| find(&table, name, level));
        for at in 0..600_usize {
            let easy = if at * 7 % 12 < 3 { 0.03 } else { 1.0 };
            let of = [(lz4, 0.5, 1.5), (one, 0.4, 3.0), (three, 0.36, 6.0)];
            let (index, size, pack) = of[if at < 12 { 0 } else { 1 + at * 5 % 11 % 2 }];
            table.learn(
                class,
                index,
                CostSample {
                    raw_len: 1,
                    size: size * easy,
                    pack: pack * easy,
                    basis: Basis::Chunks,
                },
            );
        }
        let mut row = Vec::new();
        table.estimate(class, 1, &mut row);
        let beside = row[lz4].cost.pack / row[one].cost.pack;
        assert!((0.3..0.9).contains(&beside), "{beside}");
    }

    #[test]
    fn one_slow_slice_does_not_rule_a_candidate_out() {
        let (mut table, class) = table();
        let (one, lz4) = (find(&table, "zstd", 1), find(&table, "lz4", 0));
        table.learn(
            class,
            one,
            CostSample {
                raw_len: 1,
                size: 0.4,
                pack: 3.0,
                basis: Basis::Chunks,
            },
        );
        let beside = |table: &mut CostTable| {
            let mut row = Vec::new();
            table.estimate(class, 1, &mut row);
            row[lz4].cost.pack / row[one].cost.pack
        };
        let before = beside(&mut table);
        table.learn_audition(class, lz4, one, 1.2, 30.0);
        assert!(beside(&mut table) < 2.0 * before);
    }

    #[test]
    fn an_audition_tells_how_candidates_compare_whatever_the_slice() {
        let (mut table, class) = table();
        let (one, lz4) = (find(&table, "zstd", 1), find(&table, "lz4", 0));
        table.learn(
            class,
            one,
            CostSample {
                raw_len: 1,
                size: 0.4,
                pack: 3.0,
                basis: Basis::Chunks,
            },
        );
        for _ in 0..20 {
            table.learn_audition(class, lz4, one, 1.2, 0.5);
        }
        let mut row = Vec::new();
        table.estimate(class, 1, &mut row);
        assert!(
            (row[lz4].cost.size / row[one].cost.size - 1.2).abs() < 0.02,
            "{row:?}"
        );
        assert!(
            (row[lz4].cost.pack / row[one].cost.pack - 0.5).abs() < 0.02,
            "{row:?}"
        );
    }

    // Goal: of two codecs of numbers the better one is known, though slices of any data say little of either.
    #[test]
    fn slices_that_say_the_same_again_and_again_are_believed() {
        let beside = |slices: [f32; 2]| {
            let (mut table, class) = table();
            let (one, other) = (
                find(&table, "delta2-zstd", 1),
                find(&table, "shuffle2-zstd", 1),
            );
            table.learn(
                class,
                one,
                CostSample {
                    raw_len: 1,
                    size: 0.6,
                    pack: 3.0,
                    basis: Basis::Chunks,
                },
            );
            for at in 0..40 {
                table.learn_audition(class, other, one, slices[at % 2], 1.0);
            }
            table.learn_audition(class, other, one, 0.9, 1.0);
            let mut row = Vec::new();
            table.estimate(class, 1, &mut row);
            row[other].cost.size / row[one].cost.size
        };
        let unlike = beside([1.6, 1.0]);
        assert!((1.1..1.3).contains(&unlike), "{unlike}");
        let alike = beside([1.3, 1.25]);
        assert!((0.9..1.1).contains(&alike), "{alike}");
    }

    #[test]
    fn what_packs_to_a_tenth_is_unpacked_sooner_and_no_sooner_than_copied() {
        let (mut table, class) = table();
        let one = find(&table, "zstd", 1);
        let prior = table.offers[one].prior(class.kind(), class.stride());
        let mut row = Vec::new();
        let mut unpack = |size: f32| {
            for _ in 0..60 {
                table.learn(
                    class,
                    one,
                    CostSample {
                        raw_len: 1,
                        size,
                        pack: 3.0,
                        basis: Basis::Chunks,
                    },
                );
            }
            table.estimate(class, 1, &mut row);
            row[one].cost.unpack / prior.unpack
        };
        assert_eq!(unpack(2.0 * prior.size), 1.0);
        assert!((0.1..0.3).contains(&unpack(0.1 * prior.size)));
        assert!(unpack(0.002) * prior.unpack >= PriorCost::RAW.unpack);
    }

    // Goal: of two classes of one kind each is known to prefer another candidate. Method: they take turns, as do the
    // candidates, of which one is a fifth better here and a fifth worse there.
    #[test]
    fn classes_of_one_kind_may_differ() {
        let (mut table, class) = table();
        let other = Class(class.0 + 1);
        assert_eq!(class.kind_class(), other.kind_class());
        let [low, one] = [-5, 1].map(|level| find(&table, "zstd", level));
        for at in 0..200 {
            for (class, beside) in [(class, 1.2), (other, 0.8)] {
                let (index, size) = [(one, 0.3), (low, 0.3 * beside)][at % 2];
                table.learn(
                    class,
                    index,
                    CostSample {
                        raw_len: 1,
                        size,
                        pack: 3.0,
                        basis: Basis::Chunks,
                    },
                );
            }
        }
        let mut beside = |class: Class| {
            let mut row = Vec::new();
            table.estimate(class, 1, &mut row);
            row[low].cost.size / row[one].cost.size
        };
        assert!(
            beside(class) > 1.1 && beside(other) < 0.9,
            "{} {}",
            beside(class),
            beside(other)
        );
    }

    #[test]
    fn means_follow_what_changes() {
        let (mut table, class) = table();
        let one = find(&table, "zstd", 1);
        let mut row = Vec::new();
        for size in [0.5, 0.25] {
            for _ in 0..60 {
                table.learn(
                    class,
                    one,
                    CostSample {
                        raw_len: 1,
                        size,
                        pack: 3.0,
                        basis: Basis::Chunks,
                    },
                );
            }
            table.estimate(class, 1, &mut row);
            assert!((row[one].cost.size - size).abs() < 0.01, "{:?}", row[one]);
        }
    }
}
