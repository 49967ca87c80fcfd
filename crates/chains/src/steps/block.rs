//! `lz4`, `zstd`, `deflate`: block formats of others, as steps; and `lzt`, our own for pages. `deflates` and `lzts`
//! make the same formats with a longer search; `zstdl` makes zstd frames of long matches only.
//!
//! LZ4 blocks and DEFLATE streams are as their specifications say. zstd frames go without magic number, content size
//! and checksum (`ZSTD_f_zstd1_magicless`), which saves 5 bytes of every page.

use std::{fmt, ptr::NonNull};

use narrows_codecs::{deflate::DEFLATE, lz4::Lz4};
use narrows_core::{Codec, DecodeError, Level, Workspace};
use zstd_safe::zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_setParameter,
    ZSTD_ParamSwitch_e as Switch, ZSTD_ResetDirective as Reset, ZSTD_cParameter as CParameter,
    ZSTD_compress2, ZSTD_createCCtx, ZSTD_createDCtx, ZSTD_dParameter as DParameter,
    ZSTD_decompressDCtx, ZSTD_format_e as Format, ZSTD_freeCCtx, ZSTD_freeDCtx, ZSTD_isError,
};

use crate::{
    lzt,
    step::{Info, PageError, Side, SideReader, Step, StepId},
};

pub(super) const STEPS: &[&dyn Step] = &[
    &LZ4,
    &DEFLATE_STEP,
    &DEFLATE_STRONG,
    &ZSTD,
    &ZSTD_LONG,
    &Lzt {
        info: Info {
            id: StepId(48),
            name: "lzt",
            keeps_length: false,
            has_side: false,
        },
        search: lzt::pack,
    },
    &Lzt {
        info: Info {
            id: StepId(49),
            name: "lzts",
            keeps_length: false,
            has_side: false,
        },
        search: lzt::pack_strong,
    },
];

/// The LZ of [`lzt`], with one of its two searches; what either makes has one format.
#[derive(Debug)]
pub struct Lzt {
    info: Info,
    search: fn(&[u8], &mut [u8], &mut lzt::Workspace) -> Option<usize>,
}

impl Step for Lzt {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, ws: &mut Workspace) -> Option<usize> {
        (self.search)(raw, out, ws.get())
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        lzt::unpack(packed, out).map_err(|fault| PageError::Corrupt(fault.0))
    }
}

/// Whether this step is one of these.
pub(crate) fn finds_matches(id: StepId) -> bool {
    STEPS.iter().any(|step| step.id() == id)
}

/// A codec of the `codecs` crate, at one level.
#[derive(Debug)]
pub struct Block<C> {
    info: Info,
    codec: C,
    level: Level,
}

const LZ4: Block<Lz4> = Block {
    info: Info {
        id: StepId(16),
        name: "lz4",
        keeps_length: false,
        has_side: false,
    },
    codec: Lz4,
    level: Level(0),
};

/// At level 8, where libdeflate is hardly slower on a page than at 6.
const DEFLATE_STEP: Block<narrows_codecs::deflate::Deflate> = Block {
    info: Info {
        id: StepId(18),
        name: "deflate",
        keeps_length: false,
        has_side: false,
    },
    codec: DEFLATE,
    level: Level(8),
};

/// At level 10, which finds what is shortest for its own estimate of code lengths, and takes four times as long.
const DEFLATE_STRONG: Block<narrows_codecs::deflate::Deflate> = Block {
    info: Info {
        id: StepId(50),
        name: "deflates",
        keeps_length: false,
        has_side: false,
    },
    codec: DEFLATE,
    level: Level(10),
};

impl<C: Codec> Step for Block<C> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, ws: &mut Workspace) -> Option<usize> {
        self.codec.pack(raw, self.level, &[], out, ws)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        self.codec
            .unpack(packed, &[], out, ws)
            .map_err(|fault| match fault {
                DecodeError::Corrupt { what, .. } => PageError::Corrupt(what),
                _ => PageError::Corrupt("refused by its block format"),
            })
    }
}

/// zstd frames without magic number, packed at level 1 with matches of at least `LEN_MIN` bytes.
#[derive(Debug)]
pub struct ZstdBlock<const LEN_MIN: i32> {
    info: Info,
}

