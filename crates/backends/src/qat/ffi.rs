//! QATzip's C interface, as far as we call it. Layouts: `qatzip.h` of API 2.5 (QATzip 1.3); those of the parameters are
//! the same since its functions per algorithm came in 2022, and a library without these is refused.

use std::{
    ffi::{c_int, c_long, c_uchar, c_uint, c_ulong, c_void},
    mem::offset_of,
    path::Path,
    ptr,
};

use narrows_core::Unavailable;

use crate::{
    device::{Fault, Session, Unpacked},
    library::{Source, functions},
};

const SOURCE: Source = Source {
    variable: "NARROWS_QATZIP_LIB",
    sonames: &["libqatzip.so.3"],
    hint: "QATzip, with qatlib",
};

functions! {
    /// The functions of an opened library.
    Library {
        init: unsafe extern "C" fn(*mut QzSession, c_uchar) -> c_int = "qzInit",
        defaults: unsafe extern "C" fn(*mut Params) -> c_int = "qzGetDefaultsDeflate",
        set_up: unsafe extern "C" fn(*mut QzSession, *mut Params) -> c_int = "qzSetupSessionDeflate",
        compress: unsafe extern "C" fn(*mut QzSession, *const u8, *mut c_uint, *mut u8, *mut c_uint, c_uint) -> c_int
            = "qzCompress",
        decompress: unsafe extern "C" fn(*mut QzSession, *const u8, *mut c_uint, *mut u8, *mut c_uint) -> c_int
            = "qzDecompress",
        tear_down: unsafe extern "C" fn(*mut QzSession) -> c_int = "qzTeardownSession",
        close: unsafe extern "C" fn(*mut QzSession) -> c_int = "qzClose",
        set_log_level: unsafe extern "C" fn(c_int) -> c_int = "qzSetLogLevel",
    }
}

impl Library {
    /// Opens QATzip and has it keep quiet: it would write "no hardware" to standard error at every start.
    pub(super) fn open(path: Option<&Path>) -> Result<&'static Self, Unavailable> {
        let handle = SOURCE.open(path)?;
        // SAFETY: the types are those of `qatzip.h`, which the soname's major version 3 stands for.
        let library = unsafe { Self::load(handle) }.map_err(|error| SOURCE.missing(&error))?;
        // SAFETY: sets a number.
        unsafe { (library.set_log_level)(LOG_NONE) };
        Ok(library)
    }
}

/// `QzSession_T`.
#[repr(C)]
struct QzSession {
    hw_session_stat: c_long,
    thd_sess_stat: c_int,
    internal: *mut c_void,
    total_in: c_ulong,
    total_out: c_ulong,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<QzSession>() == 40 && offset_of!(QzSession, internal) == 16);

/// `QzSessionParamsDeflate_T`, with room behind it should a newer library write more defaults.
#[repr(C)]
struct Params {
    direction: c_int,
    comp_lvl: c_uint,
    comp_algorithm: c_uchar,
    max_forks: c_uint,
    /// Bit 0: fall back to software. Bit 1: use nothing else.
    sw_backup: c_uchar,
    hw_buff_sz: c_uint,
    strm_buff_sz: c_uint,
    input_sz_thrshold: c_uint,
    req_cnt_thrshold: c_uint,
    wait_cnt_thrshold: c_uint,
    polling_mode: c_int,
    is_sensitive_mode: c_uint,
    huffman_hdr: c_int,
    data_fmt: c_int,
    reserved: [u8; 200],
}

const _: () = {
    assert!(offset_of!(Params, comp_lvl) == 4 && offset_of!(Params, comp_algorithm) == 8);
    assert!(offset_of!(Params, max_forks) == 12 && offset_of!(Params, sw_backup) == 16);
    assert!(offset_of!(Params, hw_buff_sz) == 20 && offset_of!(Params, strm_buff_sz) == 24);
    assert!(offset_of!(Params, input_sz_thrshold) == 28 && offset_of!(Params, polling_mode) == 40);
    assert!(offset_of!(Params, huffman_hdr) == 48 && offset_of!(Params, data_fmt) == 52);
    assert!(offset_of!(Params, reserved) == 56 && size_of::<Params>() == 256);
};

const QZ_OK: c_int = 0;
const QZ_DUPLICATE: c_int = 1;
const QZ_NOSW_NO_INST_ATTACH: c_int = -103;
const QZ_DIR_BOTH: c_int = 2;
const QZ_DEFLATE_RAW: c_int = 3;
const LOG_NONE: c_int = 0;

/// One thread's session.
pub(super) struct Quick {
    library: &'static Library,
    software: bool,
    buffer: c_uint,
    /// What the session was set up with.
    level: i16,
    session: Box<QzSession>,
    output: Vec<u8>,
}

