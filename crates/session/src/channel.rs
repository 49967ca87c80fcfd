//! One channel's two directions: what was sent, received, consumed.
//!
//! Invariants. Sending: `unacked` holds every frame that went out and was not consumed by the peer, `queue` those
//! that are to go out, in order of sequence; `submitted_cost - queued_cost - consumed_cost` is within `window`, or
//! within a [`step`] and one frame. Receiving: every chunk below `next_seq` has arrived, those in `ahead` too;
//! `consumed_seq <= next_seq`, but where chunks count as consumed as they come (`naive`). Cost: see [`Header::cost`].
//!
//! Why a step and one frame: of less than a step the receiver does not tell, so a sender that waited with less
//! outstanding, since its next frame is long, would wait for ever.
//!
//! [`Header::cost`]: narrows_format::Header::cost

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use narrows_core::Seq;
use narrows_format::{Frame, Header};

use crate::{Code, LinkId, SessionError};

#[derive(Debug)]
pub(crate) struct Channel<B> {
    pub(crate) service: String,
    pub(crate) tx: Tx<B>,
    pub(crate) rx: Rx,
    /// Which of all channels that its opener opened.
    pub(crate) serial: u64,
    /// Where the peer was last told what is consumed.
    pub(crate) told_on: Option<LinkId>,
}

/// What stays of a channel that ended, so that what is still under way for it is known for what it is.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) serial: u64,
    pub(crate) next_seq: u64,
    /// Where the peer was told what it waits for to end the channel too; lost with that link, it is said again.
    pub(crate) told_on: Option<LinkId>,
    /// Said again to a peer that did not hear it; `None` where the channel ended well.
    pub(crate) abort: Option<(Code, String)>,
}

#[derive(Debug)]
pub(crate) struct Tx<B> {
    queue: VecDeque<Arc<Frame<B>>>,
    /// With the link each went out on; `None` once that link is lost and the peer has not said what it has.
    unacked: VecDeque<(Arc<Frame<B>>, Option<LinkId>)>,
    queued_bytes: u64,
    queued_cost: u64,
    submitted_cost: u64,
    consumed_cost: u64,
    /// Cost of the frames that a credit covered and that are held no longer.
    released_cost: u64,
    window: u64,
    next_submit: u64,
    /// Chunks that went out at least once.
    sent: u64,
    pub(crate) finish: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Rx {
    pub(crate) next_seq: u64,
    /// Chunks that came before `next_seq` did, and what each cost.
    ahead: BTreeMap<u64, u64>,
    received_cost: u64,
    /// Cost of the chunks before `next_seq`.
    arrived_cost: u64,
    /// Of the longest frame that came.
    longest_cost: u64,
    pub(crate) consumed_seq: u64,
    consumed_cost: u64,
    told_cost: u64,
    told_seq: u64,
    window: u64,
    pub(crate) finish: Option<u64>,
}

/// Frames outstanding at most, however small: 16 bits of their numbers travel, and the receiver takes them for the
/// number nearest to the one it expects.
const FRAMES_MAX: usize = 16_384;

impl<B> Channel<B> {
    pub(crate) fn new(service: String, serial: u64, window: usize) -> Self {
        let tx = Tx {
            queue: VecDeque::new(),
            unacked: VecDeque::new(),
            queued_bytes: 0,
            queued_cost: 0,
            submitted_cost: 0,
            consumed_cost: 0,
            released_cost: 0,
            window: window as u64,
            next_submit: 0,
            sent: 0,
            finish: None,
        };
        Self {
            service,
            tx,
            rx: Rx {
                window: window as u64,
                ..Rx::default()
            },
            serial,
            told_on: None,
        }
    }

    /// Both directions ended and everything was consumed and acknowledged: nothing can come for it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.tx.finish.is_some() && self.tx.is_drained() && self.rx.is_told_all()
    }
}

