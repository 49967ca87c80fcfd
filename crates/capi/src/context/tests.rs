use std::ptr;

use super::*;
use crate::{
    error::{narrows_get_error_code, narrows_is_error},
    stream::{
        Dctx, EndDirective, InBuffer, OutBuffer, narrows_compress_stream, narrows_dctx_create,
        narrows_dctx_free, narrows_dctx_reset, narrows_decompress_stream,
    },
};

fn code(result: usize) -> i32 {
    narrows_get_error_code(result)
}

/// Decimals, which pack, and then noise, which does not.
fn content(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..len / 16)
        .flat_map(|n| ((noise() % 64 + n as u64) as f64 / 10.0).to_le_bytes())
        .collect();
    while bytes.len() < len {
        bytes.extend(noise().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn compress(cctx: *mut Cctx, content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; narrows_compress_bound(content.len())];
    // SAFETY: the context is live or null; the buffers are ours.
    let len = unsafe {
        narrows_compress2(
            cctx,
            packed.as_mut_ptr().cast(),
            packed.len(),
            content.as_ptr().cast(),
            content.len(),
        )
    };
    assert_eq!(code(len), 0);
    packed.truncate(len);
    packed
}

fn decompress(packed: &[u8], capacity: usize) -> Result<Vec<u8>, i32> {
    let mut out = vec![0; capacity];
    // SAFETY: the buffers are ours.
    let len = unsafe {
        narrows_decompress(
            out.as_mut_ptr().cast(),
            capacity,
            packed.as_ptr().cast(),
            packed.len(),
        )
    };
    if narrows_is_error(len) == 1 {
        return Err(code(len));
    }
    out.truncate(len);
    Ok(out)
}

#[test]
fn buffers_come_back_and_room_is_what_the_bound_says() {
    for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
        let content = content(len);
        // SAFETY: the context is used until it is freed only.
        unsafe {
            let cctx = narrows_cctx_create();
            for (parameter, value) in [
                (Parameter::ChunkLength, 4096),
                (Parameter::Threads, 2),
                (Parameter::Goal, Goal::Size as i32),
                (Parameter::Type, ValueType::F64 as i32),
                (Parameter::Level, 1),
            ] {
                assert_eq!(narrows_cctx_set_parameter(cctx, parameter as i32, value), 0);
                let packed = compress(cctx, &content);
                assert_eq!(decompress(&packed, len).unwrap(), content);
                let mut found = 0;
                let at = packed.as_ptr().cast();
                assert_eq!(narrows_content_size(at, packed.len(), &raw mut found), 0);
                assert_eq!(found, len as u64);
                if len > 0 {
                    let small = decompress(&packed, len - 1);
                    assert_eq!(small, Err(ErrorCode::DstTooSmall as i32));
                }
            }
            assert_eq!(narrows_cctx_free(cctx), 0);
        }
        let noise = content[len / 2..].to_vec();
        assert_eq!(
            decompress(&compress(ptr::null_mut(), &noise), len).unwrap(),
            noise
        );
    }
}

// Goal: damage is told, or does no harm. Method: each cut of a short file, and every bit of it turned over.
#[test]
fn damaged_files_are_told() {
    let content = content(3000);
    let packed = compress(ptr::null_mut(), &content);
    for cut in 0..packed.len() {
        assert!(decompress(&packed[..cut], 3000).is_err(), "cut at {cut}");
    }
    for bit in 0..packed.len() * 8 {
        let mut broken = packed.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        // zstd's own header has a bit that means nothing.
        if let Ok(out) = decompress(&broken, 3000) {
            assert!(out == content, "bit {bit}");
        }
    }
    assert_eq!(
        decompress(b"something else entirely", 99),
        Err(ErrorCode::Corrupt as i32)
    );
}