impl Quick {
    pub(super) fn open(
        library: &'static Library,
        software: bool,
        buffer: u32,
    ) -> Result<Self, Fault> {
        let session = Box::new(QzSession {
            hw_session_stat: 0,
            thd_sess_stat: 0,
            internal: ptr::null_mut(),
            total_in: 0,
            total_out: 0,
        });
        let mut quick = Self {
            library,
            software,
            buffer,
            level: 1,
            session,
            output: Vec::new(),
        };
        // SAFETY: the session is zeroed, as the library wants it, and stays where it is until it is closed.
        let status = unsafe { (library.init)(&mut *quick.session, software.into()) };
        // "Duplicate" is what a second thread hears. So does one after a first call that found no device; the set-up
        // tells. Without a device the fallback is all there is, which the library reports as a positive "using
        // software".
        if status != QZ_OK && status != QZ_DUPLICATE && !(software && status > 0) {
            return Err(Fault::Failed(status.into()));
        }
        quick.set_up(1)?;
        Ok(quick)
    }

    fn set_up(&mut self, level: i16) -> Result<(), Fault> {
        // SAFETY: every field is a number, for which zero is a value.
        let mut params: Params = unsafe { std::mem::zeroed() };
        // SAFETY: the library writes its defaults, of 56 bytes today, into 256 of ours.
        let status = unsafe { (self.library.defaults)(&mut params) };
        if status != QZ_OK {
            return Err(Fault::Failed(status.into()));
        }
        params.direction = QZ_DIR_BOTH;
        params.comp_lvl = level.unsigned_abs().into();
        params.sw_backup = self.software.into();
        params.hw_buff_sz = self.buffer;
        params.strm_buff_sz = self.buffer;
        params.data_fmt = QZ_DEFLATE_RAW;
        // SAFETY: session and parameters are live and initialised; a session in use is torn down first.
        let status = unsafe {
            if !self.session.internal.is_null() {
                (self.library.tear_down)(&mut *self.session);
            }
            (self.library.set_up)(&mut *self.session, &mut params)
        };
        if status != QZ_OK {
            return Err(Fault::Failed(status.into()));
        }
        self.level = level;
        Ok(())
    }

    fn room_for(&mut self, len: usize) {
        if self.output.len() < len {
            self.output.resize(len, 0);
        }
    }
}

fn outcome(status: c_int) -> Result<(), Fault> {
    match status {
        QZ_OK => Ok(()),
        QZ_NOSW_NO_INST_ATTACH => Err(Fault::Busy),
        status => Err(Fault::Failed(status.into())),
    }
}

impl Session for Quick {
    fn pack(&mut self, raw: &[u8], level: i16) -> Result<usize, Fault> {
        if level != self.level {
            self.set_up(level)?;
        }
        // What the library itself takes a block to need, and more: with a tight buffer it fails on chunks that grow.
        self.room_for(raw.len() / 8 * 9 + (raw.len() / self.buffer as usize + 1) * 1024 + 4096);
        let (mut read, mut written) = (raw.len() as c_uint, self.output.len() as c_uint);
        // SAFETY: the session is set up and ours alone; the pointers hold the lengths given with them, within which the
        // library keeps.
        let status = unsafe {
            let (raw, output) = (raw.as_ptr(), self.output.as_mut_ptr());
            (self.library.compress)(&mut *self.session, raw, &mut read, output, &mut written, 1)
        };
        outcome(status)?;
        if read as usize == raw.len() {
            Ok(written as usize)
        } else {
            Err(Fault::Failed(status.into()))
        }
    }

    fn unpack(&mut self, packed: &[u8], len: usize) -> Result<Unpacked, Fault> {
        self.room_for(len);
        let Ok(mut read) = c_uint::try_from(packed.len()) else {
            return Err(Fault::Failed(0));
        };
        // Exactly `len`: the device takes no output longer than its buffer, and a stream that makes more is refused.
        let mut written = len as c_uint;
        // SAFETY: as above; `written` is at most the output's length.
        let status = unsafe {
            let (packed, output) = (packed.as_ptr(), self.output.as_mut_ptr());
            (self.library.decompress)(&mut *self.session, packed, &mut read, output, &mut written)
        };
        outcome(status)?;
        Ok(Unpacked {
            written: written as usize,
            read: Some(read as usize),
        })
    }

    fn output(&self) -> &[u8] {
        &self.output
    }
}

impl Drop for Quick {
    fn drop(&mut self) {
        // SAFETY: the session was initialised and no call is under way.
        unsafe {
            (self.library.tear_down)(&mut *self.session);
            (self.library.close)(&mut *self.session);
        }
    }
}

// SAFETY: a session belongs to no thread; `&mut` lends it to one at a time.
unsafe impl Send for Quick {}
