//! Lanes: channels for the bytes of copies, one for each stream that has copied more than a message holds.

use std::{
    collections::{HashMap, VecDeque},
    io::Read,
    sync::Arc,
};

use narrows::{Buf, ChannelReader, ChannelWriter};
use narrows_gpu_abi::Status;
use narrows_gpu_wire::LANES_MAX;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    ffi::Answer,
    host::{HostCursor, HostSpan},
};

/// Read at a time: a chunk of the other side is seldom longer.
const PIECE_LEN: usize = 256 << 10;

/// One lane.
pub(crate) struct Lane {
    pub(crate) number: u32,
    /// Held from a copy's message to its last byte, so that both come in one order.
    order: Mutex<ChannelWriter>,
    reads: Mutex<Reads>,
    changed: Condvar,
}

#[derive(Default)]
struct Reads {
    /// Where bytes go as they come.
    expected: VecDeque<HostSpan>,
    asked: u64,
    received: u64,
    over: bool,
}

impl Lane {
    fn new(number: u32, writer: ChannelWriter) -> Self {
        Self {
            number,
            order: Mutex::new(writer),
            reads: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Begins a copy. No other has its turn on the lane until it is over.
    pub(crate) fn begin(&self, from: HostSpan) -> Upload<'_> {
        Upload {
            writer: self.order.lock(),
            left: from.len(),
            cursor: from.cursor(),
        }
    }

    /// Sends bytes that are ours after `announce` has sent their message.
    pub(crate) fn write_bytes(&self, bytes: &[u8], announce: impl FnOnce() -> Answer) -> Answer {
        let mut writer = self.order.lock();
        announce()?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut buf = writer.buffer();
            buf.truncate(buf.len().min(rest.len()));
            let (now, later) = rest.split_at(buf.len());
            buf.copy_from_slice(now);
            writer.push(buf).map_err(|_| Status::UNKNOWN)?;
            rest = later;
        }
        Ok(())
    }

    /// Asks for a copy; its bytes go to `to` when they come. The ticket is for [`Lane::wait`].
    pub(crate) fn read(&self, to: HostSpan, announce: impl FnOnce() -> Answer) -> Answer<u64> {
        let order = self.order.lock();
        let mut reads = self.reads.lock();
        if reads.over {
            return Err(Status::UNKNOWN);
        }
        reads.expected.push_back(to);
        reads.asked += 1;
        let ticket = reads.asked;
        drop(reads);
        self.changed.notify_all();
        let result = announce();
        drop(order);
        result.map(|()| ticket)
    }

    /// Waits for so many reads, or the end.
    pub(crate) fn wait(&self, ticket: u64) {
        let mut reads = self.reads.lock();
        while reads.received < ticket && !reads.over {
            self.changed.wait(&mut reads);
        }
    }

    fn close(&self) {
        self.reads.lock().over = true;
        self.changed.notify_all();
    }

    /// Takes in what comes.
    fn receive(&self, mut reader: ChannelReader) {
        let mut piece = vec![0; PIECE_LEN];
        loop {
            let Some(to) = self.next() else { return };
            let (mut cursor, mut left) = (to.cursor(), to.len());
            while left > 0 {
                let len = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                match reader.read(&mut piece[..len]) {
                    Ok(0) | Err(_) => return self.close(),
                    Ok(len) => {
                        cursor.write(&piece[..len]);
                        left -= len as u64;
                    }
                }
            }
            let mut reads = self.reads.lock();
            reads.expected.pop_front();
            reads.received += 1;
            drop(reads);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<HostSpan> {
        let mut reads: MutexGuard<'_, Reads> = self.reads.lock();
        loop {
            if let Some(to) = reads.expected.front() {
                return Some(*to);
            }
            if reads.over {
                return None;
            }
            self.changed.wait(&mut reads);
        }
    }
}

/// A copy on its way: its bytes are taken from the program in order.
pub(crate) struct Upload<'a> {
    writer: MutexGuard<'a, ChannelWriter>,
    cursor: HostCursor,
    left: u64,
}

impl Upload<'_> {
    /// Bytes that are not taken yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    fn take(&mut self, len: u64) -> Buf {
        let mut buf = self.writer.buffer();
        let len = len.min(self.left);
        buf.truncate(buf.len().min(usize::try_from(len).unwrap_or(usize::MAX)));
        self.cursor.read(&mut buf);
        self.left -= buf.len() as u64;
        buf
    }

    /// Takes the next `len` bytes, in chunks as the policy wants them.
    pub(crate) fn gather(&mut self, len: u64) -> Vec<Buf> {
        let end = self.left.saturating_sub(len);
        let mut bufs = Vec::new();
        while self.left > end {
            bufs.push(self.take(self.left - end));
        }
        bufs
    }

    /// Sends chunks that were taken.
    pub(crate) fn send(&mut self, bufs: Vec<Buf>) -> Answer {
        bufs.into_iter()
            .try_for_each(|buf| self.writer.push(buf))
            .map_err(|_| Status::UNKNOWN)
    }

    /// Takes and sends the next `len` bytes.
    pub(crate) fn send_next(&mut self, len: u64) -> Answer {
        let end = self.left.saturating_sub(len);
        while self.left > end {
            let buf = self.take(self.left - end);
            self.writer.push(buf).map_err(|_| Status::UNKNOWN)?;
        }
        Ok(())
    }
}

/// The lanes of a session.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<LanesState>);

#[derive(Default)]
struct LanesState {
    open: Vec<Arc<Lane>>,
    /// Lanes whose streams are gone.
    spare: Vec<Arc<Lane>>,
    /// Reads that the server has sent whole, by lane, where that is news.
    delivered: HashMap<u32, u64>,
}

impl Lanes {
    /// A lane for one more stream.
    pub(crate) fn open(
        &self,
        channel: impl FnOnce(u32) -> Answer<(ChannelWriter, ChannelReader)>,
    ) -> Answer<Arc<Lane>> {
        let mut state = self.0.lock();
        if let Some(lane) = state.spare.pop() {
            return Ok(lane);
        }
        let number = state.open.len() as u32;
        if number >= LANES_MAX {
            // More streams copy than there are lanes: the last lane is shared.
            return state.open.last().cloned().ok_or(Status::UNKNOWN);
        }
        let (writer, reader) = channel(number)?;
        let lane = Arc::new(Lane::new(number, writer));
        let receives = lane.clone();
        narrows_io::thread::spawn("gpu-lane", move || receives.receive(reader))
            .map_err(|_| Status::OUT_OF_MEMORY)?;
        state.open.push(lane.clone());
        Ok(lane)
    }

    /// A stream is gone: its lane is for the next.
    pub(crate) fn give_back(&self, lane: Arc<Lane>) {
        let mut state = self.0.lock();
        if lane.number + 1 < LANES_MAX {
            state.spare.push(lane);
        }
    }

    /// Notes what the server has sent.
    pub(crate) fn delivered(&self, lane: u32, reads: u64) {
        let mut state = self.0.lock();
        let known = state.delivered.entry(lane).or_default();
        *known = reads.max(*known);
    }

    /// Waits for what the server has sent.
    pub(crate) fn settle(&self) {
        let due: Vec<_> = {
            let state = self.0.lock();
            let due = state.delivered.iter();
            due.filter_map(|(lane, reads)| Some((state.open.get(*lane as usize)?.clone(), *reads)))
                .collect()
        };
        for (lane, reads) in due {
            lane.wait(reads);
        }
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.0.lock().open.iter().for_each(|lane| lane.close());
    }
}
