//! The default policy: every chunk takes the candidate with the lowest price.
//!
//! A chunk's way through [`Adaptive::decide`]:
//!
//! 1. It goes raw without a look where [`duel`](crate::duel) sees that raw gets more through on a link as fast as memory,
//!    or [`answer_duel`](crate::answer_duel) that messages are answered sooner raw.
//! 2. [`probe`](crate::probe) looks at it and tells its class (on dull data the last look counts). The class has a row of
//!    what every candidate is expected to cost ([`table`](crate::table)), as times of the three stages at the capacities
//!    that [`rate`](crate::rate), [`cpu_capacity`](crate::cpu_capacity) and [`receiver`](crate::receiver) estimate.
//! 3. [`solve`](crate::solve) weighs the stages, [`balance`](crate::balance) tilts the weights to keep the stages level, and
//!    the candidate of the least price wins, the time counted in which the link would wait for it.
//! 4. Now and then [`explore`](crate::explore) adds an audition, or takes another candidate to try it.
//!
//! [`Adaptive::learn`] tells the table what became of the chunk, and the balance what the choice really cost;
//! [`Adaptive::feedback`] tells the receiver's model. [`length`] says how long the next chunk is to be.
//!
//! A pure state machine: reads no clock, draws no random numbers. Units: nanoseconds a raw byte, of all workers of a stage
//! together, where the modules say nothing else.

use std::{iter::once, sync::Arc};

use narrows_core::{
    Ahead, Candidate, Decision, Feedback, Gauges, Outcome, Policy,
    policy::{AUDITION_LEN, Estimate},
};

use crate::{
    answer_duel::AnswerDuel,
    balance::StageBalance,
    capacity::Capacity,
    config::Config,
    cpu_capacity::CpuCapacity,
    duel::{DuelSide, FastLink, RawDuel},
    explore::{Explorer, Situation},
    length,
    offers::Offer,
    pending::{Decided, Pending},
    prior::PriorCost,
    rate::LinkRate,
    receiver::{ReceiverModel, UnpackedReport},
    rows::{Found, Row, Rows},
    solve::{NEVER, PriceWeights, Times, solve, weighted},
    table::{Basis, CostSample, CostTable, ExpectedCost},
    tuning::tuning,
};

/// See the module.
#[derive(Debug)]
pub struct Adaptive {
    config: Config,
    offers: Vec<Offer>,
    allowed: Vec<bool>,
    table: CostTable,
    rate: LinkRate,
    effort: CpuCapacity,
    peer: ReceiverModel,
    account: StageBalance,
    explorer: Explorer,
    guard: RawDuel,
    answers: AnswerDuel,
    /// Moment and time without credit so far: at the last report, and now.
    starved: [(u64, u64); 2],
    rows: Rows,
    weights: PriceWeights,
    pending: Pending,
    unpacked: UnpackedReport,
    decided: u64,
    solved_ns: u64,
    /// Packed over raw of the last decisions, expected.
    size: f32,
    /// Share of the last decisions' bytes that are packed with history.
    with_history: f32,
    /// Length of a frame lately, in bytes, expected.
    frame_len: f32,
    /// Length of the last chunk: what indexing history costs depends on it.
    chunk_len_last: usize,
}

impl Adaptive {
    /// Chooses among `offers`; raw is added where it is missing.
    #[must_use]
    pub fn new(mut offers: Vec<Offer>, config: Config) -> Self {
        offers.retain(|offer| offer.candidate != Candidate::RAW);
        offers.insert(0, Offer::new(Candidate::RAW, "raw"));
        let level_max = config.level_max.map_or(i16::MAX, |level| level.0);
        let allowed = offers
            .iter()
            .map(|offer| {
                offer.candidate.level.0 <= level_max
                    && offer.candidate.history_len <= config.history_len_max
            })
            .collect();
        Self {
            allowed,
            table: CostTable::new(offers.clone()),
            rate: config.link_rate(),
            effort: CpuCapacity::default(),
            peer: ReceiverModel::default(),
            account: StageBalance::default(),
            explorer: Explorer::default(),
            guard: RawDuel::default(),
            answers: AnswerDuel::default(),
            starved: [(0, 0); 2],
            rows: Rows::default(),
            weights: [0.5, 0.5, 0.0],
            pending: Pending::default(),
            unpacked: UnpackedReport::default(),
            decided: 0,
            solved_ns: 0,
            size: 0.5,
            with_history: 0.0,
            frame_len: 0.0,
            chunk_len_last: length::CHUNK_LEN_MIN,
            offers,
            config,
        }
    }

