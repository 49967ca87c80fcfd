//! A dictionary for the pages of one owner, made of samples of them and kept only while it pays.
//!
//! Why: pages of one table, log or source tree repeat what other pages of it have, which no search inside a page finds.
//! A dictionary of *other* data makes pages larger, so there is one for each owner, tried on pages it was not made of.
//! The search and the format are zstd's, level 3, one frame without magic number, content size, dictionary id or checksum:
//! what names the dictionary is the `version` that the caller stores with the page.
//!
//! Making one takes about a second for 4 MiB of samples: a matter for a background thread, which this module does not start.

use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat, train_from_buffer};

use super::Corrupt;

/// Longest dictionary, in bytes. Longer ones gain little more and do not stay in the second cache.
pub const DICTIONARY_MAX: usize = 32 << 10;
const LEVEL: i32 = 3;

/// A dictionary, ready for use by any number of threads.
pub struct Dictionary {
    version: u32,
    bytes: Vec<u8>,
    pack: CDict<'static>,
    unpack: DDict<'static>,
}

/// A dictionary in use by one thread, with zstd's scratch memory.
pub struct Session<'d> {
    pack: CCtx<'d>,
    unpack: DCtx<'d>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary")
            .field("version", &self.version)
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Makes a dictionary of half of `samples` and tries it on the other half. `None` if it does not make those smaller
    /// than `stored` does by at least a thirty-second, or if there are too few samples to tell.
    ///
    /// `stored` gives the bytes that a page takes without a dictionary, by whatever codec it would have.
    pub fn train(version: u32, samples: &[&[u8]], mut stored: impl FnMut(&[u8]) -> usize) -> Option<Self> {
        // Runs of 16, so that a page's neighbour does not stand in for what the dictionary never saw.
        let half = |odd: usize| samples.chunks(16).skip(odd).step_by(2).flatten().copied().collect::<Vec<&[u8]>>();
        let (learn, judge) = (half(0), half(1));
        let lens: Vec<usize> = learn.iter().map(|page| page.len()).collect();
        let mut bytes = vec![0; DICTIONARY_MAX];
        let len = train_from_buffer(&mut bytes[..], &learn.concat(), &lens).ok()?;
        bytes.truncate(len);
        let dictionary = Self::load(version, bytes)?;
        let mut session = dictionary.session()?;
        let (mut with, mut without) = (0, 0);
        let mut out = Vec::new();
        for page in judge {
            out.resize(page.len(), 0);
            with += session.pack(page, &mut out).unwrap_or(page.len());
            without += stored(page);
        }
        drop(session);
        (with + without / 32 < without).then_some(dictionary)
    }

    /// A dictionary from what [`Self::bytes`] gave. `None` if zstd cannot use it.
    #[must_use]
    pub fn load(version: u32, bytes: Vec<u8>) -> Option<Self> {
        let pack = CDict::try_create(&bytes, LEVEL)?;
        let unpack = DDict::try_create(&bytes)?;
        Some(Self { version, bytes, pack, unpack })
    }

    /// The caller's number for it: a page packed with one version is unpacked with the same.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The dictionary, to be kept beside the pages that need it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes the dictionary ready for one thread. `None` if zstd has no memory.
    #[must_use]
    pub fn session(&self) -> Option<Session<'_>> {
        let mut session = Session { pack: CCtx::try_create()?, unpack: DCtx::try_create()? };
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            session.pack.set_parameter(parameter).ok()?;
        }
        session.pack.ref_cdict(&self.pack).ok()?;
        session.unpack.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
        session.unpack.ref_ddict(&self.unpack).ok()?;
        Some(session)
    }
}

impl Session<'_> {
    /// Packs `page` into the front of `out`; `None` if it does not fit.
    pub fn pack(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        self.pack.compress2(out, page).ok()
    }

    /// Fills `out` exactly with the page that `packed` holds. `packed` may be any bytes.
    pub fn unpack(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
        match self.unpack.decompress(out, packed) {
            Ok(len) if len == out.len() => Ok(()),
            _ => Err(Corrupt("not a page of this dictionary")),
        }
    }
}
