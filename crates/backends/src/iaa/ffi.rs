//! QPL's C interface, as far as we call it. Layouts: `qpl/c_api/job.h` of QPL 1.6, the same since 1.0 up to the fields
//! that are used here; the rest is sized by the library itself.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ffi::{c_int, c_uint, c_void},
    path::Path,
    ptr::{self, NonNull},
};

use narrows_core::Unavailable;

use crate::{
    device::{Fault, Session, Unpacked, Wait},
    library::{Source, functions},
};

const SOURCE: Source = Source {
    variable: "NARROWS_QPL_LIB",
    sonames: &["libqpl.so.1"],
    hint: "Intel QPL, with libaccel-config",
};

functions! {
    /// The functions of an opened library.
    Library {
        job_size: unsafe extern "C" fn(c_int, *mut u32) -> c_uint = "qpl_get_job_size",
        init: unsafe extern "C" fn(c_int, *mut Fields) -> c_uint = "qpl_init_job",
        submit: unsafe extern "C" fn(*mut Fields) -> c_uint = "qpl_submit_job",
        check: unsafe extern "C" fn(*mut Fields) -> c_uint = "qpl_check_job",
        fini: unsafe extern "C" fn(*mut Fields) -> c_uint = "qpl_fini_job",
    }
}

impl Library {
    /// Opens QPL.
    pub(super) fn open(path: Option<&Path>) -> Result<&'static Self, Unavailable> {
        let handle = SOURCE.open(path)?;
        // SAFETY: the types are those of QPL's headers, which the soname's major version 1 stands for.
        unsafe { Self::load(handle) }.map_err(|error| SOURCE.missing(&error))
    }
}

/// The front of `qpl_job`, up to what we set.
#[repr(C)]
struct Fields {
    next_in: *const u8,
    available_in: u32,
    total_in: u32,
    next_out: *mut u8,
    available_out: u32,
    total_out: u32,
    op: c_uint,
    flags: u32,
    crc: u32,
    xor_checksum: u32,
    last_bit_offset: u32,
    level: c_uint,
    statistics_mode: c_uint,
    huffman_table: *mut c_void,
    dictionary: *mut c_void,
    mini_block_size: c_uint,
    idx_array: *mut u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Fields, next_out) == 16 && offset_of!(Fields, total_out) == 28);
    assert!(
        offset_of!(Fields, op) == 32
            && offset_of!(Fields, flags) == 36
            && offset_of!(Fields, level) == 52
    );
    assert!(offset_of!(Fields, huffman_table) == 64 && offset_of!(Fields, mini_block_size) == 80);
    assert!(offset_of!(Fields, idx_array) == 88 && size_of::<Fields>() == 96);
};

/// `sizeof(qpl_job)`: a library that wants less is none.
const JOB_LEN_MIN: u32 = 240;
/// 0.8 MiB in QPL 1.6 on any path. A library that wants more than this is not believed.
const JOB_LEN_MAX: u32 = 16 << 20;

const PATH_HARDWARE: c_int = 1;
const PATH_SOFTWARE: c_int = 2;
const OP_DECOMPRESS: c_uint = 0;
const OP_COMPRESS: c_uint = 1;
const LEVEL_DEFAULT: c_uint = 1;
const FLAG_FIRST: u32 = 0x0001;
const FLAG_LAST: u32 = 0x0002;
const FLAG_DYNAMIC_HUFFMAN: u32 = 0x2000;
/// The library's own verification fails (229) in QPL 1.6's software on chunks beyond 32 KiB, and costs the device a
/// second pass; [`device`](crate::device) compares anyway.
const FLAG_OMIT_VERIFY: u32 = 0x4000;
const STS_OK: c_uint = 0;
const STS_BEING_PROCESSED: c_uint = 1;
const STS_QUEUES_ARE_BUSY: c_uint = 5;