    /// What the link is believed to carry, in bytes per second.
    #[must_use]
    pub fn rate_bytes_per_s(&self) -> f64 {
        self.rate.bytes_per_ns() * 1e9
    }

    /// Weights of packing, link and unpacking as last solved, for `--explain`.
    #[must_use]
    pub fn weights(&self) -> PriceWeights {
        self.weights
    }

    /// Rebuilds the rows of the classes seen lately and solves for the weights.
    fn solve(&mut self, gauges: &Gauges) {
        let capacity = self.capacity(gauges);
        let total = self.rows.mass();
        for row in self
            .rows
            .iter_mut()
            .filter(|row| row.counts(total) || row.times.is_empty())
        {
            self.table
                .estimate(row.class, self.chunk_len_last, &mut row.costs);
            row.times.clear();
            let has_numbers = row.class.has_numbers();
            let times = row.costs.iter().enumerate().map(|(index, expected)| {
                let is_raw = index == 0;
                let offer = &self.offers[index];
                // Memory and programs have pages of all sorts. A few that packed better as numbers, where the probe saw
                // none, must not draw the others after them: only whole chunks count as proof.
                let is_unfit = offer.is_typed() && !has_numbers;
                let unproved =
                    is_unfit && tuning().rule_unfit_needs_proof && expected.basis != Basis::Chunks;
                if !is_raw
                    && (expected.cost.size > 1.0 - tuning().choice_saving_min
                        || !self.allowed[index]
                        || unproved)
                {
                    return [NEVER; 3];
                }
                let caution = if is_unfit && tuning().rule_unfit_caution {
                    (tuning().choice_caution * expected.size_noise).exp()
                } else {
                    1.0
                };
                capacity.times(expected.cost, &offer.candidate, is_raw, caution)
            });
            row.times.extend(times);
            if capacity.is_shared && tuning().rule_rule_out_worse {
                row.rule_out_worse(capacity.pack);
            }
            if tuning().rule_rule_out_lumps {
                row.rule_out_lumps();
            }
            row.packs_as_numbers = tuning().rule_left_to_slices
                && row.costs.iter().zip(&self.offers).any(|(expected, offer)| {
                    expected.basis == Basis::Chunks
                        && expected.cost.size < tuning().choice_packs_well
                        && offer.is_typed()
                });
        }
        let classes: Vec<(f32, &[Times])> = self
            .rows
            .iter()
            .filter(|row| row.counts(total))
            .map(|row| (row.share(total), row.times.as_slice()))
            .collect();
        if !classes.is_empty() {
            self.weights = solve(&classes);
        }
        self.solved_ns = gauges.now_ns;
    }

    fn capacity(&self, gauges: &Gauges) -> Capacity {
        let is_shared = self.config.shared_host;
        let efficiency = if is_shared {
            1.0
        } else {
            self.effort.efficiency()
        };
        Capacity {
            pack: gauges.workers.max(1) as f32 * efficiency * self.effort.trim(),
            link: self.rate.bytes_per_ns() as f32,
            unpack: self.peer.capacity(gauges.workers),
            unpack_one: self.peer.efficiency(),
            io: self.peer.io(0.0),
            cpu_price: self.config.cpu_price as f32,
            is_shared,
        }
    }

