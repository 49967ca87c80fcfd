//! Numbers that must not be mixed up: one newtype each.

use std::fmt;

/// Number of a codec in every frame header. Assigned in `docs/specs/codec-ids.md`; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodecId(pub u8);

impl CodecId {
    /// The chunk travels as it is. Every peer has it, so it is never negotiated.
    pub const RAW: Self = Self(0);
    /// What another codec made, with zeros behind it, so that the length tells less. No codec of a registry: frames are
    /// wrapped and unwrapped around theirs.
    pub const PADDED: Self = Self(31);
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The codec's own number for how hard it tries. Only comparable within one codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub i16);

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One ordered lane in a session. Channel 0 of every connection carries the session's own messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

impl ChannelId {
    /// The lane of the session's own messages.
    pub const CONTROL: Self = Self(0);
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Counts the chunks of one direction of one channel, from 0, dense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
