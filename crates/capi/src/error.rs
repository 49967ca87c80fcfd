//! Errors: a code in the result, a static name for it, and the reason in words where there is room.

use std::{
    ffi::{CStr, c_char, c_int},
    io,
};

use libc::{
    EBADMSG, EBUSY, EEXIST, EFBIG, EINVAL, EIO, ENOBUFS, ENOENT, ENOMEM, ENOSPC, ENOTSUP, EROFS,
    ESHUTDOWN,
};
use narrows_core::BlockError;
use narrows_disk::{DiskError, MakeError, backing::BackingError};
use narrows_memory::RamDiskError;
use narrows_rest::FileError;

/// What went wrong, as narrows_get_error_code() tells it. Numbers are never reused.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// No error.
    None = 0,
    /// A null pointer where something is needed.
    NullPointer = 1,
    /// An argument that makes no sense.
    InvalidArgument = 2,
    /// A parameter or a member of a struct that this version does not know.
    ParameterUnsupported = 3,
    /// A parameter's value is out of its bounds.
    ParameterOutOfBound = 4,
    /// A call out of its turn, as compressing more after the end.
    StageWrong = 5,
    /// The destination is too small. It may have been written to.
    DstTooSmall = 6,
    /// The input is damaged or not of this format.
    Corrupt = 7,
    /// The input ends too early.
    Truncated = 8,
    /// Made by a newer version.
    VersionUnsupported = 9,
    /// Larger than the limit given.
    LimitExceeded = 10,
    /// The system gives no memory or no thread.
    MemoryAllocation = 11,
    /// Reading or writing failed.
    Io = 12,
    /// No space. What was acknowledged is safe, and trimming makes room.
    NoSpace = 13,
    /// The device takes no writes.
    ReadOnly = 14,
    /// Nothing of that name.
    NotFound = 15,
    /// Another program has it.
    Busy = 16,
    /// What is there is not a narrows disk.
    NotADisk = 17,
    /// Something else is there already.
    Occupied = 18,
    /// A flush failed, so that what is durable is not known. Close the device and open it again.
    Poisoned = 19,
    /// The device is closed.
    Closed = 20,
    /// The device cannot do this in the way asked for.
    OperationUnsupported = 21,
    /// A bug in narrows. The object takes no more calls; free it.
    Internal = 22,
}

/// Results above this are errors: lengths never come near it.
const ERRORS_FROM: usize = usize::MAX - 127;

/// Every code, its name, and the error number that comes nearest to it.
const CODES: &[(ErrorCode, &CStr, c_int)] = &[
    (ErrorCode::None, c"no error", 0),
    (ErrorCode::NullPointer, c"null pointer", EINVAL),
    (ErrorCode::InvalidArgument, c"invalid argument", EINVAL),
    (
        ErrorCode::ParameterUnsupported,
        c"parameter not known to this version",
        EINVAL,
    ),
    (
        ErrorCode::ParameterOutOfBound,
        c"parameter out of bounds",
        EINVAL,
    ),
    (ErrorCode::StageWrong, c"call out of turn", EINVAL),
    (ErrorCode::DstTooSmall, c"destination too small", ENOBUFS),
    (
        ErrorCode::Corrupt,
        c"damaged, or not of this format",
        EBADMSG,
    ),
    (ErrorCode::Truncated, c"input ends too early", EBADMSG),
    (
        ErrorCode::VersionUnsupported,
        c"made by a newer version",
        ENOTSUP,
    ),
    (ErrorCode::LimitExceeded, c"larger than the limit", EFBIG),
    (
        ErrorCode::MemoryAllocation,
        c"no memory or thread to be had",
        ENOMEM,
    ),
    (ErrorCode::Io, c"input or output failed", EIO),
    (ErrorCode::NoSpace, c"no space", ENOSPC),
    (ErrorCode::ReadOnly, c"read-only", EROFS),
    (ErrorCode::NotFound, c"nothing of that name", ENOENT),
    (ErrorCode::Busy, c"in use by another program", EBUSY),
    (ErrorCode::NotADisk, c"not a narrows disk", EINVAL),
    (
        ErrorCode::Occupied,
        c"something else is there already",
        EEXIST,
    ),
    (
        ErrorCode::Poisoned,
        c"a flush failed; close it and open it again",
        EIO,
    ),
    (ErrorCode::Closed, c"closed", ESHUTDOWN),
    (
        ErrorCode::OperationUnsupported,
        c"operation not supported",
        ENOTSUP,
    ),
    (ErrorCode::Internal, c"internal error; free the object", EIO),
];

/// Why a call failed, in words. Give one where a function takes it, or null.
#[repr(C)]
#[derive(Debug)]
pub struct Reason {
    /// Ends with a zero byte; cut where it would be longer. Empty where the call succeeded.
    pub text: [c_char; 512],
}

impl Reason {
    /// Writes as much of `text` as fits.
    pub(crate) fn set(&mut self, text: &str) {
        let mut len = text.len().min(self.text.len() - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        for (to, from) in self.text.iter_mut().zip(text.as_bytes()[..len].iter()) {
            *to = *from as c_char;
        }
        self.text[len] = 0;
    }
}

/// Why a call failed: what C is told, and the words.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) code: ErrorCode,
    pub(crate) reason: String,
}

impl Error {
    pub(crate) fn new(code: ErrorCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { code, reason }
    }
}

impl From<ErrorCode> for Error {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, row(code).1.to_string_lossy())
    }
}