    /// The cheapest candidate of the row, the link's idle time counted, and the reason.
    ///
    /// The link is idle where packing *probably* takes longer than what is queued keeps it busy, and than the workers
    /// together may take while it is busy with their chunks. What takes longer *at worst*, behind all that is being packed
    /// already, is late and refused. Neither counts for what takes no longer than `hold_up_ns`.
    fn choose(
        &self,
        row: &Row,
        raw_len: f32,
        message: bool,
        weights: PriceWeights,
        gauges: &Gauges,
    ) -> (usize, &'static str) {
        let link = self.rate.bytes_per_ns() as f32;
        let in_work_ns = gauges.packing as f32 * raw_len * self.size / link;
        let drain_ns = gauges.queued_bytes as f32 / link + in_work_ns;
        let workers = gauges.workers.max(1) as f32;
        // Of n workers each may take as long as the link takes for n chunks. While its rate is a guess, few are counted.
        let at_once = if self.rate.is_measured() || !tuning().rule_unmeasured_workers {
            workers
        } else {
            workers.min(tuning().choice_unmeasured_workers)
        };
        let efficiency = self.effort.efficiency();
        // With nothing before it, a message takes the sum of its stages, not the longest of them, and one worker at each end:
        // times are those of all workers together.
        let alone = |[pack, link, unpack]: Times| (pack + unpack) * workers + link;
        let price = |index: usize| match index {
            _ if !message => weighted(row.times[index], weights),
            0 => alone(row.times[0]),
            _ => alone(row.times[index]) + tuning().choice_message_ns / raw_len,
        };
        let hold_up_ns = (tuning().choice_hold_up_share * raw_len / link)
            .clamp(tuning().choice_hold_up_ns, tuning().choice_hold_up_max_ns);
        let backlog_ns = self.pending.backlog_ns() / workers;
        let mut best = (0, price(0));
        let mut refused = NEVER;
        for index in 1..row.times.len() {
            let least = price(index);
            if least < best.1 && !row.is_left_to_slices(index, &self.offers) {
                let cost = row.costs[index].cost;
                let pack_ns = row.costs[index].doubt * cost.pack * raw_len / efficiency;
                let room_ns = (tuning().choice_drain_share * drain_ns)
                    .max(at_once * cost.size * raw_len / link);
                // Several slow chunks, chosen before the first of them showed how slow it is, would all come late.
                let most_ns = row.costs[index].pack_most * raw_len / efficiency;
                let late_ns = most_ns + backlog_ns / efficiency;
                let is_late = most_ns > hold_up_ns
                    && late_ns > (room_ns + in_work_ns).max(tuning().choice_late_ns);
                let is_refused = is_late && tuning().rule_late
                    || pack_ns > hold_up_ns.max(tuning().choice_hold_up_max_ns);
                let idle_ns = if tuning().rule_hold_up {
                    (pack_ns - room_ns.max(hold_up_ns)).max(0.0)
                } else {
                    0.0
                };
                let price = least + weights[1] * idle_ns / raw_len;
                if price < best.1 && !is_refused {
                    best = (index, price);
                } else {
                    refused = refused.min(least);
                }
            }
        }
        let why = match (best.0, refused < best.1) {
            (0, false) if row.times[1..].iter().all(|times| times[0] >= NEVER) => "incompressible",
            (_, true) => "latency",
            _ => "price",
        };
        (best.0, why)
    }

    /// Keeps what a raw byte takes lately: by bytes, so that long chunks on slow links do not take seconds to show.
    fn note_size(&mut self, size: f32, history: bool, raw_len: f32) {
        let weight = (raw_len / tuning().choice_size_memory).clamp(
            tuning().choice_size_weight_min,
            tuning().choice_size_weight_max,
        );
        self.size += (size - self.size) * weight;
        self.with_history += (f32::from(u8::from(history)) - self.with_history) * weight;
        self.frame_len = self.size * raw_len;
    }

