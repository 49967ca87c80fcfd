//! Shuffles, votes, matches and reductions among the threads of a warp.

use super::call::lanes_of;
use super::warp::Flow;
use super::{Outcome, Runner};
use crate::inst::{Lanes, Op, Pred, Reduce, Reg, Shuffle, Src, Vote, WARP};
use crate::num::float::{self, MinMax};
use crate::{Atomic, Memory, Width};

impl<M: Memory> Runner<'_, M> {
    pub(crate) fn collective(&mut self, mask: u32, op: &Op) -> Outcome<Flow> {
        let members = match op {
            Op::WarpBarrier { members }
            | Op::Match { members, .. }
            | Op::Redux { members, .. }
            | Op::Elect { members, .. } => Some(*members),
            Op::Shuffle { members, .. }
            | Op::VotePred { members, .. }
            | Op::Ballot { members, .. } => *members,
            _ => None,
        };
        if let Some(members) = members {
            let first = mask.trailing_zeros() as usize;
            let members = self.warp.lane(self.constants, members, first) as u32;
            if !self.warp.assembled(mask, members) {
                return Ok(Flow::Pick);
            }
        }
        match *op {
            Op::Shuffle { way, d, p, s, .. } => self.shuffle(mask, way, (d, p), s),
            Op::VotePred { vote, d, p, .. } => {
                let votes = self.warp.predicate(p) & mask;
                let value = match vote {
                    Vote::All => votes == mask,
                    Vote::Any => votes != 0,
                    _ => votes == mask || votes == 0,
                };
                self.warp
                    .set_predicate(d, mask, if value { u32::MAX } else { 0 });
            }
            Op::Ballot { d, p, .. } => {
                let votes = self.warp.predicate(p) & mask;
                self.warp.write(d, mask, &[u64::from(votes); WARP]);
            }
            Op::ActiveMask { d } => self.warp.write(d, mask, &[u64::from(mask); WARP]),
            Op::Match {
                all, d, p, s, bits, ..
            } => self.matching(mask, (d, p), (s, bits), all),
            Op::Redux { op, d, s, .. } => {
                let values = *self.warp.lanes(self.constants, s);
                let value = reduce(op, mask, &values);
                self.warp.write(d, mask, &[value; WARP]);
            }
            Op::Elect { d, p, .. } => {
                let leader = mask.trailing_zeros();
                self.warp.write(d, mask, &[u64::from(leader); WARP]);
                self.warp.set_predicate(p, mask, 1 << leader);
            }
            // `bar.warp.sync` has nothing to do but to wait.
            _ => {}
        }
        Ok(Flow::Next)
    }

    fn shuffle(&mut self, mask: u32, way: Shuffle, (d, p): (Reg, Pred), s: [Src; 3]) {
        let [a, b, c] = s.map(|s| *self.warp.lanes(self.constants, s));
        let (mut out, mut inside) = ([0; WARP], 0);
        for lane in lanes_of(mask) {
            let by = (b[lane] & 0x1f) as i32;
            let (clamp, segment) = ((c[lane] & 0x1f) as i32, (c[lane] >> 8 & 0x1f) as i32);
            let lane_number = lane as i32;
            let most = (lane_number & segment) | (clamp & !segment);
            let least = lane_number & segment;
            let (mut from, is_inside) = match way {
                Shuffle::Up => (lane_number - by, lane_number - by >= most),
                Shuffle::Down => (lane_number + by, lane_number + by <= most),
                Shuffle::Butterfly => (lane_number ^ by, lane_number ^ by <= most),
                Shuffle::Index => {
                    let from = least | (by & !segment);
                    (from, from <= most)
                }
            };
            if !is_inside {
                from = lane_number;
            }
            // A thread that takes no part gives what its register holds, which PTX leaves open.
            out[lane] = a[(from & 31) as usize];
            inside |= u32::from(is_inside) << lane;
        }
        self.warp.write(d, mask, &out);
        self.warp.set_predicate(p, mask, inside);
    }

    fn matching(&mut self, mask: u32, (d, p): (Reg, Pred), (s, bits): (Src, u32), all: bool) {
        let limit = crate::num::int::ones(bits);
        let values: Lanes = self.warp.lanes(self.constants, s).map(|lane| lane & limit);
        let same_as = |lane: usize| {
            lanes_of(mask).fold(0u32, |same, other| {
                same | u32::from(values[other] == values[lane]) << other
            })
        };
        if all {
            let is_same = same_as(mask.trailing_zeros() as usize) == mask;
            let value = if is_same { u64::from(mask) } else { 0 };
            self.warp.write(d, mask, &[value; WARP]);
            self.warp
                .set_predicate(p, mask, if is_same { u32::MAX } else { 0 });
        } else {
            let out = std::array::from_fn(|lane| u64::from(same_as(lane)));
            self.warp.write(d, mask, &out);
        }
    }
}

fn reduce(op: Reduce, mask: u32, values: &Lanes) -> u64 {
    let is_max = op == Reduce::MaxF32;
    let all = lanes_of(mask).map(|lane| values[lane]);
    let reduced = match op {
        Reduce::Integer(op) => all.reduce(|old, operand| {
            Atomic {
                width: Width::B32,
                op,
                operand,
                compare: 0,
            }
            .apply(old)
        }),
        Reduce::MinF32 | Reduce::MaxF32 => all.reduce(|a, b| {
            let [a, b] = [a, b].map(|bits| f64::from(f32::from_bits(bits as u32)));
            let how = MinMax {
                is_max,
                nan: false,
                xorsign_abs: false,
            };
            let value = float::min_max(a, b, how).unwrap_or(f64::NAN) as f32;
            u64::from(float::canonical(value).to_bits())
        }),
    };
    reduced.unwrap_or(0)
}
