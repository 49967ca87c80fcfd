//! A page as bytes of its own and copies out of pages that both sides keep.
//!
//! Steps, until the page is full: how many bytes of its own come next, and unless they fill it, how many are copied
//! then, out of which page, from where in it. Lengths are LEB128, the page as its position's distance from the one
//! before, zigzag. A page's own bytes lie elsewhere, beside those of other pages, where the codec finds what is alike
//! in them.

use super::{PAGE_LEN, Page, sparse};

/// Shorter copies are not worth their step, which takes at most 11 bytes, nor what the codec would find in them. So a
/// page with copies in it is always shorter than the page.
pub const COPY_MIN: usize = 48;

/// Bytes of a page that another has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Where in the page they begin.
    pub at: usize,
    /// How many they are.
    pub len: usize,
    /// Which page has them: its position in the [`Ring`](super::ring::Ring).
    pub source: u32,
    /// Where in that they begin.
    pub from: usize,
}

/// Which page was referred to last: where the next is looked for. One for all pages of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Last(pub u32);

impl Last {
    /// Appends a position.
    pub fn write(&mut self, position: u32, out: &mut Vec<u8>) {
        let distance = position.wrapping_sub(self.0) as i32;
        sparse::write_len(((distance << 1) ^ (distance >> 31)) as u32 as usize, out);
        self.0 = position;
    }

    /// Takes a position off the front.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Option<u32> {
        let zigzag = sparse::read_len(bytes)? as u32;
        self.0 = self
            .0
            .wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
        Some(self.0)
    }
}

/// Appends the steps of a page with these copies, which lie in order and apart.
pub fn write(copies: &[Copied], last: &mut Last, out: &mut Vec<u8>) {
    let mut at = 0;
    for copy in copies {
        sparse::write_len(copy.at - at, out);
        sparse::write_len(copy.len, out);
        last.write(copy.source, out);
        sparse::write_len(copy.from, out);
        at = copy.at + copy.len;
    }
    if at < PAGE_LEN {
        sparse::write_len(PAGE_LEN - at, out);
    }
}

/// Takes a page's steps off the front of `steps`; `on_step` is told how many bytes of its own come
/// next, and what is copied behind them. `None` where they are no steps of a page, or `on_step` says so.
pub fn read(
    steps: &mut &[u8],
    last: &mut Last,
    mut on_step: impl FnMut(usize, Option<Copied>) -> Option<()>,
) -> Option<()> {
    let mut at = 0;
    while at < PAGE_LEN {
        let own = sparse::read_len(steps)?;
        at += own;
        if at >= PAGE_LEN {
            return (at == PAGE_LEN).then(|| on_step(own, None))?;
        }
        let len = sparse::read_len(steps)?;
        let source = last.read(steps)?;
        let from = sparse::read_len(steps)?;
        if len == 0 || len > PAGE_LEN - at || from > PAGE_LEN || len > PAGE_LEN - from {
            return None;
        }
        on_step(
            own,
            Some(Copied {
                at,
                len,
                source,
                from,
            }),
        )?;
        at += len;
    }
    Some(())
}

/// Puts a page together behind `out`: takes its steps off the front of `steps` and its own bytes off the front of
/// `own`. `None` where it cannot be.
pub fn unpack<'a>(
    steps: &mut &[u8],
    own: &mut &[u8],
    last: &mut Last,
    kept: impl Fn(u32) -> Option<&'a Page>,
    out: &mut Vec<u8>,
) -> Option<()> {
    read(steps, last, |len, copy| {
        let (bytes, rest) = own.split_at_checked(len)?;
        *own = rest;
        out.extend_from_slice(bytes);
        if let Some(Copied {
            len, source, from, ..
        }) = copy
        {
            out.extend_from_slice(&kept(source)?[from..from + len]);
        }
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_page_of_copies_is_put_together(parts in prop::collection::vec((0_usize..300, COPY_MIN..200, 0_u32..9, 0_usize..3000), 0..20)) {
            let kept: Vec<Page> = (0..9_u8).map(|page| std::array::from_fn(|at| (at as u8).wrapping_mul(page) ^ (at >> 5) as u8)).collect();
            let find = |source: u32| kept.get(source as usize);
            let (mut copies, mut at) = (Vec::new(), 0);
            let mut page = [0xa5; PAGE_LEN];
            for (gap, len, source, from) in parts {
                at += gap;
                if at + len <= PAGE_LEN {
                    page[at..at + len].copy_from_slice(&find(source).unwrap()[from..from + len]);
                    copies.push(Copied { at, len, source, from });
                }
                at += len;
            }
            let (mut steps, mut own, mut done) = (Vec::new(), Vec::new(), 0);
            write(&copies, &mut Last(7), &mut steps);
            for copy in &copies {
                own.extend_from_slice(&page[done..copy.at]);
                done = copy.at + copy.len;
            }
            own.extend_from_slice(&page[done..]);
            prop_assert!(copies.is_empty() || steps.len() + own.len() < PAGE_LEN);
            let (mut steps, mut own, mut out) = (&steps[..], &own[..], Vec::new());
            prop_assert_eq!(unpack(&mut steps, &mut own, &mut Last(7), find, &mut out), Some(()));
            prop_assert!(out == page && steps.is_empty() && own.is_empty());
        }

        #[test]
        fn any_steps_make_a_page_or_are_refused(steps in prop::collection::vec(any::<u8>(), 0..300), own in prop::collection::vec(any::<u8>(), 0..PAGE_LEN)) {
            let kept = [7; PAGE_LEN];
            let mut out = Vec::new();
            let done = unpack(&mut &steps[..], &mut &own[..], &mut Last(0), |source| (source < 99).then_some(&kept), &mut out);
            prop_assert!(out.len() <= PAGE_LEN && (done.is_none() || out.len() == PAGE_LEN));
        }
    }
}
