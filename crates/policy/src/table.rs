//! What each candidate cost on each class of data: weighted means, corrected priors where nothing was measured.
//!
//! Why corrected priors: nobody can try thirty candidates on every class. A candidate never tried on a class takes its
//! prior times what the *nearest tried candidate of the same family* showed against its own prior, so that one
//! audition of zstd 1 also tells about zstd 3, and the speed of this machine is learned by whatever runs.
//!
//! Neighbours: [`crate::adaptive`] feeds it outcomes and reads rows. Units: [`Cost`], per raw byte.

use std::collections::BTreeMap;

use crate::{offers::Offer, peer::Unpacked, prior::Cost, probe::Class};

/// Means per class and candidate.
#[derive(Debug)]
pub struct Table {
    offers: Vec<Offer>,
    /// Candidates of one number differ by level or history only. Raw's is 0.
    families: Vec<u16>,
    classes: BTreeMap<Class, Known>,
    /// Measured over prior packing time, per candidate, over all classes.
    speed: Vec<f32>,
    /// The same for unpacking, as the receiver tells: each candidate's own factor, and the one common to all.
    unpack_speed: Vec<f32>,
    unpack_speed_all: f32,
    /// Size of whole chunks over size of auditioned slices.
    slice_bias: f32,
}

/// One class: what the priors say of each candidate, and what was measured.
#[derive(Debug)]
struct Known {
    priors: Vec<Cost>,
    cells: Vec<Cell>,
}

/// One mean. `size` and `pack` mean nothing while `count` and `auditions` are 0.
#[derive(Debug, Clone, Copy)]
struct Cell {
    size: f32,
    pack: f32,
    /// Size on slices alone.
    slice_size: f32,
    count: u32,
    auditions: u32,
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

impl Table {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(offers: Vec<Offer>) -> Self {
        let families =
            offers.iter().map(|o| offers.iter().position(|p| p.name == o.name).unwrap_or(0) as u16).collect();
        let speed = vec![1.0; offers.len()];
        Self {
            families,
            classes: BTreeMap::new(),
            unpack_speed: vec![1.0; offers.len()],
            unpack_speed_all: 1.0,
            slice_bias: 1.0,
            offers,
            speed,
        }
    }

    /// One outcome: `size` packed bytes and `pack` CPU nanoseconds per raw byte.
    pub fn learn(&mut self, class: Class, index: usize, size: f32, pack: f32, audition: bool) {
        let known = Known::of(&mut self.classes, &self.offers, class);
        let ratio = (pack / known.priors[index].pack).clamp(0.02, 50.0);
        let cell = &mut known.cells[index];
        if audition {
            cell.auditions += 1;
            cell.slice_size = mean(cell.slice_size, size, cell.auditions);
            if cell.count == 0 {
                cell.size = cell.slice_size;
                cell.pack = mean(cell.pack, pack, cell.auditions);
            } else {
                // Long unused: a slice is the only news.
                cell.size = mean(cell.size, size * self.slice_bias, 4);
                cell.pack = mean(cell.pack, pack, 4);
            }
        } else {
            cell.count += 1;
            cell.size = mean(cell.size, size, cell.count);
            cell.pack = mean(cell.pack, pack, cell.count);
            if cell.auditions > 0 && cell.slice_size > 0.0 {
                let bias = (cell.size / cell.slice_size).clamp(0.7, 1.2);
                self.slice_bias += 0.05 * (bias - self.slice_bias);
            }
        }
        self.speed[index] = if self.speed[index] == 1.0 { ratio } else { mean(self.speed[index], ratio, 4) };
    }

    /// The receiver unpacked these. One factor for the machine does most; each candidate's own follows slowly, because
    /// a report does not say which of them took longer than thought.
    pub fn learn_unpack(&mut self, unpacked: &Unpacked) {
        let factor = |index: usize| self.unpack_speed[index] * self.unpack_speed_all;
        let expected: f32 = unpacked.prior_ns.iter().map(|&(index, prior)| prior * factor(index)).sum();
        if expected <= 0.0 || unpacked.measured_ns <= 0.0 {
            return;
        }
        let ratio = (unpacked.measured_ns / expected).clamp(0.1, 10.0);
        for &(index, prior) in &unpacked.prior_ns {
            let share = prior * self.unpack_speed[index] * self.unpack_speed_all / expected;
            self.unpack_speed[index] = (self.unpack_speed[index] * ratio.powf(0.2 * share)).clamp(0.2, 5.0);
        }
        self.unpack_speed_all = (self.unpack_speed_all * ratio.powf(0.5)).clamp(0.05, 50.0);
    }

    /// Prior unpacking time of `index` on `class`, in CPU nanoseconds per raw byte.
    #[must_use]
    pub fn prior_unpack(&self, class: Class, index: usize) -> f32 {
        self.classes.get(&class).map_or(0.0, |known| known.priors[index].unpack)
    }

