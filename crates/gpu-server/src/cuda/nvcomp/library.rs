//! The library: its batched functions for the formats that our codecs write, too.
//!
//! Written from the public documentation of nvCOMP 6.0; no header was copied. Every options structure has 64 bytes,
//! unused ones zero, and goes by value. Names and options changed at 5.0 and 6.0, so other versions are refused.

use std::{
    env,
    ffi::{OsString, c_void},
    path::{Path, PathBuf},
    sync::Arc,
};

use libloading::Library;

/// Names the library, if it is not where the loader looks.
pub const LIBRARY_VARIABLE: &str = "NARROWS_NVCOMP_LIB";
const SONAME: &str = "libnvcomp.so.6";
/// First number of the versions that are known here.
const MAJOR: u32 = 6;
/// `NVCOMP_DECOMPRESS_BACKEND_CUDA`: the hardware engine reports success whatever it is given.
const BACKEND_CUDA: u32 = 2;

/// A format of bytes that both a GPU and our codecs read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An LZ4 block without a frame.
    Lz4,
    /// Raw Snappy.
    Snappy,
    /// A Zstandard frame.
    Zstd,
    /// A bare DEFLATE stream.
    Deflate,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Snappy, Self::Zstd, Self::Deflate];

    /// The codec that reads and writes it on the processor.
    #[must_use]
    pub fn codec(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        }
    }

    /// The format of what this codec packs, if a GPU reads it.
    #[must_use]
    pub fn of(codec: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|format| format.codec() == codec);
        known.or_else(|| (codec == "lz4-hc").then_some(Self::Lz4))
    }

    /// Longest chunk that is packed, in bytes.
    #[must_use]
    pub fn chunk_len_max(self) -> usize {
        16 << 20
    }
}

/// 64 bytes that are passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Opts([u32; 16]);

const _: () = assert!(size_of::<Opts>() == 64);

impl Opts {
    pub(super) fn pack(format: Format) -> Self {
        let mut words = [0; 16];
        // Of DEFLATE the algorithm, 1 being the default. LZ4 takes bytes, not shuffled: zeros.
        words[0] = u32::from(format == Format::Deflate);
        Self(words)
    }

    pub(super) fn unpack() -> Self {
        let mut words = [0; 16];
        words[0] = BACKEND_CUDA;
        Self(words)
    }
}

/// What a buffer's address must be a multiple of, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alignments {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) temp: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Properties {
    version: u32,
    cudart_version: u32,
}

type Status = u32;
type GetProperties = unsafe extern "C" fn(*mut Properties) -> Status;
type Stream = *mut c_void;
type Aligned = unsafe extern "C" fn(Opts, *mut Alignments) -> Status;
type TempLen = unsafe extern "C" fn(usize, usize, Opts, *mut usize, usize, Stream) -> Status;
type PackedMax = unsafe extern "C" fn(usize, Opts, *mut usize) -> Status;
/// Pointers and lengths of the input, longest and number of chunks, workspace, pointers and lengths of the output.
/// Arrays are in device memory, so all are numbers here.
type Pack =
    unsafe extern "C" fn(u64, u64, usize, usize, u64, usize, u64, u64, Opts, u64, Stream) -> Status;
/// Pointers and lengths of the input, room and lengths of the output, number, workspace, pointers of the output.
type Unpack =
    unsafe extern "C" fn(u64, u64, u64, u64, usize, u64, usize, u64, Opts, u64, Stream) -> Status;

/// The functions of one format.
pub(super) struct Calls {
    pub(super) pack_alignments: Aligned,
    pub(super) pack_temp: TempLen,
    pub(super) packed_max: PackedMax,
    pub(super) pack: Pack,
    pub(super) unpack_alignments: Aligned,
    pub(super) unpack_temp: TempLen,
    pub(super) unpack: Unpack,
}

impl Calls {
    fn load(library: &Library, format: Format) -> Result<Self, String> {
        let name = match format {
            Format::Lz4 => "LZ4",
            Format::Snappy => "Snappy",
            Format::Zstd => "Zstd",
            Format::Deflate => "Deflate",
        };
        macro_rules! get {
            ($kind:ty, $what:literal) => {
                // SAFETY: names and parameters are those of the documentation of this version.
                unsafe { get::<$kind>(library, &format!("nvcompBatched{name}{}", $what))? }
            };
        }
        Ok(Self {
            pack_alignments: get!(Aligned, "CompressGetRequiredAlignments"),
            pack_temp: get!(TempLen, "CompressGetTempSize"),
            packed_max: get!(PackedMax, "CompressGetMaxOutputChunkSize"),
            pack: get!(Pack, "CompressAsync"),
            unpack_alignments: get!(Aligned, "DecompressGetRequiredAlignments"),
            unpack_temp: get!(TempLen, "DecompressGetTempSize"),
            unpack: get!(Unpack, "DecompressAsync"),
        })
    }
}

/// # Safety
/// The function of this name has this type.
unsafe fn get<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|found| *found).map_err(|_| {
        format!("nvCOMP has no {name}: it is not of version {MAJOR}, or damaged; the processors do its work")
    })
}

/// nvCOMP, opened at run time.
pub struct Nvcomp {
    calls: [Calls; 4],
    version: u32,
    /// Holds the functions.
    _library: Library,
}

impl std::fmt::Debug for Nvcomp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvcomp")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Nvcomp {
    /// Opens `path`, what the variable names, or the library where the loader looks. A path must be absolute.
    ///
    /// # Errors
    /// One sentence: it is not there, not of the version that is known here, or a function is missing.
    pub fn open(path: Option<&Path>) -> Result<Arc<Self>, String> {
        let named = path.map(PathBuf::from);
        let named = named.or_else(|| env::var_os(LIBRARY_VARIABLE).map(PathBuf::from));
        if let Some(path) = named.as_deref().filter(|path| !path.is_absolute()) {
            return Err(format!(
                "{} is not an absolute path to nvCOMP",
                path.display()
            ));
        }
        let name = named.map_or_else(|| OsString::from(SONAME), OsString::from);
        // SAFETY: the user or the system names this file as nvCOMP; its initialisers are as trusted as the program.
        let library = unsafe { Library::new(&name) }.map_err(|fault| {
            let cause = std::error::Error::source(&fault).map_or_else(String::new, |why| format!(" ({why})"));
            format!("nvCOMP is not there{cause}; the processors do its work. It is in NVIDIA's package nvidia-libnvcomp-cu12")
        })?;
        // SAFETY: as the documentation declares it.
        let properties = unsafe { get::<GetProperties>(&library, "nvcompGetProperties")? };
        let mut told = Properties::default();
        // SAFETY: writes one structure of its type.
        let status = unsafe { properties(&raw mut told) };
        if status != 0 || told.version / 1000 != MAJOR {
            return Err(format!(
                "nvCOMP {}.{} is not known here, only {MAJOR}; the processors do its work",
                told.version / 1000,
                told.version % 1000 / 100
            ));
        }
        let load = |format| Calls::load(&library, format);
        Ok(Arc::new(Self {
            calls: [
                load(Format::Lz4)?,
                load(Format::Snappy)?,
                load(Format::Zstd)?,
                load(Format::Deflate)?,
            ],
            version: told.version,
            _library: library,
        }))
    }

    /// Its version: 1000 × major + 100 × minor + patch.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn calls(&self, format: Format) -> &Calls {
        &self.calls[format as usize]
    }
}
