//! The boundary to C: pointers become references or errors, panics become codes.

use std::{
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    slice,
};

use crate::error::{Error, ErrorCode, Reason};

/// Runs a call and tells its result as C has it. A panic becomes [`ErrorCode::Internal`]: to unwind into C would end
/// the program. What the call had in hand may be half changed then, so an object that panicked must not be used again.
pub(crate) fn call(work: impl FnOnce() -> Result<usize, Error>) -> usize {
    call_with_reason(None, work)
}

/// The same, for a call that tells the reason in words.
pub(crate) fn call_with_reason(
    reason: Option<&mut Reason>,
    work: impl FnOnce() -> Result<usize, Error>,
) -> usize {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // To drop it could panic again.
        std::mem::forget(payload);
        Err(ErrorCode::Internal.into())
    });
    let words = result
        .as_ref()
        .map_or_else(|error| error.reason.as_str(), |_| "");
    if let Some(reason) = reason {
        reason.set(words);
    }
    result.unwrap_or_else(|error| error.code.result())
}

/// The bytes that C reads from. A null pointer stands for no bytes.
///
/// # Safety
/// `at` is null or points at `len` bytes, which do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], Error> {
    if len == 0 {
        return Ok(&[]);
    }
    check(at, len)?;
    // SAFETY: not null, not longer than a slice may be; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(at, len) })
}

/// The bytes that C is given. A null pointer stands for no bytes.
///
/// # Safety
/// `at` is null or points at `len` bytes that only this call uses during `'a`.
pub(crate) unsafe fn bytes_mut<'a>(at: *mut u8, len: usize) -> Result<&'a mut [u8], Error> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(at, len)?;
    // SAFETY: not null, not longer than a slice may be; the rest is the caller's promise. C may not
    // have written these bytes, but whatever they are is a value of `u8`, and they are only written.
    Ok(unsafe { slice::from_raw_parts_mut(at, len) })
}

fn check(at: *const u8, len: usize) -> Result<(), Error> {
    if at.is_null() {
        return Err(ErrorCode::NullPointer.into());
    }
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(
            ErrorCode::InvalidArgument,
            "a length beyond the address space",
        )),
    }
}

/// A text that ends with a zero byte.
///
/// # Safety
/// `at` is null or points at a C string, which does not change during `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char) -> Result<&'a str, Error> {
    if at.is_null() {
        return Err(ErrorCode::NullPointer.into());
    }
    // SAFETY: not null; that a zero follows is the caller's promise.
    let text = unsafe { CStr::from_ptr(at) };
    let invalid = |_| Error::new(ErrorCode::InvalidArgument, "a name that is not UTF-8");
    text.to_str().map_err(invalid)
}

/// A shared object.
///
/// # Safety
/// `at` is null or points at a live `T`. During `'a` it changes under its own locks only.
pub(crate) unsafe fn shared<'a, T>(at: *const T) -> Result<&'a T, Error> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or(ErrorCode::NullPointer.into())
}

/// An object that this call has for itself.
///
/// # Safety
/// `at` is null or points at a live `T`, to which there is no other reference during `'a`.
pub(crate) unsafe fn exclusive<'a, T>(at: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }.ok_or(ErrorCode::NullPointer.into())
}

/// Where the reason goes.
///
/// # Safety
/// `at` is null or points at a [`Reason`], to which there is no other reference during `'a`.
pub(crate) unsafe fn reason<'a>(at: *mut Reason) -> Option<&'a mut Reason> {
    // SAFETY: the caller's promise; every content of those bytes is a value of theirs.
    unsafe { at.as_mut() }
}

/// Gives an object to C, which gives it back to [`take_back`].
///
/// # Safety
/// `at` is null or points at a pointer that nobody else uses during the call.
pub(crate) unsafe fn hand_out<T>(
    at: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> Result<usize, Error> {
    let slot = NonNull::new(at).ok_or(ErrorCode::NullPointer)?;
    // SAFETY: not null; the rest is the caller's promise. Written, not assigned: C need not have set it.
    unsafe { slot.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { slot.write(made) };
    Ok(0)
}

/// Takes an object back from C; `None` for a null pointer.
///
/// # Safety
/// `at` is null or came from [`hand_out`] or `Box::into_raw`, and C does not use it again.
pub(crate) unsafe fn take_back<T>(at: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    NonNull::new(at).map(|at| unsafe { Box::from_raw(at.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        let mut reason = Reason { text: [1; 512] };
        let result = call_with_reason(Some(&mut reason), || panic!("on purpose"));
        assert_eq!(result, ErrorCode::Internal.result());
        assert_ne!(reason.text[0], 0);
    }

    #[test]
    fn null_pointers_and_absurd_lengths_become_codes() {
        let code = |result: Result<&[u8], Error>| result.unwrap_err().code;
        let byte = 0_u8;
        // SAFETY: null, of no length, or refused before anything is read.
        unsafe {
            assert_eq!(code(bytes(ptr::null(), 1)), ErrorCode::NullPointer);
            assert_eq!(
                code(bytes(&raw const byte, usize::MAX)),
                ErrorCode::InvalidArgument
            );
            assert!(bytes(ptr::null(), 0).unwrap().is_empty());
            assert!(text(ptr::null()).is_err() && shared::<u8>(ptr::null()).is_err());
            assert!(hand_out::<u8>(ptr::null_mut(), || Ok(1)).is_err());
            assert!(take_back::<u8>(ptr::null_mut()).is_none());
        }
    }
}