/// With the level's own shortest match.
const ZSTD: ZstdBlock<5> = ZstdBlock {
    info: Info {
        id: StepId(17),
        name: "zstd",
        keeps_length: false,
        has_side: false,
    },
};

/// Where a page has few different bytes, as in genes and columns of digits, a short match costs more bits than its
/// literals, and there is one nearly everywhere: long ones alone pack shorter, and are found faster.
const ZSTD_LONG: ZstdBlock<7> = ZstdBlock {
    info: Info {
        id: StepId(56),
        name: "zstdl",
        keeps_length: false,
        has_side: false,
    },
};

impl<const LEN_MIN: i32> Step for ZstdBlock<LEN_MIN> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(&self, raw: &[u8], out: &mut [u8], _: &mut Side, ws: &mut Workspace) -> Option<usize> {
        let packer = ws.get::<PagePacker<LEN_MIN>>();
        packer.begin();
        let context = packer.context.as_ptr();
        // SAFETY: the context is live and ours alone; the pointers hold the lengths given with them. A frame begins
        // anew with each call.
        let len = ok(unsafe {
            ZSTD_compress2(
                context,
                out.as_mut_ptr().cast(),
                out.len(),
                raw.as_ptr().cast(),
                raw.len(),
            )
        })?;
        packer.note(&out[..len]);
        Some(len)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        let context = ws.get::<Unpacker>().0.as_ptr();
        // SAFETY: the context is live and ours alone; the pointers hold the lengths given with them; the library is
        // made for untrusted input, and in one call `out` itself is the window, so nothing is allocated.
        let written = unsafe {
            ZSTD_decompressDCtx(
                context,
                out.as_mut_ptr().cast(),
                out.len(),
                packed.as_ptr().cast(),
                packed.len(),
            )
        };
        match ok(written) {
            Some(len) if len == out.len() => Ok(()),
            Some(_) => Err(PageError::Corrupt("zstd frame of another length")),
            None => Err(PageError::Corrupt("not a zstd frame")),
        }
    }
}

/// From now on zstd in this workspace takes 3 to 20 % less time than the level does, and packs up to 6 % longer: its
/// table has 16 KiB rather than 32 for a page, its matches at least 7 bytes rather than 5, and of frames in a row whose
/// literals hardly pack every third does without their Huffman code ([`PagePacker::note`]).
pub(crate) fn hasten_zstd(ws: &mut Workspace) {
    fn hasten<const LEN_MIN: i32>(packer: &mut PagePacker<LEN_MIN>) {
        packer.set(CParameter::ZSTD_c_hashLog, 12);
        packer.set(CParameter::ZSTD_c_minMatch, 7);
        packer.is_hasty = true;
    }
    hasten(ws.get::<PagePacker<5>>());
    hasten(ws.get::<PagePacker<7>>());
}

/// By how many bytes literals of a frame of [`ZstdBlock`] became shorter (RFC 8878 §3.1.1.3.1.1); `None` where it has
/// none, or all alike.
fn saved_by_literals(frame: &[u8]) -> Option<usize> {
    const COMPRESSED_BLOCK: u8 = 2;
    // Two bytes of the frame's header and three of the block's lie before those of the literals.
    let block = frame.get(2)?;
    let head = u32::from_le_bytes(frame.get(5..9)?.try_into().expect("four bytes"));
    if block >> 1 & 3 != COMPRESSED_BLOCK {
        return None;
    }
    let (before, after) = match (head & 3, head >> 2 & 3) {
        (0, _) => (0, 0),
        (2, 0 | 1) => (head >> 4 & 0x3ff, head >> 14 & 0x3ff),
        (2, 2) => (head >> 4 & 0x3fff, head >> 18),
        _ => return None,
    };
    Some(before.saturating_sub(after) as usize)
}

/// A length or code of the library, `None` where it means an error.
fn ok(code: usize) -> Option<usize> {
    // SAFETY: a pure function of its argument.
    (unsafe { ZSTD_isError(code) } == 0).then_some(code)
}

/// So many frames of those that hardly need it have their literals coded, and the next has not.
const IN_VAIN: u32 = 2;