#[test]
fn a_destination_that_is_too_small_is_told() {
    let content = content(100_000);
    let len = compress(ptr::null_mut(), &content).len();
    let mut small = vec![0_u8; len - 1];
    // SAFETY: the buffers are ours.
    let result = unsafe {
        let (dst, src) = (small.as_mut_ptr().cast(), content.as_ptr().cast());
        narrows_compress2(ptr::null_mut(), dst, small.len(), src, content.len())
    };
    assert_eq!(code(result), ErrorCode::DstTooSmall as i32);
}

#[test]
fn parameters_are_checked() {
    // SAFETY: the context is used until it is freed only.
    unsafe {
        let cctx = narrows_cctx_create();
        let set = |parameter, value| code(narrows_cctx_set_parameter(cctx, parameter, value));
        assert_eq!(set(0, 0), ErrorCode::ParameterUnsupported as i32);
        for (parameter, value) in [
            (Parameter::Goal, 3),
            (Parameter::Level, 0),
            (Parameter::Level, 20),
            (Parameter::Type, 12),
            (Parameter::Threads, -1),
            (Parameter::ChunkLength, 5000),
            (Parameter::ChunkLength, i32::MAX - 4095),
        ] {
            let result = set(parameter as i32, value);
            assert_eq!(
                result,
                ErrorCode::ParameterOutOfBound as i32,
                "{parameter:?} {value}"
            );
        }
        for value in 0..12 {
            assert_eq!(set(Parameter::Type as i32, value), 0);
        }
        assert_eq!(narrows_cctx_free(cctx), 0);
        assert_eq!(narrows_cctx_free(ptr::null_mut()), 0);
        let null = ErrorCode::NullPointer as i32;
        assert_eq!(
            code(narrows_cctx_set_parameter(ptr::null_mut(), 1, 0)),
            null
        );
        assert_eq!(code(narrows_cctx_reset(ptr::null_mut())), null);
        let one = narrows_compress2(ptr::null_mut(), ptr::null_mut(), 1, ptr::null(), 0);
        assert_eq!(code(one), null);
        assert_eq!(
            code(narrows_decompress(ptr::null_mut(), 0, ptr::null(), 1)),
            null
        );
        assert_eq!(
            code(narrows_content_size(ptr::null(), 0, ptr::null_mut())),
            null
        );
    }
    assert_eq!(narrows_is_error(narrows_compress_bound(usize::MAX)), 1);
}

/// Packs content by a stream in pieces of `step` bytes, with room for as many.
fn stream(cctx: *mut Cctx, content: &[u8], step: usize) -> Vec<u8> {
    let (mut packed, mut room) = (Vec::new(), vec![0_u8; step]);
    let mut input = InBuffer {
        src: content.as_ptr().cast(),
        size: 0,
        pos: 0,
    };
    loop {
        input.size = (input.pos + step).min(content.len());
        let is_last = input.size == content.len();
        let end = if is_last {
            EndDirective::End
        } else {
            EndDirective::Continue
        };
        let mut output = OutBuffer {
            dst: room.as_mut_ptr().cast(),
            size: step,
            pos: 0,
        };
        // SAFETY: the context is live; the buffers are ours.
        let left =
            unsafe { narrows_compress_stream(cctx, &raw mut output, &raw mut input, end as i32) };
        assert_eq!(code(left), 0);
        packed.extend_from_slice(&room[..output.pos]);
        if is_last && left == 0 {
            return packed;
        }
    }
}

/// Unpacks a stream in pieces of `step` bytes; the content, and the last result.
fn unstream(dctx: *mut Dctx, packed: &[u8], step: usize) -> (Vec<u8>, usize) {
    let (mut content, mut room) = (Vec::new(), vec![0_u8; step]);
    let mut input = InBuffer {
        src: packed.as_ptr().cast(),
        size: 0,
        pos: 0,
    };
    loop {
        input.size = (input.pos + step).min(packed.len());
        let mut output = OutBuffer {
            dst: room.as_mut_ptr().cast(),
            size: step,
            pos: 0,
        };
        // SAFETY: the context is live; the buffers are ours.
        let result = unsafe { narrows_decompress_stream(dctx, &raw mut output, &raw mut input) };
        content.extend_from_slice(&room[..output.pos]);
        let is_over = input.pos == packed.len() && output.pos < step;
        if narrows_is_error(result) == 1 || is_over {
            return (content, result);
        }
    }
}

