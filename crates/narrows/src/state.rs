//! What the threads of an endpoint share under one lock: the session's state machine, its links and channels.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use narrows_core::ChannelId;
use narrows_format::Frame;
use narrows_pipeline::{Bytes, ChunkUnpacker};
use narrows_session::{LinkId, Session};

use crate::{Error, link::Link};

pub(crate) struct State {
    pub(crate) machine: Session<Bytes>,
    pub(crate) links: BTreeMap<LinkId, Arc<Link>>,
    pub(crate) next_link: u32,
    pub(crate) channels: BTreeMap<ChannelId, ChannelState>,
    pub(crate) incoming: VecDeque<(ChannelId, String)>,
    pub(crate) ended: Option<Error>,
    pub(crate) linkless_since_ns: Option<u64>,
}

pub(crate) struct ChannelState {
    pub(crate) unpacker: ChunkUnpacker,
    /// Chunks that the packer was given, those that are packed, and those whose frames went out.
    pub(crate) admitted: u64,
    pub(crate) packed: u64,
    pub(crate) left: u64,
    /// Frames of a naive channel, until its end.
    pub(crate) held: Vec<Frame<Bytes>>,
    pub(crate) ended: Option<Error>,
}

impl State {
    pub(crate) fn new(machine: Session<Bytes>) -> Self {
        Self {
            machine,
            links: BTreeMap::new(),
            next_link: 0,
            channels: BTreeMap::new(),
            incoming: VecDeque::new(),
            ended: None,
            linkless_since_ns: None,
        }
    }

    pub(crate) fn end_of(&self, channel: ChannelId) -> Option<Error> {
        let of_channel = self
            .channels
            .get(&channel)
            .and_then(|held| held.ended.clone());
        of_channel.or_else(|| self.ended.clone())
    }

    /// Chunks of a channel that are being packed or wait for it, and not those that wait for one before them: with many
    /// workers, some would then have nothing to do until the slowest is done.
    pub(crate) fn in_hand(&self, channel: ChannelId) -> u64 {
        self.channels
            .get(&channel)
            .map_or(0, |held| held.admitted - held.packed)
    }

    /// A chunk's frame went out for the first time.
    pub(crate) fn left(&mut self, frame: &Frame<Bytes>) {
        if let Some(held) = self.channels.get_mut(&frame.header.channel) {
            held.left = held.left.max(frame.header.seq.0 + 1);
        }
    }
}
