//! The map: one entry of 8 bytes for each block of the device, in pages of 512.
//!
//! A page exists from the first write to its 2 MiB on, and goes when all of it was trimmed. Readers
//! copy entries under the page's lock and take no other. Writers hold the log's lock, so the order
//! of changes here is the order of records in the log.

use parking_lot::RwLock;

use crate::format::{FANOUT, entry::Entry};

/// All entries of the device.
#[derive(Debug)]
pub(crate) struct Map {
    pages: Vec<RwLock<Page>>,
    blocks: u64,
}

#[derive(Debug, Default)]
struct Page {
    entries: Option<Box<[Entry; FANOUT]>>,
    /// Changed since it was last copied for a checkpoint.
    dirty: bool,
}

impl Map {
    /// A map of `blocks` blocks that were never written.
    pub(crate) fn new(blocks: u64) -> Self {
        let pages = blocks.div_ceil(FANOUT as u64) as usize;
        Self {
            pages: (0..pages).map(|_| RwLock::default()).collect(),
            blocks,
        }
    }

    /// Blocks of the device.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pages, there or not.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Pages that take memory.
    pub(crate) fn pages_held(&self) -> usize {
        let held = |page: &&RwLock<Page>| page.read().entries.is_some();
        self.pages.iter().filter(held).count()
    }

    /// Appends the entries of `count` blocks from `first` to `out`.
    pub(crate) fn get(&self, first: u64, count: usize, out: &mut Vec<Entry>) {
        let mut at = first;
        let end = first + count as u64;
        while at < end {
            let (page, index) = split(at);
            let n = (FANOUT - index).min((end - at) as usize);
            match &self.pages[page].read().entries {
                Some(entries) => out.extend_from_slice(&entries[index..index + n]),
                None => out.extend(std::iter::repeat_n(Entry::NONE, n)),
            }
            at += n as u64;
        }
    }

    /// Gives `change` each block's place in the range and entry, and keeps what it returns. Pages
    /// that were clean are appended to `dirty`. Unless it `creates`, the change makes nothing of
    /// blocks never written. The caller holds the log's lock.
    pub(crate) fn update(
        &self,
        first: u64,
        count: u64,
        dirty: &mut Vec<u32>,
        creates: bool,
        mut change: impl FnMut(u64, Entry) -> Entry,
    ) {
        let mut at = first;
        let end = first + count;
        while at < end {
            let (number, index) = split(at);
            let n = (FANOUT - index).min((end - at) as usize);
            let mut page = self.pages[number].write();
            if !creates && page.entries.is_none() {
                at += n as u64;
                continue;
            }
            let entries = page
                .entries
                .get_or_insert_with(|| Box::new([Entry::NONE; FANOUT]));
            for (i, entry) in entries[index..index + n].iter_mut().enumerate() {
                *entry = change(at - first + i as u64, *entry);
            }
            // A trim may have emptied it. Only whole pages are looked at, so that small trims cost
            // little.
            if n == FANOUT && entries.iter().all(|entry| *entry == Entry::NONE) {
                page.entries = None;
            }
            if !page.dirty {
                page.dirty = true;
                dirty.push(number as u32);
            }
            at += n as u64;
        }
    }

    /// Copies a page for a checkpoint and calls it clean; `false` if it holds no block.
    pub(crate) fn take(&self, page: u32, out: &mut [Entry; FANOUT]) -> bool {
        let mut page = self.pages[page as usize].write();
        page.dirty = false;
        let Some(entries) = &page.entries else {
            return false;
        };
        out.copy_from_slice(&entries[..]);
        if out.iter().all(|entry| *entry == Entry::NONE) {
            page.entries = None;
            return false;
        }
        true
    }

    /// Calls a page dirty; whether it was clean.
    pub(crate) fn soil(&self, page: u32) -> bool {
        !std::mem::replace(&mut self.pages[page as usize].write().dirty, true)
    }

    /// Puts a page read from a checkpoint.
    pub(crate) fn load(&self, page: u32, entries: Box<[Entry; FANOUT]>) {
        self.pages[page as usize].write().entries = Some(entries);
    }

    /// Blocks with data, and those of zeroes.
    pub(crate) fn count(&self) -> (u64, u64) {
        let (mut data, mut zero) = (0, 0);
        for page in &self.pages {
            for entry in page
                .read()
                .entries
                .iter()
                .flat_map(|entries| entries.iter())
            {
                data += u64::from(entry.place().is_some());
                zero += u64::from(*entry == Entry::ZERO);
            }
        }
        (data, zero)
    }

    /// Calls `visit` for every entry with data.
    pub(crate) fn for_each_data(&self, mut visit: impl FnMut(u64, Entry)) {
        for (number, page) in self.pages.iter().enumerate() {
            if let Some(entries) = &page.read().entries {
                for (i, entry) in entries.iter().enumerate() {
                    if entry.place().is_some() {
                        visit((number * FANOUT + i) as u64, *entry);
                    }
                }
            }
        }
    }
}

/// A block's page, and its index in it.
fn split(block: u64) -> (usize, usize) {
    (
        (block / FANOUT as u64) as usize,
        (block % FANOUT as u64) as usize,
    )
}
