//! A page as bytes of its own and copies out of pages that both sides keep.
//!
//! Steps, until the page is full: how many bytes of its own come next, and unless they fill it, how many are copied then, out
//! of which page, from where in it. Lengths are LEB128, the page as its distance from the one before, `zigzag << 1 | fresh`.
//! A page's own bytes lie elsewhere, beside those of other pages, where the codec finds what is alike in them.

use super::{PAGE_LEN, Page, sparse};

/// Shorter copies are not worth their step, which takes at most 11 bytes. So a page with copies in it is always shorter than
/// the page.
pub const COPY_MIN: usize = 32;

/// Pages from this number on, 2 TiB, are not copied from, so that a step's number has 32 bits.
pub const NUMBER_MAX: u64 = 1 << 29;

/// A page that both sides keep, in the same memory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its number in the block.
    pub page: u64,
    /// The version of this round; else the one before.
    pub fresh: bool,
}

/// Bytes of a page that another has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Where in the page they begin.
    pub at: usize,
    /// How many they are.
    pub len: usize,
    /// Which page has them.
    pub source: Source,
    /// Where in that they begin.
    pub from: usize,
}

/// Which page was copied from last: where the next is looked for. One for all pages of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Last(u64);

impl Last {
    fn write(&mut self, source: Source, out: &mut Vec<u8>) {
        let distance = source.page.wrapping_sub(self.0) as i64;
        let zigzag = ((distance << 1) ^ (distance >> 63)) as usize;
        sparse::write_len(zigzag << 1 | usize::from(source.fresh), out);
        self.0 = source.page;
    }

    fn read(&mut self, bytes: &mut &[u8]) -> Option<Source> {
        let number = sparse::read_len(bytes)?;
        let zigzag = (number >> 1) as u64;
        self.0 = self.0.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
        Some(Source { page: self.0, fresh: number & 1 == 1 })
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
        on_step(own, Some(Copied { at, len, source, from }))?;
        at += len;
    }
    Some(())
}

/// Puts a page together behind `out`: takes its steps off the front of `steps` and its own bytes off the front of `own`.
/// `None` where it cannot be.
pub fn unpack<'a>(
    steps: &mut &[u8],
    own: &mut &[u8],
    last: &mut Last,
    kept: impl Fn(Source) -> Option<&'a Page>,
    out: &mut Vec<u8>,
) -> Option<()> {
    read(steps, last, |len, copy| {
        let (bytes, rest) = own.split_at_checked(len)?;
        *own = rest;
        out.extend_from_slice(bytes);
        if let Some(Copied { len, source, from, .. }) = copy {
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
        fn a_page_of_copies_is_put_together(parts in prop::collection::vec((0_usize..300, COPY_MIN..200, 0_u64..9, 0_usize..3000, any::<bool>()), 0..20)) {
            let kept: Vec<Page> = (0..18_u8).map(|page| std::array::from_fn(|at| (at as u8).wrapping_mul(page) ^ (at >> 5) as u8)).collect();
            let find = |source: Source| kept.get(source.page as usize + 9 * usize::from(source.fresh));
            let (mut copies, mut at) = (Vec::new(), 0);
            let mut page = [0xa5; PAGE_LEN];
            for (gap, len, number, from, fresh) in parts {
                at += gap;
                if at + len <= PAGE_LEN {
                    let source = Source { page: number, fresh };
                    page[at..at + len].copy_from_slice(&find(source).unwrap()[from..from + len]);
                    copies.push(Copied { at, len, source, from });
                }
                at += len;
            }
            let (mut steps, mut own, mut done) = (Vec::new(), Vec::new(), 0);
            write(&copies, &mut Last::default(), &mut steps);
            for copy in &copies {
                own.extend_from_slice(&page[done..copy.at]);
                done = copy.at + copy.len;
            }
            own.extend_from_slice(&page[done..]);
            prop_assert!(copies.is_empty() || steps.len() + own.len() < PAGE_LEN);
            let (mut steps, mut own, mut out) = (&steps[..], &own[..], Vec::new());
            prop_assert_eq!(unpack(&mut steps, &mut own, &mut Last::default(), find, &mut out), Some(()));
            prop_assert!(out == page && steps.is_empty() && own.is_empty());
        }

        #[test]
        fn any_steps_make_a_page_or_are_refused(steps in prop::collection::vec(any::<u8>(), 0..300), own in prop::collection::vec(any::<u8>(), 0..PAGE_LEN)) {
            let kept = [7; PAGE_LEN];
            let mut out = Vec::new();
            let done = unpack(&mut &steps[..], &mut &own[..], &mut Last::default(), |source| (source.page < 99).then_some(&kept), &mut out);
            prop_assert!(out.len() <= PAGE_LEN && (done.is_none() || out.len() == PAGE_LEN));
        }
    }
}
