//! How content is packed.

use std::{fmt, str::FromStr};

use narrows_core::limits::CHUNK_LEN_MAX;

use crate::{FileError, layout::CHUNK_UNIT};

/// What packing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Goal {
    /// As fast as zstd at level 1.
    Speed,
    /// As fast as zstd at level 3, its default.
    #[default]
    Balanced,
    /// As short as possible, at the speed of zstd's level 19.
    Size,
    /// As fast as zstd at this level, 1 to 19.
    Level(u8),
}

impl Goal {
    /// zstd's level of as much work, 1 to 19.
    #[must_use]
    pub fn level(self) -> u8 {
        match self {
            Self::Speed => 1,
            Self::Balanced => 3,
            Self::Size => 19,
            Self::Level(level) => level,
        }
    }
}

impl FromStr for Goal {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        let level = || text.parse().ok().filter(|level| LEVELS.contains(level));
        match text {
            "speed" => Ok(Self::Speed),
            "balanced" => Ok(Self::Balanced),
            "size" => Ok(Self::Size),
            _ => level().map(Self::Level).ok_or_else(|| {
                FileError::Setting(format!(
                    "goal {text:?}; there are speed, balanced, size and the levels 1 to 19"
                ))
            }),
        }
    }
}

/// Levels of zstd that can be named.
pub const LEVELS: std::ops::RangeInclusive<u8> = 1..=19;

/// What the content is an array of. A hint: content of another kind packs right as well, if not as short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say all")]
pub enum Element {
    F32,
    F64,
    F16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl Element {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::F16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// Bytes of one: 1, 2, 4 or 8.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no number is empty")]
    pub fn len(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// What users type: `f32`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Whether it is a float for which there is a codec of decimals.
    pub(crate) fn may_be_decimal(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Element {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            FileError::Setting(format!("type {text:?}; there are {names}"))
        })
    }
}

/// How content is packed. `FileOptions::default()` is what a file of any kind is packed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileOptions {
    /// What packing is for.
    pub goal: Goal,
    /// What the content is an array of, where the caller knows. Else each chunk is looked at.
    pub element: Option<Element>,
    /// Threads that pack; 0 means one for each processor. The bytes of the file do not depend on it.
    pub threads: usize,
    /// Content bytes of a chunk: a multiple of 4096 up to 16 MiB. 0 takes what suits the goal, 2 to 8 MiB.
    pub chunk_len: usize,
}

impl FileOptions {
    /// With this goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// With this hint.
    #[must_use]
    pub fn element(mut self, element: impl Into<Option<Element>>) -> Self {
        self.element = element.into();
        self
    }

    /// With so many threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// With chunks of this many bytes.
    #[must_use]
    pub fn chunk_len(mut self, chunk_len: usize) -> Self {
        self.chunk_len = chunk_len;
        self
    }

    /// The same, with what 0 stands for put in its place.
    ///
    /// # Errors
    /// [`FileError::Setting`].
    pub(crate) fn checked(mut self) -> Result<Self, FileError> {
        let level = self.goal.level();
        if !LEVELS.contains(&level) {
            return Err(FileError::Setting(format!(
                "level {level}; there are 1 to 19"
            )));
        }
        if self.chunk_len == 0 {
            self.chunk_len = chunk_len_for(level);
        }
        let allowed = CHUNK_UNIT..=CHUNK_LEN_MAX;
        if !allowed.contains(&self.chunk_len) || !self.chunk_len.is_multiple_of(CHUNK_UNIT) {
            return Err(FileError::Setting(format!(
                "a chunk of {} bytes; it takes a multiple of 4096 from 4K to 16M",
                self.chunk_len
            )));
        }
        self.threads = threads(self.threads);
        Ok(self)
    }
}

/// What so many threads mean: 0 is one for each processor.
pub(crate) fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        _ => asked.min(THREADS_MAX),
    }
}

/// More threads than any machine has.
const THREADS_MAX: usize = 1024;

/// zstd's windows: 2 MiB at level 3, 4 MiB from 6 on, 8 MiB from 16 on. A shorter chunk loses matches.
fn chunk_len_for(level: u8) -> usize {
    match level {
        0..=5 => 2 << 20,
        6..=15 => 4 << 20,
        _ => 8 << 20,
    }
}
