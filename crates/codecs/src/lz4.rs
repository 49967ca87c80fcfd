//! Raw LZ4 blocks by the reference library: `lz4`, the fast search, and `lz4-hc`, the thorough one.
//!
//! Both write the same format, and either unpacks what the other packed. `lz4` reaches back into history as LZ4
//! dictionaries do: the last 64 KiB before the chunk.

use std::{
    ffi::{c_char, c_int, c_void},
    fmt,
    ptr::NonNull,
};

use lz4_sys::{LZ4_compress_HC, LZ4_compress_fast, LZ4_decompress_safe};
use narrows_core::{Codec, CodecId, DecodeError, Info, Level, Workspace};

/// LZ4's fast search. Level `-n` accelerates by `1 + n`: it looks at fewer places.
#[derive(Debug, Clone, Copy)]
pub struct Lz4;

/// LZ4's thorough search. Packs at a tenth of the speed or less, unpacks as fast.
#[derive(Debug, Clone, Copy)]
pub struct Lz4Hc;

static FAST: Info = Info {
    id: CodecId(1),
    name: "lz4",
    levels: -64..=0,
    level_default: 0,
    history: true,
    format: FORMAT,
};

static HC: Info = Info {
    id: CodecId(2),
    name: "lz4-hc",
    levels: 3..=12,
    level_default: 9,
    history: false,
    format: FORMAT,
};

const FORMAT: &str = "https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md";

impl Codec for Lz4 {
    fn info(&self) -> &'static Info {
        &FAST
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize> {
        let (raw_len, room) = (c_len(raw)?, c_room(out));
        let acceleration = 1 - c_int::from(level.0.clamp(*FAST.levels.start(), *FAST.levels.end()));
        let (src, dst) = (
            raw.as_ptr().cast::<c_char>(),
            out.as_mut_ptr().cast::<c_char>(),
        );
        let written = if history.is_empty() {
            // SAFETY: `src` holds `raw_len` bytes and `dst` `room` bytes; the library reads and writes no further.
            unsafe { LZ4_compress_fast(src, dst, raw_len, room, acceleration) }
        } else {
            let dictionary = reachable(history);
            let stream = ws.get::<Stream>().0.as_ptr();
            // SAFETY: `stream` is live and ours alone. `dictionary` is at most 64 KiB and outlives the second call,
            // after which the stream is not used again before `LZ4_loadDict` resets it.
            unsafe {
                LZ4_loadDict(
                    stream,
                    dictionary.as_ptr().cast(),
                    dictionary.len() as c_int,
                );
                LZ4_compress_fast_continue(stream, src, dst, raw_len, room, acceleration)
            }
        };
        usize::try_from(written).ok().filter(|&n| n > 0)
    }

    fn unpack(
        &self,
        packed: &[u8],
        history: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        unpack(packed, history, out)
    }
}

impl Codec for Lz4Hc {
    fn info(&self) -> &'static Info {
        &HC
    }

    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Option<usize> {
        let (raw_len, room) = (c_len(raw)?, c_room(out));
        let level = c_int::from(level.0.clamp(*HC.levels.start(), *HC.levels.end()));
        // SAFETY: the pointers hold `raw_len` and `room` bytes; the library reads and writes no further.
        let written = unsafe {
            LZ4_compress_HC(
                raw.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                raw_len,
                room,
                level,
            )
        };
        usize::try_from(written).ok().filter(|&n| n > 0)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _: &[u8],
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), DecodeError> {
        unpack(packed, &[], out)
    }
}

fn unpack(packed: &[u8], history: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let too_long = || DecodeError::corrupt(0, "LZ4 block beyond 2 GiB");
    let packed_len = c_len(packed).ok_or_else(too_long)?;
    let out_len = c_len(out).ok_or_else(too_long)?;
    let (src, dst) = (
        packed.as_ptr().cast::<c_char>(),
        out.as_mut_ptr().cast::<c_char>(),
    );
    let dictionary = reachable(history);
    // SAFETY: all three pointers hold the lengths given with them. `LZ4_decompress_safe*` are made for untrusted
    // input: they check every read and write against these lengths, and matches against the dictionary's start.
    let written = unsafe {
        if dictionary.is_empty() {
            LZ4_decompress_safe(src, dst, packed_len, out_len)
        } else {
            let (dict, dict_len) = (dictionary.as_ptr().cast(), dictionary.len() as c_int);
            LZ4_decompress_safe_usingDict(src, dst, packed_len, out_len, dict, dict_len)
        }
    };
    match usize::try_from(written) {
        Ok(n) if n == out.len() => Ok(()),
        Ok(_) => Err(DecodeError::corrupt(
            packed.len(),
            "LZ4 block of another length",
        )),
        Err(_) => Err(DecodeError::corrupt(
            written.unsigned_abs() as usize - 1,
            "not an LZ4 block",
        )),
    }
}

/// What of `history` an LZ4 match can reach.
fn reachable(history: &[u8]) -> &[u8] {
    &history[history.len().saturating_sub(64 << 10)..]
}

fn c_len(bytes: &[u8]) -> Option<c_int> {
    c_int::try_from(bytes.len()).ok()
}

/// The room to offer the library: more than it can count is as good as all it can count.
fn c_room(out: &[u8]) -> c_int {
    c_len(out).unwrap_or(c_int::MAX)
}

/// The library's hash table for packing with history.
struct Stream(NonNull<c_void>);

impl Default for Stream {
    fn default() -> Self {
        // SAFETY: allocates and returns null or a stream of our own.
        Self(NonNull::new(unsafe { LZ4_createStream() }).expect("16 KiB of memory"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `LZ4_createStream` and freed only here.
        unsafe { LZ4_freeStream(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lz4Stream")
    }
}

// SAFETY: the stream is plain memory without thread affinity, and `&mut Workspace` lends it to one thread at a time.
unsafe impl Send for Stream {}

// `lz4-sys` builds the whole library but declares only part of it.
unsafe extern "C" {
    fn LZ4_createStream() -> *mut c_void;
    fn LZ4_freeStream(stream: *mut c_void) -> c_int;
    fn LZ4_loadDict(stream: *mut c_void, dictionary: *const c_char, len: c_int) -> c_int;
    fn LZ4_compress_fast_continue(
        stream: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        dictionary: *const c_char,
        dictionary_len: c_int,
    ) -> c_int;
}
