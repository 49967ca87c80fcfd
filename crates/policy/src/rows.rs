//! The classes of data seen lately, a row each, and which chunks are looked at to tell theirs.
//!
//! Where looks show nothing but data on which raw wins clearly, more and more chunks pass without one, taken for what
//! the last was. Invariant: there are at most `rows_max` rows; the one with the least mass makes room.

use std::ops::{Deref, DerefMut};

use crate::{
    offers::Offer,
    prior::PriorCost,
    probe::{ChunkProbe, Class},
    solve::{NEVER, Times},
    table::{Basis, ExpectedCost},
    tuning::tuning,
};

#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    probe: ChunkProbe,
    /// Chunks still to pass without a look, and the row they are taken for.
    unlooked: u32,
    last: usize,
    /// Looks in a row that showed data on which raw wins clearly.
    dull: u32,
}

/// One class seen lately.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) class: Class,
    /// Raw bytes seen, fading.
    mass: f32,
    pub(crate) costs: Vec<ExpectedCost>,
    pub(crate) times: Vec<Times>,
    pub(crate) chunks: u64,
    /// Which candidates were asked for an audition since the last round of them began.
    pub(crate) asked: Vec<bool>,
    /// Chunks with auditions in this round.
    pub(crate) round: u64,
    /// Chunks with which the next round begins at the latest. Kept, since not every chunk is looked at: a multiple
    /// would be missed.
    pub(crate) next_round: u64,
    /// A chunk packed otherwise than expected: what is known of the class may be old.
    pub(crate) surprised: bool,
    /// A codec of numbers was seen to pack it to next to nothing.
    pub(crate) packs_as_numbers: bool,
}

/// Where a chunk belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Its row.
    pub(crate) at: usize,
    /// It was looked at.
    pub(crate) looked: bool,
    /// The row was not there before.
    pub(crate) new: bool,
}

impl Row {
    fn new(class: Class) -> Self {
        Self {
            class,
            mass: 0.0,
            costs: Vec::new(),
            times: Vec::new(),
            chunks: 0,
            asked: Vec::new(),
            round: 0,
            next_round: 0,
            surprised: false,
            packs_as_numbers: false,
        }
    }

    /// Whether enough of it was seen, of `total` in all, to have a part in the prices.
    pub(crate) fn counts(&self, total: f32) -> bool {
        self.mass > tuning().rows_share_min * total || !tuning().rule_rows_share
    }

    /// Both ends on one machine, whose processors packing has `pack` of: what takes both them and the link more than
    /// another candidate does, the kernel's carrying included, costs that much. Else an idle link is filled with what
    /// keeps the processors from packing.
    pub(crate) fn rule_out_worse(&mut self, pack: f32) {
        let whole = |PriorCost { size, pack, unpack }: PriorCost| {
            pack + unpack + size * tuning().rows_kernel
        };
        let possible = self
            .costs
            .iter()
            .zip(&self.times)
            .filter(|(_, times)| times[0] < NEVER);
        let least = possible
            .map(|(expected, _)| expected.cost)
            .min_by(|&a, &b| whole(a).total_cmp(&whole(b)));
        let Some(least) = least else { return };
        for (ExpectedCost { cost, .. }, times) in self.costs.iter().zip(&mut self.times) {
            if cost.size > least.size && times[0] < NEVER {
                times[0] = whole(*cost) / pack;
            }
        }
    }

    /// Raw that takes the link twice as long as another candidate, of which that is certain, takes each stage. What
    /// raw would save packing is a forecast of processors that the kernel needs as well: memory at 2.5 Gbit/s went raw by
    /// up to a fifth, and was at 0.9 of LZ4 throughout. And each such chunk holds up all that are under way.
    pub(crate) fn rule_out_lumps(&mut self) {
        let longest = |times: &Times| times[0].max(times[1]).max(times[2]);
        let certain = self
            .costs
            .iter()
            .zip(&self.times)
            .filter(|(expected, _)| expected.basis == Basis::Chunks);
        let least = certain
            .skip(1)
            .map(|(_, times)| longest(times))
            .min_by(f32::total_cmp);
        if least.is_some_and(|least| self.times[0][1] > tuning().rows_lump * least) {
            self.times[0] = [NEVER; 3];
        }
    }

    /// Whether no whole chunk goes to this candidate before a slice did: what packs well as numbers may have no repeats
    /// at all, which one slice shows and no prior knows.
    pub(crate) fn is_left_to_slices(&self, index: usize, offers: &[Offer]) -> bool {
        self.packs_as_numbers
            && self.costs[index].basis == Basis::Prior
            && !offers[index].is_typed()
    }

    /// Its share of `total`.
    pub(crate) fn share(&self, total: f32) -> f32 {
        self.mass / total
    }
}

impl Rows {
    /// The row of this chunk, to which its bytes are added: looks at it unless the last looks make one unnecessary.
    pub(crate) fn find(&mut self, raw: &[u8]) -> Found {
        let found = if self.unlooked > 0 && self.last < self.rows.len() {
            self.unlooked -= 1;
            Found {
                at: self.last,
                looked: false,
                new: false,
            }
        } else {
            self.look(raw)
        };
        for row in &mut self.rows {
            row.mass *= 1.0 - 1.0 / tuning().rows_memory;
        }
        self.rows[found.at].mass += raw.len() as f32;
        self.last = found.at;
        found
    }

