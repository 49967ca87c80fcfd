//! Compression contexts and their parameters; whole buffers.

use std::{
    ffi::{c_int, c_void},
    io,
};

use narrows_rest::{Element, FileError, FileOptions, Goal as PackGoal};

use crate::{
    boundary,
    error::{Error, ErrorCode},
    options,
    packing::Packing,
};

/// What a compression context can be told.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// What compressing is for: a narrows_goal.
    Goal = 1,
    /// As fast as zstd at this level, 1 to 19. Takes the place of the goal.
    Level = 2,
    /// What the content is an array of: a narrows_type. Content of another kind is compressed as right, if not as short.
    Type = 3,
    /// Threads that compress; 0, the default, is one for each processor. What is made does not depend on it.
    Threads = 4,
    /// Content bytes that are compressed as one: a multiple of 4096 up to 16 MiB; 0, the default, takes what suits the goal.
    ChunkLength = 5,
}

/// What compressing is for.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// As fast as zstd at level 3. The default.
    Balanced = 0,
    /// As fast as zstd at level 1.
    Speed = 1,
    /// As short as possible, at the speed of zstd's level 19.
    Size = 2,
}

/// What content is an array of, in the order of bytes of the machine (little-endian).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Not said: the content is looked at. The default.
    Unknown = 0,
    /// 16-bit floats.
    F16 = 1,
    /// 32-bit floats.
    F32 = 2,
    /// 64-bit floats.
    F64 = 3,
    /// Signed bytes.
    I8 = 4,
    /// Signed 16-bit integers.
    I16 = 5,
    /// Signed 32-bit integers.
    I32 = 6,
    /// Signed 64-bit integers.
    I64 = 7,
    /// Bytes.
    U8 = 8,
    /// Unsigned 16-bit integers.
    U16 = 9,
    /// Unsigned 32-bit integers.
    U32 = 10,
    /// Unsigned 64-bit integers.
    U64 = 11,
}

/// A compression context: parameters, and the stream in progress. Used by one thread at a time.
#[derive(Debug, Default)]
pub struct Cctx {
    pub(crate) options: FileOptions,
    pub(crate) packing: Packing,
    /// A call panicked.
    pub(crate) broken: bool,
}

impl Cctx {
    /// Runs a call. After a panic in one, none is run until it is freed.
    pub(crate) fn run(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        if self.broken {
            return Err(ErrorCode::Internal.into());
        }
        // Taken back below; a panic leaves it.
        self.broken = true;
        let result = work(self);
        self.broken = false;
        result
    }
}

/// Makes a compression context; never null. Free it by narrows_cctx_free().
#[unsafe(no_mangle)]
pub extern "C" fn narrows_cctx_create() -> *mut Cctx {
    Box::into_raw(Box::default())
}

/// Frees a compression context. A null pointer is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_cctx_free(cctx: *mut Cctx) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            drop(boundary::take_back(cctx));
            Ok(0)
        })
    }
}

/// Drops the stream in progress; parameters stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_cctx_reset(cctx: *mut Cctx) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            boundary::exclusive(cctx)?.run(|cctx| {
                cctx.packing = Packing::default();
                Ok(0)
            })
        })
    }
}

/// Sets a narrows_parameter. Between streams only: NARROWS_ERROR_CODE_STAGE_WRONG while one is in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_cctx_set_parameter(
    cctx: *mut Cctx,
    parameter: c_int,
    value: c_int,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            boundary::exclusive(cctx)?.run(|cctx| {
                if cctx.packing.is_in_progress() {
                    return Err(ErrorCode::StageWrong.into());
                }
                cctx.options = with_parameter(cctx.options, parameter, value)?;
                Ok(0)
            })
        })
    }
}

/// The most bytes that so many bytes of content become, whatever the parameters.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_compress_bound(src_size: usize) -> usize {
    boundary::call(|| {
        let bound = narrows_rest::packed_len_max(src_size as u64);
        let fits = usize::try_from(bound)
            .ok()
            .filter(|bound| *bound <= isize::MAX as usize);
        fits.ok_or(ErrorCode::InvalidArgument.into())
    })
}

