//! What a program passes, in types that check for null before they are used.
//!
//! The driver API trusts its callers: a pointer that is not null is valid for what the call says it is. These types are
//! made by the C ABI only, so every unsafe access of a program's memory is in this file or in [`crate::host`].

use std::ffi::{CStr, c_char, c_void};

use narrows_gpu_abi::Status;

/// What a call answers.
pub(crate) type Answer<T = ()> = Result<T, Status>;

/// Where a call leaves a result.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller of the C function vouches for it. It need not be aligned.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// As [`Out::set`], where the program may leave it out.
    pub(crate) fn offer(self, value: T) {
        let _ = self.set(value);
    }

    /// Sets the `at`th of several.
    pub(crate) fn set_at(self, at: usize, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller of the C function vouches for as many elements as it says there are.
        unsafe { self.0.add(at).write_unaligned(value) };
        Ok(())
    }

    pub(crate) fn get(self) -> Answer<T> {
        In(self.0).get()
    }

    /// The same place, as something else.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at(address: usize) -> Self {
        Self(address as *mut T)
    }
}

/// Writes bytes to where a program has room for them.
pub(crate) fn put_bytes(to: Out<u8>, bytes: &[u8]) -> Answer {
    bytes
        .iter()
        .enumerate()
        .try_for_each(|(at, byte)| to.set_at(at, *byte))
}

/// What a call is given by pointer.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn get(self) -> Answer<T> {
        self.get_at(0)
    }

    pub(crate) fn get_at(self, at: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller of the C function vouches for as many elements as it says there are.
        Ok(unsafe { self.0.add(at).read_unaligned() })
    }

    pub(crate) fn list(self, len: usize) -> Answer<Vec<T>> {
        (0..len).map(|at| self.get_at(at)).collect()
    }

    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at(address: usize) -> Self {
        Self(address as *const T)
    }
}

impl In<u8> {
    /// So many bytes.
    pub(crate) fn bytes(self, len: usize) -> Answer<Vec<u8>> {
        if self.0.is_null() && len > 0 {
            return Err(Status::INVALID_VALUE);
        }
        let mut bytes = vec![0; len];
        // SAFETY: the caller of the C function vouches for `len` bytes; the vector has as many and is new.
        unsafe { std::ptr::copy_nonoverlapping(self.0, bytes.as_mut_ptr(), len) };
        Ok(bytes)
    }
}

impl In<u8> {
    pub(crate) fn text(self) -> Text {
        Text(self.0.cast())
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller of the C function vouches for a string with its end.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// A handle that we gave, or a number that means something by itself.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(*mut c_void);

impl Handle {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    pub(crate) fn new(value: u64) -> Self {
        Self(value as usize as *mut c_void)
    }

    pub(crate) fn value(self) -> u64 {
        self.0 as usize as u64
    }
}

/// Kinds of handles: a handle tells what it is for, so that one of another kind is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    Context = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    Pool = 6,
    Graph = 7,
    Node = 8,
    Exec = 9,
    Link = 10,
}

impl Kind {
    const SHIFT: u32 = 42;
    const STEP: u64 = 16;

    /// A handle for an id. It looks like an address, aligned as one, and is never one that may be read.
    pub(crate) fn handle(self, id: u64) -> Handle {
        Handle::new(((self as u64) << Self::SHIFT) | (id * Self::STEP))
    }

    /// The id of a handle of this kind.
    pub(crate) fn id(self, handle: Handle) -> Answer<u64> {
        let value = handle.value();
        if value >> Self::SHIFT == self as u64 && value.is_multiple_of(Self::STEP) {
            Ok((value & ((1 << Self::SHIFT) - 1)) / Self::STEP)
        } else {
            Err(Status::INVALID_HANDLE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_know_their_kind() {
        let handle = Kind::Stream.handle(77);
        assert_eq!(Kind::Stream.id(handle), Ok(77));
        assert_eq!(Kind::Event.id(handle), Err(Status::INVALID_HANDLE));
        assert_eq!(Kind::Stream.id(Handle::new(2)), Err(Status::INVALID_HANDLE));
    }

    #[test]
    fn null_is_noticed() {
        assert_eq!(Out::<u32>::at(0).set(1), Err(Status::INVALID_VALUE));
        assert!(In::<u32>::at(0).get().is_err() && In::<u8>::at(0).bytes(1).is_err());
        assert_eq!(In::<u8>::at(0).bytes(0), Ok(vec![]));
    }
}