// Goal: a stream is the buffer's file, however it is cut. Method: steps from one byte to all of it, two files in a row.
#[test]
fn streams_come_back_however_they_are_cut() {
    let content = content(60_000);
    // SAFETY: contexts are used until they are freed only.
    unsafe {
        let (cctx, dctx) = (narrows_cctx_create(), narrows_dctx_create());
        assert_eq!(
            narrows_cctx_set_parameter(cctx, Parameter::ChunkLength as i32, 8192),
            0
        );
        for step in [1, 7, 4096, 50_000, 100_000] {
            let mut packed = stream(cctx, &content, step);
            assert_eq!(unstream(dctx, &packed, step), (content.clone(), 0));
            packed.extend(stream(cctx, &content[..100], step));
            let twice = [&content[..], &content[..100]].concat();
            assert_eq!(unstream(dctx, &packed, step), (twice.clone(), 0));
            assert_eq!(decompress(&packed, twice.len()).unwrap(), twice);

            let (_, result) = unstream(dctx, &packed[..packed.len() - 1], step);
            assert!(result > 0 && narrows_is_error(result) == 0, "cut");
            assert_eq!(narrows_dctx_reset(dctx), 0);
            packed[200] ^= 1;
            let (_, result) = unstream(dctx, &packed, step);
            assert_eq!(code(result), ErrorCode::Corrupt as i32);
            assert_eq!(narrows_dctx_reset(dctx), 0);
        }
        assert!(stream(cctx, b"", 10).len() < 100, "a file of nothing");
        narrows_cctx_free(cctx);
        narrows_dctx_free(dctx);
    }
}

#[test]
fn calls_out_of_turn_are_told() {
    let mut byte = 0_u8;
    let mut output = OutBuffer {
        dst: (&raw mut byte).cast(),
        size: 1,
        pos: 0,
    };
    let mut input = InBuffer {
        src: b"content".as_ptr().cast(),
        size: 7,
        pos: 0,
    };
    let (go_on, end) = (EndDirective::Continue as i32, EndDirective::End as i32);
    // SAFETY: the context is used until it is freed only; buffers are ours, or null.
    unsafe {
        let cctx = narrows_cctx_create();
        let null = ErrorCode::NullPointer as i32;
        let none = ptr::null_mut();
        assert_eq!(
            code(narrows_compress_stream(cctx, none, &raw mut input, end)),
            null
        );
        let (output, input) = (&raw mut output, &raw mut input);
        assert_eq!(
            code(narrows_compress_stream(cctx, output, ptr::null_mut(), end)),
            null
        );
        assert_eq!(
            code(narrows_compress_stream(ptr::null_mut(), output, input, end)),
            null
        );
        assert_eq!(
            code(narrows_decompress_stream(ptr::null_mut(), output, input)),
            null
        );
        let invalid = ErrorCode::InvalidArgument as i32;
        assert_eq!(
            code(narrows_compress_stream(cctx, output, input, 7)),
            invalid
        );

        assert_eq!(
            narrows_compress_stream(cctx, output, input, go_on),
            0,
            "less than a chunk"
        );
        let wrong = ErrorCode::StageWrong as i32;
        assert_eq!(code(narrows_cctx_set_parameter(cctx, 1, 0)), wrong);
        assert!(narrows_compress_stream(cctx, output, input, end) > 0);
        assert_eq!(
            code(narrows_compress_stream(cctx, output, input, go_on)),
            wrong
        );
        (*output).pos = 2;
        assert_eq!(
            code(narrows_compress_stream(cctx, output, input, end)),
            invalid
        );
        assert_eq!(narrows_cctx_reset(cctx), 0);
        assert_eq!(narrows_cctx_set_parameter(cctx, 1, 0), 0);
        narrows_cctx_free(cctx);
    }
}
