//! One lossless format, and the scratch memory its work needs.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::Debug,
    ops::RangeInclusive,
};

use crate::{CodecId, DecodeError, Level};

/// What a codec is, for people and for the policy. One `static` per codec.
#[derive(Debug)]
pub struct Info {
    /// Number in frame headers.
    pub id: CodecId,
    /// What users type: `zstd`, `lz4-hc`, `shuffle4-zstd`.
    pub name: &'static str,
    /// Levels it takes. [`Registry::packer`](crate::Registry::packer) finds none for another; asked for it all the
    /// same, a codec takes the nearest. One without levels has `0..=0`.
    pub levels: RangeInclusive<i16>,
    /// Level when the user names none.
    pub level_default: i16,
    /// Whether [`Codec::pack`] makes use of history. Where it does not, history must be empty.
    pub history: bool,
    /// The public description of the bytes: an RFC, a specification, a paper.
    pub format: &'static str,
}

/// One lossless transform of a chunk, as one backend runs it. Shared by all workers: immutable, no locks; scratch
/// memory comes in through `ws`, so that the hot path never allocates.
pub trait Codec: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &'static Info;

    /// Packs `raw` into the front of `out` and returns the packed length in bytes, or `None` if it does not fit.
    /// The caller offers `out` shorter than `raw`, so "did not shrink" is an answer, not a fault: the chunk then
    /// travels raw. `history` is what directly precedes `raw` in its channel; the same bytes must be given to
    /// [`Codec::unpack`]. It is empty unless [`Info::history`].
    fn pack(
        &self,
        raw: &[u8],
        level: Level,
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Option<usize>;

    /// Fills `out` exactly. `packed` is untrusted: any bytes may come, none may panic, over-read or leave part of
    /// `out` as it was and still return `Ok`.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] when `packed` is not the packed form of exactly `out.len()` bytes.
    fn unpack(
        &self,
        packed: &[u8],
        history: &[u8],
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), DecodeError>;

    /// Bytes that packing chunks of `raw_len` bytes at `level` leaves in a thread's [`Workspace`]; 0 where that is 10
    /// MiB at most for any. What bounds memory and lets others choose the level asks.
    fn context_len(&self, _raw_len: usize, _level: Level) -> usize {
        0
    }

    /// Number in frame headers.
    fn id(&self) -> CodecId {
        self.info().id
    }
}

/// Scratch memory of one worker thread: contexts, tables and buffers that codecs keep between chunks.
///
/// Each codec stores what it likes under its own private type, so codecs need not know each other and the
/// workspace need not know them.
#[derive(Debug, Default)]
pub struct Workspace {
    slots: HashMap<TypeId, Box<dyn Any + Send>>,
}

impl Workspace {
    /// The codec's scratch of type `T`, made by `T::default()` at first use.
    pub fn get<T: Any + Send + Default>(&mut self) -> &mut T {
        self.slots
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Box::<T>::default())
            .downcast_mut()
            .expect("a slot holds the type it is filed under")
    }
}
