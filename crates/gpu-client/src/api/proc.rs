//! Names: of functions, of errors, and of what is not here.

use std::{ffi::CString, sync::OnceLock};

use narrows_gpu_abi::{HEADER_VERSION, NotFound, RESULTS, Status, resolve};

use crate::{
    call::{api, say_once},
    ffi::{Answer, In, Out, Text},
};

/// Asks for the twin with the thread's own default stream.
const PER_THREAD: u64 = 2;
/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`, `…_VERSION_NOT_SUFFICIENT`
const SYMBOL_NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

fn address(name: &str, version: i32, flags: u64) -> Result<usize, NotFound> {
    let version = u32::try_from(version).unwrap_or(0).min(HEADER_VERSION);
    let symbol = resolve(name, version, flags & PER_THREAD != 0)?;
    let exports = super::exports();
    let at = exports.binary_search_by(|export| export.name.cmp(symbol.name));
    at.map(|at| exports[at].address.0 as usize)
        .map_err(|_| NotFound::Name)
}

/// C strings of all results, made once: programs keep the pointers.
fn results() -> &'static [(u32, CString, CString)] {
    static NAMES: OnceLock<Vec<(u32, CString, CString)>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let text = |name: &str| {
            name.trim_start_matches("CUDA_ERROR_")
                .to_lowercase()
                .replace('_', " ")
        };
        RESULTS
            .iter()
            .filter_map(|(id, name)| {
                Some((
                    *id,
                    CString::new(*name).ok()?,
                    CString::new(text(name)).ok()?,
                ))
            })
            .collect()
    })
}

fn result_text(
    error: u32,
    to: Out<usize>,
    pick: impl Fn(&(u32, CString, CString)) -> usize,
) -> Answer {
    match results().iter().find(|(id, ..)| *id == error) {
        Some(found) => to.set(pick(found)),
        None => {
            to.offer(0);
            Err(Status::INVALID_VALUE)
        }
    }
}

api! {
    fn cuGetProcAddress(name: Text, to: Out<usize>, version: i32, flags: u64) {
        match address(&name.get()?, version, flags) {
            Ok(found) => to.set(found),
            Err(_) => {
                to.offer(0);
                Err(Status::NOT_FOUND)
            }
        }
    }

    fn cuGetProcAddress_v2(name: Text, to: Out<usize>, version: i32, flags: u64, why: Out<u32>) {
        let found = address(&name.get()?, version, flags);
        why.offer(match found {
            Ok(_) => 0,
            Err(NotFound::Name) => SYMBOL_NOT_FOUND,
            Err(NotFound::TooOld) => VERSION_NOT_SUFFICIENT,
        });
        to.set(found.unwrap_or(0))
    }

    fn cuGetExportTable(table: Out<usize>, id: In<u8>) {
        table.offer(0);
        say_once(
            "this program asks the driver for tables that NVIDIA does not document, as its runtime library does \
             (programs built with <<<>>>, PyTorch, CuPy, JAX, llama.cpp); narrows implements the documented driver \
             API only, so it will say that the driver does not suit. Programs of the driver API run: numba-cuda, \
             cuda-python, tinygrad, Triton, cudarc, FFmpeg",
        );
        Err(Status::NOT_FOUND)
    }

    fn cuGetErrorName(error: u32, to: Out<usize>) {
        result_text(error, to, |(_, name, _)| name.as_ptr() as usize)
    }

    fn cuGetErrorString(error: u32, to: Out<usize>) {
        result_text(error, to, |(.., text)| text.as_ptr() as usize)
    }
}
