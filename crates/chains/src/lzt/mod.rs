//! LZ-T: Lempel-Ziv for pages of 4 KiB, with Huffman codes that were trained and are never sent.
//!
//! Why: on a page of memory a table of codes costs more than it saves, and lz4's plain bytes save little. Here the
//! codes are part of the program. A *kind* is a trained set of codes (text, source, machine code, heaps, …); a packed
//! page names the kind that suits it best. The format is in `docs/specs/lzt.md`, the trainer in
//! `examples/train_lzt.rs`.
//!
//! One token says how many literals come, how long the match after them is, and what class its offset has; so one code
//! stands for all three, and the bits after it refine them. Literals are coded by the literal before, which is worth
//! 6 % of a page of source, and lie in four streams so that four lookups are under way at a time.
//!
//! | module | holds |
//! |---|---|
//! | `token` | classes of lengths and offsets |
//! | `code` | Huffman codes from lengths, tables to decode them |
//! | `kinds` | the trained codes |
//! | `hash` | positions of like bytes |
//! | `search` | matches, fast |
//! | `parse` | matches, by price |
//! | `emit` | matches to bytes |
//! | `unpack` | bytes to a page |
//! | [`train`] | pages to trained codes |
//! | [`dictionary`] | what pages of one owner share, by zstd |

mod bits;
mod code;
pub mod dictionary;
mod emit;
mod hash;
mod kinds;
mod parse;
mod search;
mod token;
pub mod train;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod wide;

#[cfg(test)]
mod tests;

pub use unpack::unpack;

/// Bytes of the largest page or cluster of pages that can be packed.
pub const PAGE_MAX: usize = 16 << 10;

/// Packed bytes that are not what [`pack`] makes. Nothing of the page can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("corrupt LZ-T page: {0}")]
pub struct Corrupt(pub &'static str);

/// Scratch memory of [`pack`] and [`pack_strong`], for any number of pages one after another. About 250 KiB.
#[derive(Debug, Default)]
pub struct Workspace {
    finder: search::Finder,
    parser: parse::Parser,
    emitter: emit::Emitter,
}

/// Packs `page` into the front of `out` with a fast search, and returns the packed length in bytes. `None` if it does
/// not fit, or if `page` is longer than [`PAGE_MAX`].
pub fn pack(page: &[u8], out: &mut [u8], ws: &mut Workspace) -> Option<usize> {
    if page.len() > PAGE_MAX {
        return None;
    }
    ws.finder.load(page);
    ws.finder.search(page.len());
    ws.emitter.emit(page, ws.finder.matches(), out)
}

/// As [`pack`], with a search that weighs the price of every choice: smaller, slower, and read by the same [`unpack`].
pub fn pack_strong(page: &[u8], out: &mut [u8], ws: &mut Workspace) -> Option<usize> {
    if page.len() > PAGE_MAX {
        return None;
    }
    ws.finder.load(page);
    ws.finder.search(page.len());
    let kind = ws.emitter.choose(page, ws.finder.matches());
    ws.parser.parse(
        ws.finder.page(),
        page.len(),
        &kinds::set(page.len()).kinds[kind],
    );
    ws.emitter.emit(page, ws.parser.matches(), out)
}
