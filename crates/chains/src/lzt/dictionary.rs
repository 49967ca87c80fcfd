//! A dictionary for the pages of one owner, made of samples of them and kept only while it pays.
//!
//! Why: pages of one table, log or source tree repeat what other pages of it have, which no search inside a page finds.
//! A dictionary of *other* data makes pages larger, so there is one for each owner, tried on pages it was not made of.
//! The search and the format are zstd's, one frame without magic number, content size, dictionary id or checksum; which
//! dictionary it is of, the caller stores with the page.
//!
//! Making one takes a tenth of a second for a megabyte of samples: a matter for a background thread, which this module
//! does not start. What packs takes about a megabyte for its tables, what unpacks about 60 KiB beside the dictionary;
//! so they are apart.

use narrows_core::Workspace;
use zstd_safe::{CCtx, CParameter, DCtx, DDict, DParameter, FrameFormat, train_from_buffer};

use super::Corrupt;

/// Longest dictionary, in bytes. Longer ones gain little more and do not stay in the second cache.
pub const DICTIONARY_MAX: usize = 32 << 10;
/// Stores take 1 to 5 % less memory than at level 6. At level 12 it is another 0.4 to 1 %, for a sixth to a third more
/// of the keeper's time.
const LEVEL: i32 = 9;

/// A dictionary, ready to unpack by any number of threads.
pub struct Dictionary {
    bytes: Vec<u8>,
    unpack: DDict<'static>,
}

/// A dictionary that passed its trial.
#[derive(Debug)]
pub struct Trained {
    /// What was made.
    pub dictionary: Dictionary,
    /// How many pages it was tried on.
    pub pages: usize,
    /// Bytes of the pages that it was tried on and not made of, as they were stored without it, and with it if it made
    /// them smaller.
    pub without: usize,
    /// See `without`.
    pub with: usize,
}

/// What packs by a dictionary, for one thread.
pub struct PagePacker {
    context: CCtx<'static>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary")
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PagePacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DictionaryPacker").finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Makes a dictionary of three quarters of `samples` and tries it on the others. `None` if it does not make those
    /// smaller than `stored` does by at least a thirty-second, or if there are too few samples to tell.
    ///
    /// `stored` gives the bytes that a page takes without the dictionary, by whatever codec it would have.
    pub fn train(samples: &[&[u8]], mut stored: impl FnMut(&[u8]) -> usize) -> Option<Trained> {
        // Runs of 16, so that a page's neighbour does not stand in for what the dictionary never saw.
        const RUN: usize = 16;
        let is_judge = |n: usize| n / RUN % 4 == 3;
        let numbered = || samples.iter().copied().enumerate();
        let learn: Vec<&[u8]> = numbered()
            .filter(|(n, _)| !is_judge(*n))
            .map(|(_, page)| page)
            .collect();
        let lens: Vec<usize> = learn.iter().map(|page| page.len()).collect();
        let mut bytes = vec![0; DICTIONARY_MAX];
        let len = train_from_buffer(&mut bytes[..], &learn.concat(), &lens).ok()?;
        bytes.truncate(len);
        let dictionary = Self::load(bytes)?;
        let mut packer = dictionary.packer()?;
        let (mut pages, mut with, mut without) = (0, 0, 0);
        let mut out = Vec::new();
        for (_, page) in numbered().filter(|(n, _)| is_judge(*n)) {
            let before = stored(page);
            pages += 1;
            out.resize(before, 0);
            with += packer.pack(page, &mut out).unwrap_or(before);
            without += before;
        }
        (with + without / 32 < without).then_some(Trained {
            dictionary,
            pages,
            without,
            with,
        })
    }

    /// A dictionary from what [`Self::bytes`] gave. `None` if zstd cannot use it.
    #[must_use]
    pub fn load(bytes: Vec<u8>) -> Option<Self> {
        let unpack = DDict::try_create(&bytes)?;
        Some(Self { bytes, unpack })
    }

    /// The dictionary.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that it takes, in bytes, without what packs.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.unpack.sizeof()
    }

    /// What packs by it. `None` if zstd has no memory.
    #[must_use]
    pub fn packer(&self) -> Option<PagePacker> {
        let mut context = CCtx::try_create()?;
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            context.set_parameter(parameter).ok()?;
        }
        context.load_dictionary(&self.bytes).ok()?;
        Some(PagePacker { context })
    }

    /// Fills `out` exactly with what a [`PagePacker`] of this dictionary packed. `packed` may be any bytes.
    ///
    /// # Errors
    /// [`Corrupt`] if it is not that.
    pub fn unpack(&self, packed: &[u8], out: &mut [u8], ws: &mut Workspace) -> Result<(), Corrupt> {
        match ws
            .get::<Context>()
            .0
            .decompress_using_ddict(out, packed, &self.unpack)
        {
            Ok(len) if len == out.len() => Ok(()),
            _ => Err(Corrupt("not a page of this dictionary")),
        }
    }
}

impl PagePacker {
    /// Packs `page`, or several, into the front of `out`; `None` if it does not fit.
    pub fn pack(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        self.context.compress2(out, page).ok()
    }
}

/// What a thread unpacks with, by whatever dictionary.
struct Context(DCtx<'static>);

impl Default for Context {
    fn default() -> Self {
        let mut context = DCtx::try_create().expect("memory for a zstd context");
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .expect("a value it has");
        Self(context)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ZstdContext")
    }
}