/// One thread's job, with the buffers it works on.
pub(super) struct Job {
    library: &'static Library,
    job: NonNull<Fields>,
    layout: Layout,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Job {
    pub(super) fn open(library: &'static Library, software: bool) -> Result<Self, Fault> {
        let path = if software {
            PATH_SOFTWARE
        } else {
            PATH_HARDWARE
        };
        let mut len = 0;
        // SAFETY: writes one number.
        let status = unsafe { (library.job_size)(path, &mut len) };
        if status != STS_OK || !(JOB_LEN_MIN..=JOB_LEN_MAX).contains(&len) {
            return Err(Fault::Failed(status.into()));
        }
        let layout = Layout::from_size_align(len as usize, 64).expect("64 is a power of two");
        // SAFETY: the layout is not of size 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let job = NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory has the length that the library asked for on this path.
        let status = unsafe { (library.init)(path, job.as_ptr()) };
        if status == STS_OK {
            return Ok(Self {
                library,
                job,
                layout,
                input: Vec::new(),
                output: Vec::new(),
            });
        }
        // Freed and not finished: QPL would follow pointers that a failed start leaves null.
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(memory, layout) };
        Err(Fault::Failed(status.into()))
    }

    /// Runs one operation from `input` to `room` bytes of output.
    fn run(
        &mut self,
        op: c_uint,
        flags: u32,
        input: &[u8],
        room: usize,
    ) -> Result<(usize, usize), Fault> {
        let too_long = |_| Fault::Failed(0);
        let (available_in, available_out) = (
            u32::try_from(input.len()).map_err(too_long)?,
            u32::try_from(room).map_err(too_long)?,
        );
        self.input.clear();
        self.input.extend_from_slice(input);
        if self.output.len() < room {
            self.output.resize(room, 0);
        }
        let job = self.job.as_ptr();
        // SAFETY: the job is initialised, ours alone and at rest. Input and output hold the lengths given with them and
        // stay in place until the job has ended, or for ever: after `Hung` the whole of `self` is left behind.
        unsafe {
            (*job).next_in = self.input.as_ptr();
            (*job).available_in = available_in;
            (*job).total_in = 0;
            (*job).next_out = self.output.as_mut_ptr();
            (*job).available_out = available_out;
            (*job).total_out = 0;
            (*job).op = op;
            (*job).flags = flags | FLAG_FIRST | FLAG_LAST;
            (*job).level = LEVEL_DEFAULT;
            (*job).statistics_mode = 0;
            (*job).huffman_table = ptr::null_mut();
            (*job).dictionary = ptr::null_mut();
            (*job).mini_block_size = 0;
            (*job).idx_array = ptr::null_mut();
            let mut status = (self.library.submit)(job);
            if status == STS_OK {
                let wait = Wait::start();
                status = (self.library.check)(job);
                while status == STS_BEING_PROCESSED {
                    if wait.is_over() {
                        return Err(Fault::Hung);
                    }
                    wait.pause();
                    status = (self.library.check)(job);
                }
            }
            match status {
                STS_OK => Ok(((*job).total_in as usize, (*job).total_out as usize)),
                STS_QUEUES_ARE_BUSY => Err(Fault::Busy),
                status => Err(Fault::Failed(status.into())),
            }
        }
    }
}

impl Session for Job {
    fn pack(&mut self, raw: &[u8], _: i16) -> Result<usize, Fault> {
        let room = raw.len() + raw.len() / 8 + 4096;
        let (read, written) = self.run(
            OP_COMPRESS,
            FLAG_DYNAMIC_HUFFMAN | FLAG_OMIT_VERIFY,
            raw,
            room,
        )?;
        if read == raw.len() {
            Ok(written)
        } else {
            Err(Fault::Failed(0))
        }
    }

    fn unpack(&mut self, packed: &[u8], len: usize) -> Result<Unpacked, Fault> {
        let (read, written) = self.run(OP_DECOMPRESS, 0, packed, len)?;
        Ok(Unpacked {
            written,
            read: Some(read),
        })
    }

    fn output(&self) -> &[u8] {
        &self.output
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: the job was initialised, and no operation is under way, since `Hung` leaves `self` behind; the memory was
        // allocated with this layout.
        unsafe {
            (self.library.fini)(self.job.as_ptr());
            dealloc(self.job.as_ptr().cast(), self.layout);
        }
    }
}

// SAFETY: a job belongs to no thread; `&mut` lends it to one at a time.
unsafe impl Send for Job {}
