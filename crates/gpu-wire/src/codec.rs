//! How messages become bytes: little-endian, lists with their length before them, a frame's length before the frame.

use crate::MESSAGE_LEN_MAX;

/// Why bytes of a peer are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message beyond the limit.
    #[error("a message of {len} bytes; the longest has {MESSAGE_LEN_MAX}")]
    TooLong {
        /// As announced.
        len: usize,
    },
    /// It ends before its fields do.
    #[error("a message that ends too early")]
    Short,
    /// It goes on after its fields.
    #[error("a message with {0} bytes too many")]
    Rest(usize),
    /// A kind that this version does not know.
    #[error("a message of unknown kind {0}")]
    Kind(u8),
    /// A field with a value that it cannot have.
    #[error("a message with an impossible {0}")]
    Value(&'static str),
}

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub struct Frames {
    held: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Adds bytes as they come, in pieces of at most [`MESSAGE_LEN_MAX`].
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.held.drain(..self.at);
            self.at = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// The next whole message's body, or `None` until more has come.
    ///
    /// # Errors
    /// [`WireError::TooLong`]; the stream cannot be read on.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let held = &self.held[self.at..];
        let Some((len, rest)) = held.split_first_chunk() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > MESSAGE_LEN_MAX {
            return Err(WireError::TooLong { len });
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        self.at += 4 + len;
        Ok(Some(body.to_vec()))
    }
}

/// A value within a message.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(bytes: &mut &[u8]) -> Result<Self, WireError>;
}

macro_rules! numbers {
    ($($kind:ty),*) => { $(
        impl Field for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
                let (number, rest) = bytes.split_first_chunk().ok_or(WireError::Short)?;
                *bytes = rest;
                Ok(Self::from_le_bytes(*number))
            }
        }
    )* };
}
numbers!(u8, u32, u64, i32, f32);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        match u8::take(bytes)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value("flag")),
        }
    }
}

impl<const N: usize> Field for [u32; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|word| word.put(out));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = u32::take(bytes)?;
        }
        Ok(words)
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let (found, rest) = bytes.split_first_chunk().ok_or(WireError::Short)?;
        *bytes = rest;
        Ok(*found)
    }
}

fn take_slice<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let len = u32::take(bytes)? as usize;
    let (found, rest) = bytes.split_at_checked(len).ok_or(WireError::Short)?;
    *bytes = rest;
    Ok(found)
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        Ok(take_slice(bytes)?.to_vec())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let text = std::str::from_utf8(take_slice(bytes)?);
        text.map(Self::from).map_err(|_| WireError::Value("text"))
    }
}

/// A list of structures. Each takes a byte at least, so a list is never longer than its message.
impl<T: Field + Structure> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let len = u32::take(bytes)? as usize;
        if len > bytes.len() {
            return Err(WireError::Short);
        }
        (0..len).map(|_| T::take(bytes)).collect()
    }
}

/// Marks what lists may hold; bytes have a list of their own.
pub(crate) trait Structure {}

macro_rules! structure {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl Structure for $name {}

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(bytes: &mut &[u8]) -> Result<Self, WireError> {
                Ok(Self { $($field: <$kind>::take(bytes)?,)* })
            }
        }
    };
}

/// An enumeration of messages. Those of one unnamed field carry a structure.
macro_rules! messages {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$variant_meta:meta])* $kind:literal => $variant:ident
            $({ $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? })?
            $(($inner:ty))?,)*
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* $variant $({ $($(#[$field_meta])* $field: $type),* })? $(($inner))?,)*
        }

        impl $name {
            /// Appends the message, its length before it.
            pub fn put(&self, out: &mut Vec<u8>) {
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                match self {
                    $(Self::$variant $({ $($field),* })? $((messages!(@bind inner $inner)))? => {
                        out.push($kind);
                        $($($field.put(out);)*)?
                        $(messages!(@use inner out $inner);)?
                    })*
                }
                let len = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&len.to_le_bytes());
            }

            /// Reads a message's body.
            ///
            /// # Errors
            /// [`WireError`], for anything that is not one whole message.
            pub fn parse(mut bytes: &[u8]) -> Result<Self, WireError> {
                let bytes = &mut bytes;
                let message = match u8::take(bytes)? {
                    $($kind => Self::$variant
                        $({ $($field: <$type>::take(bytes)?),* })?
                        $((<$inner>::take(bytes)?))?,)*
                    kind => return Err(WireError::Kind(kind)),
                };
                if bytes.is_empty() { Ok(message) } else { Err(WireError::Rest(bytes.len())) }
            }
        }
    };
    (@bind $name:ident $inner:ty) => { $name };
    (@use $name:ident $out:ident $inner:ty) => { $name.put($out) };
}

pub(crate) use {messages, structure};
