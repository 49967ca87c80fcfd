//! Codec 30, `pages`: a chunk as pages of 4 KiB, each packed by a chain of steps.
//!
//! Why: where a field is smooth, or its kind changes from page to page, a chain chosen for each page with the right
//! width and order of differences beats one transform of the whole chunk before zstd. The chains are those of a RAM
//! disk's pages (`docs/specs/chain.md`).
//!
//! Packed bytes: for each whole page its packed length as `u16` little-endian, 4096 where it is stored as it is, and all
//! of these before the pages; then the pages; then the bytes behind the last whole page.

use narrows_chains::{Chains, Limit, PAGE, PagePacker, Profile};
use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// The codec of pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pages;

/// Its number.
pub(crate) const PAGES: CodecId = CodecId(30);

static INFO: Info = Info {
    id: PAGES,
    name: "pages",
    levels: 0..=3,
    level_default: 2,
    history: false,
    format: "docs/specs/codec-ids.md, pages",
};

/// What a thread keeps to unpack with.
struct Unpacker(PagePacker);

impl Default for Unpacker {
    fn default() -> Self {
        Self(PagePacker::new(Profile::Fast))
    }
}

impl Codec for Pages {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Option<usize> {
        let profile = match level.0 {
            ..=0 => Profile::Fast,
            1 => Profile::Dense,
            2 => Profile::Balanced,
            _ => Profile::Ratio,
        };
        let limit = Limit::default();
        limit.set(PAGE - 1);
        // A new one for each chunk: what it learns from page to page must not depend on the thread.
        let mut packer = PagePacker::with(profile, limit, Chains::default());
        let (pages, tail) = raw.as_chunks::<PAGE>();
        let mut at = 2 * pages.len();
        let mut packed = [0; PAGE];
        for (n, page) in pages.iter().enumerate() {
            let bytes = match packer.pack(page, &mut packed) {
                Some(len) => &packed[..len],
                None => &page[..],
            };
            out.get_mut(2 * n..2 * n + 2)?
                .copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
            at += bytes.len();
        }
        out.get_mut(at..at + tail.len())?.copy_from_slice(tail);
        Some(at + tail.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let unpacker = ws.get::<Unpacker>();
        let (pages, tail) = out.as_chunks_mut::<PAGE>();
        let short = DecodeError::corrupt(packed.len(), "pages end early");
        let (lens, mut rest) = packed
            .split_at_checked(2 * pages.len())
            .ok_or_else(|| short.clone())?;
        for (page, len) in pages.iter_mut().zip(lens.as_chunks::<2>().0) {
            let len = usize::from(u16::from_le_bytes(*len));
            let at = packed.len() - rest.len();
            let (bytes, behind) = rest.split_at_checked(len).ok_or_else(|| short.clone())?;
            if len >= PAGE {
                let stored: &[u8; PAGE] = bytes
                    .try_into()
                    .map_err(|_| DecodeError::corrupt(at, "a page longer than a page"))?;
                *page = *stored;
            } else {
                unpacker
                    .0
                    .unpack(bytes, page)
                    .map_err(|_| DecodeError::corrupt(at, "not a packed page"))?;
            }
            rest = behind;
        }
        if rest.len() != tail.len() {
            return Err(DecodeError::corrupt(
                packed.len() - rest.len(),
                "pages do not end with the chunk",
            ));
        }
        tail.copy_from_slice(rest);
        Ok(())
    }
}