impl ErrorCode {
    /// The result of a call that failed so.
    pub(crate) fn result(self) -> usize {
        (self as usize).wrapping_neg()
    }

    fn of(result: usize) -> Self {
        if result < ERRORS_FROM {
            return Self::None;
        }
        let number = result.wrapping_neg();
        let found = CODES.iter().find(|(code, ..)| *code as usize == number);
        found.map_or(Self::Internal, |(code, ..)| *code)
    }
}

fn row(code: ErrorCode) -> &'static (ErrorCode, &'static CStr, c_int) {
    let found = CODES.iter().find(|(it, ..)| *it == code);
    found.expect("every code has its row")
}

impl From<BlockError> for Error {
    fn from(error: BlockError) -> Self {
        let code = match &error {
            BlockError::NoSpace(_) => ErrorCode::NoSpace,
            BlockError::Invalid(_) => ErrorCode::InvalidArgument,
            BlockError::ReadOnly => ErrorCode::ReadOnly,
            BlockError::Unsupported(_) => ErrorCode::OperationUnsupported,
            BlockError::Shutdown => ErrorCode::Closed,
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BackingError> for Error {
    fn from(error: BackingError) -> Self {
        let code = match &error {
            missing if missing.is_missing() => ErrorCode::NotFound,
            BackingError::NoSpace { .. } => ErrorCode::NoSpace,
            BackingError::Busy { .. } => ErrorCode::Busy,
            BackingError::Unsupported { .. } => ErrorCode::OperationUnsupported,
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        let reason = error.to_string();
        let code = match error {
            DiskError::Backing { source, .. } => Self::from(source).code,
            DiskError::NotADisk { .. } => ErrorCode::NotADisk,
            DiskError::Newer { .. } => ErrorCode::VersionUnsupported,
            DiskError::Occupied { .. } => ErrorCode::Occupied,
            DiskError::Damaged { .. } => ErrorCode::Corrupt,
            DiskError::Truncated { .. } => ErrorCode::Truncated,
            DiskError::Settings(_) | DiskError::Invalid(_) => ErrorCode::InvalidArgument,
            DiskError::Poisoned(_) => ErrorCode::Poisoned,
            DiskError::NoSpace(_) => ErrorCode::NoSpace,
            DiskError::ReadOnly => ErrorCode::ReadOnly,
            DiskError::Closed => ErrorCode::Closed,
            _ => ErrorCode::Internal,
        };
        Self::new(code, reason)
    }
}

impl From<MakeError> for Error {
    fn from(error: MakeError) -> Self {
        let reason = error.to_string();
        let code = match error {
            MakeError::Backing { source, .. } => Self::from(source).code,
            MakeError::Disk(error) => Self::from(error).code,
            _ => ErrorCode::Internal,
        };
        Self::new(code, reason)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let code = match &error {
            // A buffer of the caller's that is full.
            FileError::Io(fault) if fault.kind() == io::ErrorKind::WriteZero => {
                ErrorCode::DstTooSmall
            }
            FileError::Io(_) => ErrorCode::Io,
            FileError::NotNarrows | FileError::Damaged { .. } => ErrorCode::Corrupt,
            FileError::Version(_) | FileError::Codec { .. } => ErrorCode::VersionUnsupported,
            FileError::Truncated { .. } => ErrorCode::Truncated,
            FileError::Limit { .. } => ErrorCode::LimitExceeded,
            FileError::Setting(_) => ErrorCode::ParameterOutOfBound,
            _ => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<RamDiskError> for Error {
    fn from(error: RamDiskError) -> Self {
        let code = match &error {
            RamDiskError::Empty(_) => ErrorCode::InvalidArgument,
            RamDiskError::TooLarge { .. } | RamDiskError::Io(_) => ErrorCode::MemoryAllocation,
            RamDiskError::Backing(_) => ErrorCode::Io,
            _ => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// Whether a result is an error: 1, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_is_error(result: usize) -> c_int {
    c_int::from(result >= ERRORS_FROM)
}

/// Which error a result is, as narrows_error_code has them; NARROWS_ERROR_CODE_NONE if it is none.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_get_error_code(result: usize) -> c_int {
    ErrorCode::of(result) as c_int
}

/// What a result says, in a few words. Never null, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_error_name(result: usize) -> *const c_char {
    row(ErrorCode::of(result)).1.as_ptr()
}

/// The error number of errno.h that comes nearest to a result; 0 if it is no error.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_error_errno(result: usize) -> c_int {
    row(ErrorCode::of(result)).2
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: C gets a name for whatever it asks about. Method: every code, and results that are none.
    #[test]
    fn every_code_has_its_row_and_survives_the_way_through_a_result() {
        for (at, (code, name, errno)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, at, "rows are in order and none is missing");
            let result = code.result();
            assert_eq!(narrows_get_error_code(result), *code as c_int);
            assert_eq!(narrows_is_error(result), c_int::from(at != 0));
            assert_eq!(narrows_error_name(result), name.as_ptr());
            assert_eq!(*errno == 0, at == 0);
        }
        assert_eq!(narrows_is_error(usize::MAX >> 1), 0);
        assert_eq!(
            narrows_get_error_code(usize::MAX - 127),
            ErrorCode::Internal as c_int
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut reason = Reason { text: [1; 512] };
        reason.set(&"\u{e9}".repeat(400));
        let bytes = reason.text.map(|byte| byte as u8);
        let text = CStr::from_bytes_until_nul(&bytes)
            .unwrap()
            .to_str()
            .unwrap();
        assert_eq!(text.chars().count(), 255);
    }
}