struct PagePacker<const LEN_MIN: i32> {
    context: NonNull<ZSTD_CCtx>,
    is_hasty: bool,
    /// Frames in a row, since one that stored its literals, in which to code them saved little.
    in_vain: u32,
    stores_literals: bool,
}

impl<const LEN_MIN: i32> Default for PagePacker<LEN_MIN> {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a context of our own.
        let context =
            NonNull::new(unsafe { ZSTD_createCCtx() }).expect("memory for a zstd context");
        let mut packer = Self {
            context,
            is_hasty: false,
            in_vain: 0,
            stores_literals: false,
        };
        packer.set(CParameter::ZSTD_c_compressionLevel, 1);
        packer.set(CParameter::ZSTD_c_minMatch, LEN_MIN);
        packer.set(CParameter::ZSTD_c_contentSizeFlag, 0);
        // ZSTD_c_format
        packer.set(
            CParameter::ZSTD_c_experimentalParam2,
            Format::ZSTD_f_zstd1_magicless as i32,
        );
        packer
    }
}

impl<const LEN_MIN: i32> PagePacker<LEN_MIN> {
    fn set(&mut self, parameter: CParameter, value: i32) {
        // SAFETY: the context is live and ours; a bad value is refused, not undefined.
        ok(unsafe { ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) })
            .expect("a value it has");
    }

    /// Before each frame.
    fn begin(&mut self) {
        let stores_literals = self.in_vain == IN_VAIN;
        if stores_literals != self.stores_literals {
            self.stores_literals = stores_literals;
            // What a frame that became too long left behind would refuse parameters.
            // SAFETY: the context is live and ours.
            let reset =
                unsafe { ZSTD_CCtx_reset(self.context.as_ptr(), Reset::ZSTD_reset_session_only) };
            ok(reset).expect("nothing in it can fail");
            let mode = if stores_literals {
                Switch::ZSTD_ps_disable
            } else {
                Switch::ZSTD_ps_auto
            };
            // ZSTD_c_literalCompressionMode
            self.set(CParameter::ZSTD_c_experimentalParam5, mode as i32);
        }
    }

    /// After a frame. On pages with long matches a quarter of the time goes to the literals between them, most of it to
    /// building a code for them, whatever their number. Where such pages are all there is, only that makes zstd faster:
    /// longer steps or matches do not. To store the literals of each would be 5 to 12 % longer.
    fn note(&mut self, frame: &[u8]) {
        if !self.is_hasty {
            return;
        }
        let is_vain = !self.stores_literals
            && saved_by_literals(frame).is_some_and(|saved| saved <= frame.len() / 8);
        self.in_vain = if is_vain { self.in_vain + 1 } else { 0 };
    }
}

impl<const LEN_MIN: i32> Drop for PagePacker<LEN_MIN> {
    fn drop(&mut self) {
        // SAFETY: made by `ZSTD_createCCtx` and freed only here.
        unsafe { ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}

struct Unpacker(NonNull<ZSTD_DCtx>);

impl Default for Unpacker {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a context of our own.
        let context =
            NonNull::new(unsafe { ZSTD_createDCtx() }).expect("memory for a zstd context");
        // SAFETY: the context is live and ours; ZSTD_d_format takes this value.
        let set = unsafe {
            let magicless = Format::ZSTD_f_zstd1_magicless as i32;
            ZSTD_DCtx_setParameter(
                context.as_ptr(),
                DParameter::ZSTD_d_experimentalParam1,
                magicless,
            )
        };
        ok(set).expect("a value it has");
        Self(context)
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        // SAFETY: made by `ZSTD_createDCtx` and freed only here.
        unsafe { ZSTD_freeDCtx(self.0.as_ptr()) };
    }
}

impl<const LEN_MIN: i32> fmt::Debug for PagePacker<LEN_MIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZstdPacker")
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZstdUnpacker")
    }
}

// SAFETY: a context is plain memory without thread affinity, and `&mut Workspace` lends it to one thread at a time.
unsafe impl<const LEN_MIN: i32> Send for PagePacker<LEN_MIN> {}
// SAFETY: as for `PagePacker`.
unsafe impl Send for Unpacker {}