    fn look(&mut self, raw: &[u8]) -> Found {
        let class = self
            .probe
            .look(raw)
            .map_or(Class::UNSEEN, |features| features.class());
        if let Some(at) = self.rows.iter().position(|row| row.class == class) {
            return Found {
                at,
                looked: true,
                new: false,
            };
        }
        if self.rows.len() == tuning().rows_max {
            let least = (0..tuning().rows_max)
                .min_by(|&a, &b| self.rows[a].mass.total_cmp(&self.rows[b].mass))
                .expect("tuning().rows_max > 0");
            self.rows.swap_remove(least);
        }
        self.rows.push(Row::new(class));
        Found {
            at: self.rows.len() - 1,
            looked: true,
            new: true,
        }
    }

    /// Raw bytes seen in all, fading.
    pub(crate) fn mass(&self) -> f32 {
        self.rows.iter().map(|row| row.mass).sum()
    }

    /// After a look: how many of the next chunks, which take the link `chunk_ns` each, need none. More, the longer
    /// looks showed nothing but dull data.
    pub(crate) fn rest(&mut self, dull: bool, chunk_ns: f32) {
        self.dull = if dull { self.dull + 1 } else { 0 };
        let most = (tuning().rows_rest_ns / chunk_ns).min(tuning().rows_rest_max as f32) as u32;
        self.unlooked = self.dull.saturating_sub(tuning().rows_dull_min).min(most);
    }
}

impl Deref for Rows {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.rows
    }
}

impl DerefMut for Rows {
    fn deref_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(cost: PriorCost, basis: Basis) -> ExpectedCost {
        let PriorCost { pack, unpack, .. } = cost;
        ExpectedCost {
            cost,
            basis,
            doubt: 1.0,
            size_noise: 0.0,
            slices: 0,
            pack_most: pack,
            unpack_prior: unpack,
        }
    }

    // Goal: where packing takes the processors less than the kernel takes for what it saves, an idle link does not
    // tempt.
    #[test]
    fn what_takes_processors_and_link_more_than_another_is_charged_for_both() {
        let row = |costs: &[PriorCost]| {
            let mut row = Row::new(Class::UNSEEN);
            row.costs = costs
                .iter()
                .map(|&cost| expected(cost, Basis::Prior))
                .collect();
            row.times = costs
                .iter()
                .map(|cost| [(cost.pack + cost.unpack) / 2.0, cost.size, 0.0])
                .collect();
            row.rule_out_worse(2.0);
            row.times.iter().map(|times| times[0]).collect::<Vec<_>>()
        };
        let (lz4, zstd) = (
            PriorCost {
                size: 0.01,
                pack: 0.1,
                unpack: 0.1,
            },
            PriorCost {
                size: 0.001,
                pack: 0.3,
                unpack: 0.1,
            },
        );
        assert_eq!(row(&[PriorCost::RAW, lz4, zstd])[1..], [0.1, 0.2]);
        assert!(row(&[PriorCost::RAW, lz4, zstd])[0] > 0.3);
        let dear = PriorCost {
            size: 0.5,
            pack: 1.0,
            unpack: 0.2,
        };
        assert_eq!(row(&[PriorCost::RAW, dear]), [0.07, 0.6]);
    }

    // Goal: where 2.5 Gbit/s take for a raw byte what packing takes for two and a half, raw is out, once that is certain.
    #[test]
    fn raw_that_would_hold_up_all_others_is_ruled_out() {
        let is_out = |link_ns: f32, basis: Basis| {
            let mut row = Row::new(Class::UNSEEN);
            let packed = PriorCost {
                size: 0.36,
                pack: 1.3,
                unpack: 0.3,
            };
            row.costs = [(PriorCost::RAW, Basis::Chunks), (packed, basis)]
                .map(|(cost, basis)| expected(cost, basis))
                .into();
            row.times = vec![[0.05, link_ns, 0.05], [1.3, 0.36 * link_ns, 0.15]];
            row.rule_out_lumps();
            row.times[0][1] >= NEVER
        };
        assert!(is_out(3.3, Basis::Chunks));
        assert!(!is_out(3.3, Basis::Prior));
        assert!(!is_out(2.4, Basis::Chunks));
    }

    #[test]
    fn dull_data_are_looked_at_less_and_less_and_others_at_once_again() {
        let mut rows = Rows::default();
        let chunk = [7; 4096];
        let mut looks = 0;
        for _ in 0..1000 {
            if rows.find(&chunk).looked {
                looks += 1;
                rows.rest(true, 1e3);
            }
        }
        assert!((1000 / 16..200).contains(&looks), "{looks} looks");
        while !rows.find(&chunk).looked {}
        rows.rest(false, 1e3);
        assert!(rows.find(&chunk).looked);
        // A chunk that takes the link long is always looked at.
        (0..100).for_each(|_| rows.rest(true, 3e6));
        assert!(rows.find(&chunk).looked);
    }
}