impl<B> Tx<B> {
    /// Appends a frame.
    ///
    /// # Panics
    /// When it is not the next in order.
    pub(crate) fn submit(&mut self, frame: Frame<B>) {
        assert_eq!(
            frame.header.seq.0, self.next_submit,
            "frames are submitted in order"
        );
        self.next_submit += 1;
        self.submitted_cost += frame.header.cost() as u64;
        self.queued(&frame.header);
        self.queue.push_back(Arc::new(frame));
    }

    fn queued(&mut self, header: &Header) {
        self.queued_bytes += header.wire_len() as u64;
        self.queued_cost += header.cost() as u64;
    }

    fn unqueued(&mut self, header: &Header) {
        self.queued_bytes -= header.wire_len() as u64;
        self.queued_cost -= header.cost() as u64;
    }

    pub(crate) fn next_submit(&self) -> u64 {
        self.next_submit
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Has frames but no credit for the next.
    pub(crate) fn is_starved(&self) -> bool {
        !self.queue.is_empty() && !self.has_credit()
    }

    pub(crate) fn is_sendable(&self) -> bool {
        !self.queue.is_empty() && self.has_credit()
    }

    fn has_credit(&self) -> bool {
        let Some(next) = self.queue.front().map(|frame| &frame.header) else {
            return false;
        };
        // What was rewound may have been consumed all the same, so this can fall below nothing.
        let outstanding =
            (self.submitted_cost - self.queued_cost).saturating_sub(self.consumed_cost);
        let fits = outstanding + next.cost() as u64 <= self.window
            || outstanding < step(self.window).max(1);
        // What goes again had its credit, and a longer frame that came may wait for it at the receiver.
        next.seq.0 < self.sent || self.unacked.len() < FRAMES_MAX && fits
    }

    pub(crate) fn pop(&mut self, link: LinkId) -> Option<Arc<Frame<B>>> {
        if !self.is_sendable() {
            return None;
        }
        let frame = self.queue.pop_front()?;
        self.unqueued(&frame.header);
        self.sent = self.sent.max(frame.header.seq.0 + 1);
        self.unacked.push_back((frame.clone(), Some(link)));
        Some(frame)
    }

    pub(crate) fn credit(&mut self, next_seq: u64, cost: u64) -> Result<(), SessionError> {
        if cost > self.submitted_cost || next_seq > self.next_submit {
            return Err(SessionError::Protocol("credit for more than was sent"));
        }
        // In order but for what was sent again, so mostly the front goes.
        while let Some((frame, _)) = self
            .unacked
            .pop_front_if(|(frame, _)| frame.header.seq.0 < next_seq)
        {
            self.released_cost += frame.header.cost() as u64;
        }
        let released = &mut self.released_cost;
        self.unacked.retain(|(frame, _)| {
            let kept = frame.header.seq.0 >= next_seq;
            *released += if kept { 0 } else { frame.header.cost() as u64 };
            kept
        });
        while let Some(frame) = self
            .queue
            .pop_front_if(|frame| frame.header.seq.0 < next_seq)
        {
            self.unqueued(&frame.header);
            self.released_cost += frame.header.cost() as u64;
        }
        // Credit for bytes whose frames are still held here would have us hold any number of them.
        self.consumed_cost = self.consumed_cost.max(cost.min(self.released_cost));
        Ok(())
    }

    /// Notes that what went out over `lost` may not have arrived.
    pub(crate) fn mark_lost(&mut self, lost: LinkId) {
        for (_, link) in &mut self.unacked {
            *link = link.filter(|link| *link != lost);
        }
    }

    /// The peer has every chunk before `peer_has`: what else may be lost goes back to the front of the queue.
    pub(crate) fn rewind(&mut self, peer_has: u64, now_on: LinkId) {
        let mut again = Vec::new();
        let mut kept = VecDeque::new();
        for (frame, link) in std::mem::take(&mut self.unacked) {
            match link {
                None if frame.header.seq.0 >= peer_has => again.push(frame),
                link => kept.push_back((frame, link.or(Some(now_on)))),
            }
        }
        self.unacked = kept;
        for frame in again.into_iter().rev() {
            self.queued(&frame.header);
            self.queue.push_front(frame);
        }
        // Links are lost one by one, and credit takes from the front.
        self.queue
            .make_contiguous()
            .sort_unstable_by_key(|frame| frame.header.seq.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn unconsumed_chunks(&self) -> usize {
        self.queue.len() + self.unacked.len()
    }

    pub(crate) fn unconsumed_cost(&self) -> u64 {
        self.submitted_cost - self.consumed_cost
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.unacked.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.unacked.clear();
        (self.queued_bytes, self.queued_cost) = (0, 0);
    }
}

impl Rx {
    /// Whether a frame may come; `false` where it had come before, over a link that was lost.
    pub(crate) fn check(&self, seq: Seq, cost: usize) -> Result<bool, SessionError> {
        if seq.0 < self.next_seq || self.ahead.contains_key(&seq.0) {
            return Ok(false);
        }
        if self.finish.is_some_and(|chunks| seq.0 >= chunks) {
            return Err(SessionError::Protocol(
                "a chunk after the end of its channel",
            ));
        }
        let outstanding = self.received_cost - self.consumed_cost + cost as u64;
        // A long frame may have come before what was sent before it, over another link.
        let longest = self.longest_cost.max(cost as u64);
        if outstanding > self.window.max(step(self.window) + longest) {
            return Err(SessionError::Protocol("more bytes than the credit allows"));
        }
        Ok(true)
    }

    /// Notes a frame that has come whole.
    pub(crate) fn accept(&mut self, seq: Seq, cost: usize) -> Result<bool, SessionError> {
        if !self.check(seq, cost)? {
            return Ok(false);
        }
        self.received_cost += cost as u64;
        self.longest_cost = self.longest_cost.max(cost as u64);
        self.ahead.insert(seq.0, cost as u64);
        while let Some(cost) = self.ahead.remove(&self.next_seq) {
            self.next_seq += 1;
            self.arrived_cost += cost;
        }
        Ok(true)
    }

    pub(crate) fn consume(&mut self, cost: usize) {
        self.consumed_seq += 1;
        self.consumed_cost += cost as u64;
        debug_assert!(
            self.consumed_cost <= self.received_cost,
            "consumed what never came"
        );
    }

    /// Credit to tell the peer, where there is enough of it to be worth a message.
    pub(crate) fn credit_due(&mut self) -> Option<(u64, u64)> {
        let untold = self.tellable_cost() - self.told_cost;
        let step = step(self.window);
        let over = self.is_consumed() && self.told_seq != self.consumed_seq;
        // Chunks that packed to next to nothing fill no window, and their sender may count chunks.
        let many = self
            .consumed_seq
            .min(self.next_seq)
            .saturating_sub(self.told_seq)
            >= (step / CHUNK_LEN).max(8);
        (untold >= step || many || over).then(|| self.credit_now())
    }

    pub(crate) fn credit_now(&mut self) -> (u64, u64) {
        self.told_cost = self.tellable_cost();
        self.told_seq = self.consumed_seq.min(self.next_seq);
        (self.told_seq, self.told_cost)
    }

    /// Whoever consumes chunks as they come may have consumed more than has come in a row: the peer must keep the
    /// missing one, and believes no more.
    fn tellable_cost(&self) -> u64 {
        self.consumed_cost.min(self.arrived_cost)
    }

    /// The peer ended its direction and every chunk of it is consumed.
    pub(crate) fn is_consumed(&self) -> bool {
        self.finish == Some(self.consumed_seq)
    }

    /// The peer is done with the channel, so what has arrived is all there was. `false` where that cannot be.
    pub(crate) fn close(&mut self) -> bool {
        self.finish.get_or_insert(self.next_seq);
        self.told_seq = self.consumed_seq;
        self.is_consumed()
    }

    fn is_told_all(&self) -> bool {
        self.is_consumed() && self.told_seq == self.consumed_seq
    }
}

/// Bytes consumed before the peer is told.
fn step(window: u64) -> u64 {
    (window / 8).min(STEP_MAX)
}

/// What a step is at most. Until it is told the peer holds them, and what it holds of a fast link should
/// stay in its cache: with 16 MiB going round, a byte read, summed and sent costs half as much again as with 4.
const STEP_MAX: u64 = 512 << 10;
/// What a chunk is taken for where windows are counted in chunks.
const CHUNK_LEN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use narrows_core::{ChannelId, CodecId};

    use super::*;

    fn frame(seq: u64, len: u32) -> Frame<()> {
        let (codec, channel) = (CodecId::RAW, ChannelId(2));
        let header = Header {
            codec,
            channel,
            seq: Seq(seq),
            raw_len: len,
            packed_len: len,
            history_len: 0,
            check: 0,
        };
        Frame {
            header,
            payload: (),
        }
    }

    fn cost(len: u32) -> u64 {
        frame(0, len).header.cost() as u64
    }

    #[test]
    fn credit_for_bytes_whose_chunks_are_still_held_is_not_believed() {
        let mut tx = Channel::new(String::new(), 0, 4096).tx;
        (0..10).for_each(|seq| tx.submit(frame(seq, 1000)));
        while tx.pop(LinkId(0)).is_some() {
            tx.credit(0, tx.submitted_cost - tx.queued_cost).unwrap();
        }
        assert_eq!(tx.unacked.len(), 4, "a window of them");
        tx.credit(3, 3 * cost(1000)).unwrap();
        assert_eq!((0..).find(|_| tx.pop(LinkId(0)).is_none()), Some(3));
    }

    #[test]
    fn frames_of_two_lost_links_go_out_in_order_and_are_released_once() {
        let mut tx = Channel::new(String::new(), 0, 1 << 20).tx;
        (0..6).for_each(|seq| tx.submit(frame(seq, 1000)));
        (0..6).for_each(|seq| drop(tx.pop(LinkId(seq % 2))));
        for lost in [LinkId(0), LinkId(1)] {
            tx.mark_lost(lost);
            tx.rewind(0, LinkId(2));
        }
        tx.credit(4, 4 * cost(1000)).unwrap();
        let again: Vec<_> = std::iter::from_fn(|| tx.pop(LinkId(2)))
            .map(|frame| frame.header.seq.0)
            .collect();
        assert_eq!(again, [4, 5]);
        tx.credit(6, 6 * cost(1000)).unwrap();
        assert!(tx.is_drained() && tx.unconsumed_cost() == 0);
    }

    // Goal: a chunk that is lost with its link goes again though a longer one, which came over another, fills the
    // window.
    #[test]
    fn what_goes_again_needs_no_credit() {
        let Channel { mut tx, mut rx, .. } = Channel::new(String::new(), 0, 4096);
        [(0, 100), (1, 9000), (2, 100)]
            .into_iter()
            .for_each(|(seq, len)| tx.submit(frame(seq, len)));
        tx.pop(LinkId(0)).unwrap();
        tx.pop(LinkId(1)).unwrap();
        assert!(tx.is_starved());
        assert!(rx.accept(Seq(1), cost(9000) as usize).unwrap());
        tx.mark_lost(LinkId(0));
        tx.rewind(0, LinkId(1));
        assert_eq!(tx.pop(LinkId(1)).unwrap().header.seq, Seq(0));
        assert!(rx.accept(Seq(0), cost(100) as usize).unwrap());
        assert!(tx.is_starved());
    }

    // Goal: a chunk that overtook another on a second link is not credited before the other has come.
    #[test]
    fn what_counts_as_consumed_when_it_comes_is_told_as_far_as_nothing_is_missing() {
        let mut rx = Rx {
            window: 4096,
            ..Rx::default()
        };
        assert!(rx.accept(Seq(1), 1000).unwrap());
        rx.consume(1000);
        assert_eq!((rx.credit_due(), rx.credit_now()), (None, (0, 0)));
        assert!(rx.accept(Seq(0), 300).unwrap());
        rx.consume(300);
        assert_eq!(
            rx.credit_due(),
            Some((2, 1300)),
            "the missing one is less than a step"
        );
    }
}