    /// Raw without a look: nothing is to be learnt from it, and the balance does not know of it.
    fn raw(&mut self, now_ns: u64, raw_len: usize, why: &'static str) -> Decision {
        let ticket = self.decided as u32;
        self.decided += 1;
        self.note_size(1.0, false, raw_len as f32);
        self.peer
            .note(now_ns, 0, raw_len, 1.0, PriorCost::RAW.unpack);
        self.pending.skip(ticket);
        let packed_len = raw_len as u32;
        Decision {
            candidate: Candidate::RAW,
            ticket,
            estimate: Estimate {
                packed_len,
                link_bytes_per_s: self.rate_bytes_per_s() as u64,
                ..Estimate::default()
            },
            audition: None,
            why,
        }
    }

    /// Whether raw wins clearly on this row, so that looking for something better soon again is a waste.
    fn is_dull(&self, row: &Row, index: usize) -> bool {
        let raw = weighted(row.times[0], self.weights);
        index == 0
            && row.times[1..]
                .iter()
                .all(|&times| weighted(times, self.weights) > tuning().choice_clear * raw)
    }
}

impl Adaptive {
    /// Raw, where that is decided without looking at the chunk.
    fn without_a_look(&mut self, raw_len: usize, gauges: &Gauges) -> Option<Decision> {
        let in_hand = u64::from(gauges.packing) * self.chunk_len_last as u64
            + (gauges.queued_bytes as f32 / self.size.max(0.1)) as u64
            + tuning().choice_in_kernel;
        let link = FastLink {
            believed: self.rate.surely(gauges.sent_bytes),
            at_most: if self.rate.is_measured() && !self.peer.is_behind() {
                self.rate.bytes_per_ns()
            } else {
                f64::INFINITY
            },
        };
        if tuning().rule_raw_duel
            && self.guard.way(gauges.now_ns, raw_len, link, in_hand) == DuelSide::Raw
        {
            return Some(self.raw(gauges.now_ns, raw_len, "floor"));
        }
        (tuning().rule_answer_duel
            && is_message(raw_len, gauges)
            && self.answers.raw_is_better(raw_len, gauges.now_ns))
        .then(|| self.raw(gauges.now_ns, raw_len, "answers"))
    }

    /// Adds an audition to the choice, or tries another candidate instead, if either is due.
    fn explore(
        &mut self,
        at: usize,
        choice: &mut Choice,
        raw_len: usize,
        weights: PriceWeights,
        gauges: &Gauges,
    ) {
        let link = self.rate.bytes_per_ns() as f32;
        // What a processor's time is worth to the stream or, where it has enough of it, to others. No less than the share
        // of packing's time on the clock in which it waits for a processor: the kernel needs them as well, which the
        // link's weight does not show.
        let worth = weights[0]
            .max(self.config.cpu_price as f32 * weights[1])
            .max(1.0 - self.effort.efficiency());
        let situation = Situation {
            chosen: choice.index,
            raw_len,
            weights,
            worth,
            gauges,
            offers: &self.offers,
            link,
        };
        let proposal = self.explorer.propose(&mut self.rows[at], &situation);
        choice.audition = proposal.audition;
        if let Some(other) = proposal.instead {
            (choice.index, choice.why, choice.audition) = (other, "explore", None);
        }
        if let Some(candidates) = &choice.audition {
            if choice.reference == 0 {
                choice.reference = self
                    .offers
                    .iter()
                    .position(|offer| offer.candidate == candidates[0])
                    .unwrap_or(0);
            } else {
                let slice_len = raw_len.min(AUDITION_LEN) as f32;
                self.explorer
                    .charge(self.rows[at].costs[choice.reference].cost.pack * slice_len);
                choice.audition = Some(
                    once(self.offers[choice.reference].candidate)
                        .chain(candidates.iter().copied())
                        .collect(),
                );
            }
        }
        let dull = tuning().rule_rest && self.is_dull(&self.rows[at], choice.index);
        self.rows.rest(dull, raw_len as f32 / link);
    }