/// Compresses src to dst with the context's parameters; the length, or an error. cctx may be null for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_compress2(
    cctx: *mut Cctx,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let dst = boundary::bytes_mut(dst.cast(), dst_capacity)?;
            let src = boundary::bytes(src.cast(), src_size)?;
            let pack = |options: &FileOptions| {
                let mut out = io::Cursor::new(dst);
                narrows_rest::pack_to(&mut out, src, options)?;
                Ok(out.position() as usize)
            };
            match cctx.is_null() {
                true => pack(&FileOptions::default()),
                false => boundary::exclusive(cctx)?.run(|cctx| pack(&cctx.options)),
            }
        })
    }
}

/// Unpacks src, which must be whole, to dst; the length, or an error: NARROWS_ERROR_CODE_DST_TOO_SMALL where the content
/// is longer than dst.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_decompress(
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let dst = boundary::bytes_mut(dst.cast(), dst_capacity)?;
            let src = boundary::bytes(src.cast(), src_size)?;
            match narrows_rest::unpack_into(src, dst) {
                Err(FileError::Limit { .. }) => Err(ErrorCode::DstTooSmall.into()),
                result => Ok(result?),
            }
        })
    }
}

/// Writes how long the content of src is, which must be whole; 0, or an error. src is not trusted: it may claim any
/// length, so check it before you allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_content_size(
    src: *const c_void,
    src_size: usize,
    content_size: *mut u64,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let src = boundary::bytes(src.cast(), src_size)?;
            if content_size.is_null() {
                return Err(ErrorCode::NullPointer.into());
            }
            let reader = narrows_rest::SeekReader::new(io::Cursor::new(src))?;
            content_size.write(reader.summary().content_len);
            Ok(0)
        })
    }
}

fn with_parameter(
    options: FileOptions,
    parameter: c_int,
    value: c_int,
) -> Result<FileOptions, Error> {
    let bad = |name| options::out_of_bounds(name, value.into());
    let options = match parameter {
        it if it == Parameter::Goal as c_int => options.goal(match value {
            it if it == Goal::Balanced as c_int => PackGoal::Balanced,
            it if it == Goal::Speed as c_int => PackGoal::Speed,
            it if it == Goal::Size as c_int => PackGoal::Size,
            _ => return Err(bad("goal")),
        }),
        it if it == Parameter::Level as c_int => {
            let level = u8::try_from(value).ok();
            let level = level.filter(|level| narrows_rest::LEVELS.contains(level));
            options.goal(PackGoal::Level(level.ok_or_else(|| bad("level"))?))
        }
        it if it == Parameter::Type as c_int => options.element(element(value)?),
        it if it == Parameter::Threads as c_int => {
            options.threads(usize::try_from(value).map_err(|_| bad("threads"))?)
        }
        it if it == Parameter::ChunkLength as c_int => {
            let len = usize::try_from(value).map_err(|_| bad("chunk length"))?;
            if !len.is_multiple_of(4096) || len > 16 << 20 {
                return Err(bad("chunk length"));
            }
            options.chunk_len(len)
        }
        _ => return Err(ErrorCode::ParameterUnsupported.into()),
    };
    Ok(options)
}

fn element(value: c_int) -> Result<Option<Element>, Error> {
    const ELEMENTS: [(ValueType, Element); 11] = [
        (ValueType::F16, Element::F16),
        (ValueType::F32, Element::F32),
        (ValueType::F64, Element::F64),
        (ValueType::I8, Element::I8),
        (ValueType::I16, Element::I16),
        (ValueType::I32, Element::I32),
        (ValueType::I64, Element::I64),
        (ValueType::U8, Element::U8),
        (ValueType::U16, Element::U16),
        (ValueType::U32, Element::U32),
        (ValueType::U64, Element::U64),
    ];
    if value == ValueType::Unknown as c_int {
        return Ok(None);
    }
    let found = ELEMENTS
        .iter()
        .find(|(number, _)| *number as c_int == value);
    let found = found.ok_or_else(|| options::out_of_bounds("type", value.into()))?;
    Ok(Some(found.1))
}

#[cfg(test)]
mod tests;
