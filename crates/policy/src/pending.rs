//! Decisions whose outcomes are still to come: what was expected of each, to be compared with what comes.
//!
//! Invariants: the ring holds the last [`PENDING`] tickets; an older one's outcome is not learnt from. The backlog is
//! the sum of what those in work may take at most; a chunk counts no more once its outcome is known, or its place is taken.

use crate::{prior::PriorCost, probe::Class, solve::Times};

#[derive(Debug)]
pub(crate) struct Pending {
    ring: Vec<Decided>,
    backlog_ns: f32,
}

/// A decision whose outcome is still to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decided {
    pub(crate) ticket: u32,
    pub(crate) class: Class,
    pub(crate) chosen: usize,
    pub(crate) times: Times,
    pub(crate) cost: PriorCost,
    /// The candidate that the other auditions are compared with: the chosen one, the nearest without history, or where
    /// the chunk travels raw the first of them.
    pub(crate) reference: usize,
    /// What packing it may take at most, in nanoseconds, until it is done.
    pub(crate) most_ns: f32,
    /// Size and packing time of the reference's audition, per raw byte.
    pub(crate) slice: Option<[f32; 2]>,
}

impl Default for Pending {
    fn default() -> Self {
        let vacant = Decided {
            ticket: NONE,
            class: Class::UNSEEN,
            chosen: 0,
            times: [0.0; 3],
            cost: PriorCost::RAW,
            reference: 0,
            most_ns: 0.0,
            slice: None,
        };
        Self {
            ring: vec![vacant; PENDING],
            backlog_ns: 0.0,
        }
    }
}

impl Pending {
    /// What the chunks in work may take to pack at most, in nanoseconds.
    pub(crate) fn backlog_ns(&self) -> f32 {
        self.backlog_ns
    }

    /// Notes a decision. What had its place is forgotten, were its outcome still to come.
    pub(crate) fn insert(&mut self, decided: Decided) {
        let before = std::mem::replace(self.at(decided.ticket), decided);
        self.backlog_ns = (self.backlog_ns + decided.most_ns - before.most_ns).max(0.0);
    }

    /// Of this decision nothing is to be learnt.
    pub(crate) fn skip(&mut self, ticket: u32) {
        self.at(ticket).ticket = NONE;
    }

    pub(crate) fn get(&self, ticket: u32) -> Option<Decided> {
        let decided = self.ring[ticket as usize % PENDING];
        (decided.ticket == ticket).then_some(decided)
    }

    /// What the reference's audition made of the slice.
    pub(crate) fn auditioned(&mut self, ticket: u32, slice: [f32; 2]) {
        self.at(ticket).slice = Some(slice);
    }

    /// The chunk is packed. Auditions may still come.
    pub(crate) fn done(&mut self, ticket: u32) {
        let done = self.at(ticket);
        let most_ns = std::mem::take(&mut done.most_ns);
        self.backlog_ns = (self.backlog_ns - most_ns).max(0.0);
    }

    fn at(&mut self, ticket: u32) -> &mut Decided {
        &mut self.ring[ticket as usize % PENDING]
    }
}

/// Decisions whose outcome may be outstanding.
const PENDING: usize = 1024;
/// No decision has this ticket but one in four thousand million, which is not learnt from.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_is_what_is_in_work_and_places_come_round() {
        let mut pending = Pending::default();
        let template = pending.ring[0];
        let note = |pending: &mut Pending, ticket| {
            pending.insert(Decided {
                ticket,
                most_ns: 10.0,
                ..template
            })
        };
        (0..4).for_each(|ticket| note(&mut pending, ticket));
        assert_eq!(pending.backlog_ns(), 40.0);
        pending.done(1);
        pending.done(1);
        assert_eq!(pending.backlog_ns(), 30.0);
        pending.skip(2);
        assert!(pending.get(2).is_none());
        note(&mut pending, PENDING as u32);
        assert_eq!(pending.backlog_ns(), 30.0);
        assert!(pending.get(0).is_none() && pending.get(PENDING as u32).is_some());
    }
}