    /// Keeps what was decided for a chunk of this row until its outcome is known.
    fn enter(&mut self, at: usize, choice: Choice, raw_len: usize, now_ns: u64) -> Decision {
        let Choice {
            index,
            why,
            reference,
            audition,
        } = choice;
        let row = &mut self.rows[at];
        row.chunks += 1;
        let (class, times) = (row.class, row.times[index]);
        let ExpectedCost {
            cost,
            pack_most,
            unpack_prior,
            ..
        } = row.costs[index];
        let len = raw_len as f32;
        self.account.charge(times, len);
        self.peer
            .note(now_ns, index, raw_len, cost.size, unpack_prior);
        let candidate = self.offers[index].candidate;
        self.note_size(cost.size, candidate.history_len > 0, len);
        let ticket = self.decided as u32;
        self.decided += 1;
        self.pending.insert(Decided {
            ticket,
            class,
            chosen: index,
            times,
            cost,
            reference,
            most_ns: pack_most * len,
            slice: None,
        });
        Decision {
            candidate,
            ticket,
            estimate: Estimate {
                packed_len: (cost.size * len) as u32,
                pack_ns: (cost.pack * len) as u32,
                unpack_ns: (cost.unpack * len) as u32,
                link_bytes_per_s: self.rate_bytes_per_s() as u64,
            },
            audition,
            why,
        }
    }
}

/// What is done with a chunk.
#[derive(Debug)]
struct Choice {
    /// Of the candidate.
    index: usize,
    why: &'static str,
    /// The candidate that auditions are compared with.
    reference: usize,
    audition: Option<Arc<[Candidate]>>,
}

/// Whether the peer waits for these bytes alone: they are few, and nothing is before them.
fn is_message(raw_len: usize, gauges: &Gauges) -> bool {
    raw_len <= tuning().choice_message_len_max && gauges.queued_bytes == 0 && gauges.packing <= 1
}

impl Adaptive {
    /// What `index` made of a slice, per raw byte of it. The reference's comes first.
    fn learn_audition(
        &mut self,
        pending: Decided,
        index: usize,
        raw_len: usize,
        size: f32,
        pack: f32,
    ) {
        if index == pending.reference {
            if pending.chosen == 0 && tuning().rule_learn_from_slices {
                // Chunks that travel raw do not show how they would pack, so the slice counts as a sample.
                self.table.learn(
                    pending.class,
                    index,
                    CostSample {
                        raw_len,
                        size: (size * tuning().choice_slice_bias).min(1.0),
                        pack,
                        basis: Basis::Slices,
                    },
                );
            }
            self.pending.auditioned(pending.ticket, [size, pack]);
        } else if let Some([slice_size, slice_pack]) = pending.slice {
            if slice_size > tuning().table_nothing {
                let (size, pack) = (size / slice_size, pack / slice_pack);
                self.table
                    .learn_audition(pending.class, index, pending.reference, size, pack);
            }
            if tuning().rule_ask_unsure
                && let Some(row) = self.rows.iter_mut().find(|row| row.class == pending.class)
                && row.costs.get(index).is_some_and(ExpectedCost::is_unsure)
                && let Some(asked) = row.asked.get_mut(index)
            {
                *asked = false;
            }
        }
    }
}

