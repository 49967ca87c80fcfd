//! What a step is: a lossless transform of up to 8 KiB, with a decoder that takes any bytes.

use std::fmt::Debug;

use narrows_core::Workspace;

use crate::PAGE;

/// Number of a step in a packed page. Assigned in `docs/specs/chain.md`; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u8);

/// What a step is.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Number in packed pages.
    pub id: StepId,
    /// What users type: `dk8`, `zstd`.
    pub name: &'static str,
    /// Whether packed bytes are always as many as raw ones. Where they are not, the page carries the raw length for the
    /// steps behind.
    pub keeps_length: bool,
    /// Whether it ever writes to its side.
    pub has_side: bool,
}

/// One transform. Shared by all threads: immutable; scratch memory comes in through `ws`.
pub trait Step: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &Info;

    /// Packs `raw` into the front of `out` and returns the packed length, or `None` if it does not fit or the step has
    /// no use for such bytes. What the inverse must know besides (an order, a period, exceptions) goes to `side`.
    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize>;

    /// Fills `out` exactly. `packed` and `side` are untrusted: any bytes may come, none may panic or over-read.
    ///
    /// # Errors
    /// [`PageError::Corrupt`] when they are not the packed form of exactly `out.len()` bytes.
    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError>;

    /// See [`Info::id`].
    fn id(&self) -> StepId {
        self.info().id
    }

    /// See [`Info::name`].
    fn name(&self) -> &'static str {
        self.info().name
    }

    /// See [`Info::keeps_length`].
    fn keeps_length(&self) -> bool {
        self.info().keeps_length
    }

    /// See [`Info::has_side`].
    fn has_side(&self) -> bool {
        self.info().has_side
    }
}

/// Why packed bytes did not become a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Contradicts the format: the page is lost.
    #[error("corrupt page: {0}")]
    Corrupt(&'static str),
    /// Well formed, but by a newer version.
    #[error("step {} is not known here", .0.0)]
    UnknownStep(StepId),
    /// Well formed, but by a newer version.
    #[error("built-in chain {0} is not known here")]
    UnknownChain(u8),
}

/// Most bytes between two steps: a step may double what it cannot pack, and a later one gets it small.
pub const BETWEEN_MAX: usize = 2 * PAGE;

/// What one step leaves beside its packed bytes, a page at most.
#[derive(Debug)]
pub struct Side {
    bytes: Box<[u8; PAGE]>,
    len: usize,
}

impl Default for Side {
    fn default() -> Self {
        Self {
            bytes: Box::new([0; PAGE]),
            len: 0,
        }
    }
}

impl Side {
    /// Appends `bytes`; `None` when there is no room, which is then the step's answer too.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes
            .get_mut(self.len..self.len + bytes.len())?
            .copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Moves the `len` bytes at `start` behind all that were put after them: a stage in place of several steps makes
    /// the first step's side first, and it belongs last.
    pub(crate) fn move_back(&mut self, start: usize, len: usize) {
        self.bytes[start..self.len].rotate_left(len);
    }

    /// Everything put so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// What a packed page holds of its steps' sides and has not been read yet. Every step takes as much as it put.
#[derive(Debug, Clone, Copy)]
pub struct SideReader<'a>(pub &'a [u8]);

impl<'a> SideReader<'a> {
    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`PageError::Corrupt`] when there are fewer.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], PageError> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(PageError::Corrupt("a side is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// As [`SideReader::take`].
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], PageError> {
        Ok(self.take(N)?.try_into().expect("as many as taken"))
    }

    /// The next byte.
    ///
    /// # Errors
    /// As [`SideReader::take`].
    #[inline]
    pub fn byte(&mut self) -> Result<u8, PageError> {
        self.array::<1>().map(|[byte]| byte)
    }
}