    /// What every candidate is expected to cost on `class`, in the order of the offers.
    pub fn estimate(&mut self, class: Class, out: &mut Vec<(Cost, Basis)>) {
        out.clear();
        Known::of(&mut self.classes, &self.offers, class);
        let known = &self.classes[&class];
        for index in 0..self.offers.len() {
            let mut cost = known.priors[index];
            cost.unpack *= self.unpack_speed[index] * self.unpack_speed_all;
            let cell = &known.cells[index];
            let basis = match () {
                // Raw is what everything else is measured by: nothing to correct but its copying, once measured.
                () if self.families[index] == 0 => {
                    if cell.count > 0 {
                        cost.pack = cell.pack;
                    }
                    Basis::Chunks
                }
                () if cell.count > 0 => {
                    (cost.size, cost.pack) = (cell.size, cell.pack);
                    Basis::Chunks
                }
                () if cell.auditions > 0 => {
                    (cost.size, cost.pack) = ((cell.size * self.slice_bias).min(cell.size.max(1.0)), cell.pack);
                    Basis::Slices
                }
                () => {
                    self.correct(known, index, &mut cost);
                    Basis::Prior
                }
            };
            out.push((cost, basis));
        }
    }

    /// Corrects a prior by the nearest candidate of the family that was tried, or by the machine's speed.
    fn correct(&self, known: &Known, index: usize, cost: &mut Cost) {
        let cells = &known.cells;
        let near = |same_family: bool| {
            (0..cells.len())
                .filter(|&other| cells[other].count + cells[other].auditions > 0)
                .filter(|&other| self.families[other] != 0)
                .filter(|&other| !same_family || self.families[other] == self.families[index])
                .min_by_key(|&other| other.abs_diff(index))
        };
        match near(true).map(|other| (other, 1.0)).or_else(|| near(false).map(|other| (other, 0.5))) {
            Some((other, trust)) => {
                let (cell, prior) = (&cells[other], known.priors[other]);
                cost.size = (cost.size * (cell.size / prior.size).powf(trust)).clamp(0.001, 1.0);
                cost.pack *= (cell.pack / prior.pack).powf(trust);
            }
            None => cost.pack *= self.speed_near(index),
        }
    }

    /// Speed of this machine against the priors' by what was measured on other classes.
    fn speed_near(&self, index: usize) -> f32 {
        (0..self.speed.len())
            .filter(|&other| self.speed[other] != 1.0 && self.families[other] != 0)
            .min_by_key(|&other| (self.families[other] != self.families[index], other.abs_diff(index)))
            .map_or(1.0, |other| self.speed[other].clamp(0.2, 5.0))
    }
}

impl Known {
    fn of<'a>(classes: &'a mut BTreeMap<Class, Self>, offers: &[Offer], class: Class) -> &'a mut Self {
        classes.entry(class).or_insert_with(|| Self {
            priors: offers.iter().map(|offer| offer.prior(class.kind(), class.stride())).collect(),
            cells: vec![Cell::EMPTY; offers.len()],
        })
    }
}

impl Cell {
    const EMPTY: Self = Self { size: 0.0, pack: 0.0, slice_size: 0.0, count: 0, auditions: 0 };
}

/// Moves `old` towards `new`, the `count`-th sample: the first stands alone, later ones weigh at least a fifth.
fn mean(old: f32, new: f32, count: u32) -> f32 {
    old + (new - old) / count.clamp(1, 5) as f32
}

#[cfg(test)]
mod tests {
    use narrows_core::CodecId;

    use super::*;
    use crate::{offers::default_offers, prior::Kind};

    fn table() -> (Table, Class) {
        let table = Table::new(default_offers(|name| Some(CodecId(name.len() as u8)), 0));
        (table, Class(Kind::Text as u16 * 32))
    }

    fn find(table: &Table, name: &str, level: i16) -> usize {
        table.offers.iter().position(|o| o.name == name && o.candidate.level.0 == level).unwrap()
    }

    #[test]
    fn one_audition_corrects_its_whole_family() {
        let (mut table, class) = table();
        let (one, three) = (find(&table, "zstd", 1), find(&table, "zstd", 3));
        let prior = table.offers[three].prior(class.kind(), class.stride());
        let first = table.offers[one].prior(class.kind(), class.stride());
        table.learn(class, one, first.size * 0.5, first.pack * 2.0, true);
        let mut row = Vec::new();
        table.estimate(class, &mut row);
        assert_eq!(row[one].1, Basis::Slices);
        assert_eq!(row[three].1, Basis::Prior);
        assert!(
            (row[three].0.size / prior.size - 0.5).abs() < 0.01 && (row[three].0.pack / prior.pack - 2.0).abs() < 0.01
        );
    }

    #[test]
    fn means_follow_what_changes() {
        let (mut table, class) = table();
        let one = find(&table, "zstd", 1);
        let mut row = Vec::new();
        for size in [0.5, 0.25] {
            for _ in 0..60 {
                table.learn(class, one, size, 3.0, false);
            }
            table.estimate(class, &mut row);
            assert!((row[one].0.size - size).abs() < 0.01, "{:?}", row[one]);
        }
    }
}