impl Policy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn chunk_len(&mut self, _: &Gauges) -> usize {
        self.config.chunk_len.unwrap_or_else(|| {
            length::chunk_len(
                self.decided,
                self.rate.bytes_per_ns(),
                self.rate.is_measured(),
                self.size,
                self.with_history,
            )
        })
    }

    fn ahead_max(&self) -> Ahead {
        let queued_bytes = if self.rate.is_measured() {
            ((self.rate.bytes_per_ns() * tuning().choice_queue_ns) as u64)
                .max(tuning().choice_queue_len_min)
        } else {
            tuning().choice_queue_len_min
        };
        let unbounded = |is_bound: bool, bytes: u64| if is_bound { bytes } else { u64::MAX };
        Ahead {
            queued_bytes: unbounded(tuning().rule_queue_bound, queued_bytes),
            unconsumed_bytes: unbounded(tuning().rule_unconsumed_bound, self.peer.unconsumed_max()),
        }
    }

    fn decide(&mut self, raw: &[u8], gauges: &Gauges) -> Decision {
        if let Some(verdict) = self.rate.update(gauges, self.peer.is_behind())
            && self.rate.is_measured()
        {
            self.effort.judge(verdict, gauges, self.frame_len);
        }
        self.answers.note(gauges.heard_ns);
        self.starved[1] = (gauges.now_ns, gauges.starved_ns);
        if let Some(decision) = self.without_a_look(raw.len(), gauges) {
            return decision;
        }
        let Found { at, looked, new } = self.rows.find(raw);
        if new && tuning().rule_solve_at_once {
            self.solved_ns = 0;
        }
        let raw_len = raw.len() as f32;
        let resized = raw.len() != std::mem::replace(&mut self.chunk_len_last, raw.len());
        let is_new = self.rows[at].times.is_empty();
        if self.solved_ns == 0
            || is_new
            || resized && tuning().rule_solve_at_once
            || gauges.now_ns >= self.solved_ns + tuning().choice_solve_ns
        {
            self.solve(gauges);
        }
        let weights = self.account.tilt(self.weights);
        let row = &self.rows[at];
        let message = tuning().rule_message && is_message(raw.len(), gauges);
        let (index, why) = self.choose(row, raw_len, message, weights, gauges);
        let reference = self.table.reference(index);
        let mut choice = Choice {
            index,
            why,
            reference,
            audition: None,
        };
        // A short chunk is gone, and mostly answered, before anything could be learnt from it.
        if looked && raw.len() > tuning().choice_answered_len {
            self.explore(at, &mut choice, raw.len(), weights, gauges);
        }
        self.enter(at, choice, raw.len(), gauges.now_ns)
    }

    fn learn(&mut self, outcome: &Outcome) {
        let index = self
            .offers
            .iter()
            .position(|offer| offer.candidate == outcome.candidate);
        let (Some(index), Some(pending), 1..) =
            (index, self.pending.get(outcome.ticket), outcome.raw_len)
        else {
            return;
        };
        let raw_len = outcome.raw_len as f32;
        let size = outcome.packed_len as f32 / raw_len;
        let pack = outcome.cpu_ns as f32 / raw_len;
        let pack = pack.max(1e-4);
        if outcome.audition {
            self.learn_audition(
                pending,
                index,
                outcome.raw_len as usize,
                size.max(1e-3),
                pack,
            );
            return;
        }
        self.table.learn(
            pending.class,
            index,
            CostSample {
                raw_len: outcome.raw_len as usize,
                size,
                pack,
                basis: Basis::Chunks,
            },
        );
        self.pending.done(outcome.ticket);
        let off = (size / pending.cost.size).ln().abs();
        if index > 0
            && tuning().rule_surprise
            && off > tuning().choice_surprise
            && let Some(row) = self.rows.iter_mut().find(|row| row.class == pending.class)
        {
            row.surprised = true;
        }
        self.effort.learn(outcome.cpu_ns, outcome.wall_ns);
        for (stage, expected, found) in [(0, pending.cost.pack, pack), (1, pending.cost.size, size)]
        {
            if expected > 0.0 && tuning().rule_correct {
                self.account.correct(
                    stage,
                    pending.times[stage]
                        * raw_len
                        * (found / expected - 1.0).min(tuning().choice_correct_max),
                );
            }
        }
    }

    fn feedback(&mut self, feedback: &Feedback) {
        // Without credit there is more at the receiver than it can unpack, wherever it waits there.
        let [(from_ns, before), (now_ns, after)] = self.starved;
        let starved = tuning().rule_starved
            && (after - before) as f32
                > tuning().choice_starved * now_ns.saturating_sub(from_ns) as f32;
        self.starved[0] = self.starved[1];
        let link = self.rate.bytes_per_ns() as f32;
        self.peer
            .report(feedback, self.frame_len, link, starved, &mut self.unpacked);
        self.table.learn_unpack(&self.unpacked);
    }

    fn link_bytes_per_s(&self) -> Option<f64> {
        self.rate.is_measured().then(|| self.rate_bytes_per_s())
    }
}
