//! librados' and librbd's C interface, as far as we call it: `rados/librados.h` of librados 2 and `rbd/librbd.h` of
//! librbd 1. Both sonames have kept these functions' types since 2012, and the locks since Ceph 12.
//!
//! Each handle is one type here that closes it when dropped, and holds the handle that it stands on.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io, ptr,
};

use narrows_core::Unavailable;

use crate::library::{Source, functions};

const RADOS: Source = Source {
    variable: "NARROWS_RADOS_LIB",
    sonames: &["librados.so.2"],
    hint: "package librados2 or ceph-common",
};
const RBD: Source = Source {
    variable: "NARROWS_RBD_LIB",
    sonames: &["librbd.so.1"],
    hint: "package librbd1 or ceph-common",
};

type Handle = *mut c_void;

functions! {
    /// Functions of librados: a cluster and a pool in it.
    Rados {
        create: unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int
            = "rados_create2",
        read_conf: unsafe extern "C" fn(Handle, *const c_char) -> c_int = "rados_conf_read_file",
        parse_env: unsafe extern "C" fn(Handle, *const c_char) -> c_int = "rados_conf_parse_env",
        set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int = "rados_conf_set",
        connect: unsafe extern "C" fn(Handle) -> c_int = "rados_connect",
        shutdown: unsafe extern "C" fn(Handle) = "rados_shutdown",
        open_pool: unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int
            = "rados_ioctx_create",
        close_pool: unsafe extern "C" fn(Handle) = "rados_ioctx_destroy",
    }
}

functions! {
    /// Functions of librbd: an image and what is asked of it.
    Rbd {
        create: unsafe extern "C" fn(Handle, *const c_char, u64, u64, *mut c_int) -> c_int
            = "rbd_create2",
        open: unsafe extern "C" fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int
            = "rbd_open",
        close: unsafe extern "C" fn(Handle) -> c_int = "rbd_close",
        stat: unsafe extern "C" fn(Handle, *mut Info, usize) -> c_int = "rbd_stat",
        features: unsafe extern "C" fn(Handle, *mut u64) -> c_int = "rbd_get_features",
        lock: unsafe extern "C" fn(Handle, c_int) -> c_int = "rbd_lock_acquire",
        resize: unsafe extern "C" fn(Handle, u64) -> c_int = "rbd_resize",
        write: unsafe extern "C" fn(Handle, u64, usize, *const u8, Handle) -> c_int
            = "rbd_aio_write",
        read: unsafe extern "C" fn(Handle, u64, usize, *mut u8, Handle) -> c_int = "rbd_aio_read",
        discard: unsafe extern "C" fn(Handle, u64, u64, Handle) -> c_int = "rbd_aio_discard",
        flush: unsafe extern "C" fn(Handle, Handle) -> c_int = "rbd_aio_flush",
        completion: unsafe extern "C" fn(*mut c_void, Option<extern "C" fn(Handle, *mut c_void)>,
            *mut Handle) -> c_int = "rbd_aio_create_completion",
        wait: unsafe extern "C" fn(Handle) -> c_int = "rbd_aio_wait_for_complete",
        result: unsafe extern "C" fn(Handle) -> isize = "rbd_aio_get_return_value",
        release: unsafe extern "C" fn(Handle) = "rbd_aio_release",
    }
}

/// `rbd_image_info_t`.
#[repr(C)]
pub(super) struct Info {
    pub(super) size: u64,
    pub(super) object_len: u64,
    objects: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Info>() == 160);

/// Both libraries, opened.
#[derive(Clone, Copy)]
pub(super) struct Libraries {
    rados: &'static Rados,
    rbd: &'static Rbd,
}

impl Libraries {
    pub(super) fn open() -> Result<Self, Unavailable> {
        let (rados, rbd) = (RADOS.open(None)?, RBD.open(None)?);
        // SAFETY: the types are those of Ceph's headers, which the sonames' major versions stand for.
        let rados = unsafe { Rados::load(rados) }.map_err(|error| RADOS.missing(&error))?;
        // SAFETY: as above.
        let rbd = unsafe { Rbd::load(rbd) }.map_err(|error| RBD.missing(&error))?;
        Ok(Self { rados, rbd })
    }
}

/// A client of a cluster.
pub(super) struct Cluster {
    libraries: Libraries,
    handle: Handle,
}

impl Cluster {
    /// A client that is not connected yet. `user` is without its type: `admin`.
    pub(super) fn new(libraries: Libraries, user: &CStr) -> io::Result<Self> {
        let name = CString::new([b"client.", user.to_bytes()].concat()).expect("no zero in a CStr");
        let mut handle = ptr::null_mut();
        // SAFETY: the strings outlive the call, which writes one handle.
        let code =
            unsafe { (libraries.rados.create)(&mut handle, c"ceph".as_ptr(), name.as_ptr(), 0) };
        checked(code)?;
        Ok(Self { libraries, handle })
    }

    /// Reads `file`, or what Ceph's own rules name: `CEPH_CONF`, `/etc/ceph/ceph.conf`; then `CEPH_ARGS`.
    pub(super) fn configure(&self, file: Option<&CStr>) -> io::Result<()> {
        let path = file.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the handle lives; null means the default, and strings outlive the calls.
        unsafe {
            checked((self.libraries.rados.read_conf)(self.handle, path))?;
            checked((self.libraries.rados.parse_env)(self.handle, ptr::null()))
        }
    }

    pub(super) fn set(&self, option: &CStr, value: &CStr) -> io::Result<()> {
        // SAFETY: the handle lives and the strings outlive the call.
        checked(unsafe { (self.libraries.rados.set)(self.handle, option.as_ptr(), value.as_ptr()) })
    }

    pub(super) fn connect(&self) -> io::Result<()> {
        // SAFETY: the handle lives.
        checked(unsafe { (self.libraries.rados.connect)(self.handle) })
    }

    pub(super) fn pool(self, name: &CStr) -> io::Result<Pool> {
        let mut handle = ptr::null_mut();
        // SAFETY: the cluster's handle lives, the string outlives the call, which writes one handle.
        let code =
            unsafe { (self.libraries.rados.open_pool)(self.handle, name.as_ptr(), &mut handle) };
        checked(code)?;
        Ok(Pool {
            cluster: self,
            handle,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nothing that stands on the handle is left: whatever does owns this value.
        unsafe { (self.libraries.rados.shutdown)(self.handle) }
    }
}

/// A pool of a connected cluster.
pub(super) struct Pool {
    cluster: Cluster,
    handle: Handle,
}

impl Pool {
    pub(super) fn create(&self, image: &CStr, len: u64, features: u64) -> io::Result<()> {
        // 0: the cluster's own length of objects, which is 4 MiB unless somebody set another.
        let mut order = 0;
        // SAFETY: the pool's handle lives, the string outlives the call, `order` is one int.
        checked(unsafe {
            (self.cluster.libraries.rbd.create)(
                self.handle,
                image.as_ptr(),
                len,
                features,
                &mut order,
            )
        })
    }

    pub(super) fn open(self, image: &CStr) -> io::Result<Opened> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pool's handle lives, the string outlives the call; null means no snapshot.
        let code = unsafe {
            (self.cluster.libraries.rbd.open)(self.handle, image.as_ptr(), &mut handle, ptr::null())
        };
        checked(code)?;
        Ok(Opened {
            rbd: self.cluster.libraries.rbd,
            _pool: self,
            handle,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: images on the pool own this value, so none is left; the cluster still lives.
        unsafe { (self.cluster.libraries.rados.close_pool)(self.handle) }
    }
}

/// An open image. librbd may be called from any thread, several at once.
pub(super) struct Opened {
    rbd: &'static Rbd,
    _pool: Pool,
    handle: Handle,
}

// SAFETY: librbd's handles are thread-safe and bound to no thread; the pointers are used for nothing but its calls.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Opened {
    pub(super) fn stat(&self) -> io::Result<Info> {
        // SAFETY: `Info` is integers and characters, for which zero bytes are a value.
        let mut info: Info = unsafe { std::mem::zeroed() };
        // SAFETY: the image lives; the library writes at most the length given.
        checked(unsafe { (self.rbd.stat)(self.handle, &mut info, size_of::<Info>()) })?;
        Ok(info)
    }

    pub(super) fn features(&self) -> io::Result<u64> {
        let mut features = 0;
        // SAFETY: the image lives; one number is written.
        checked(unsafe { (self.rbd.features)(self.handle, &mut features) })?;
        Ok(features)
    }

    /// Takes the image's exclusive lock and keeps it until the image is closed: others are told no.
    pub(super) fn lock(&self) -> io::Result<()> {
        const EXCLUSIVE: c_int = 0;
        // SAFETY: the image lives.
        checked(unsafe { (self.rbd.lock)(self.handle, EXCLUSIVE) })
    }

    pub(super) fn resize(&self, len: u64) -> io::Result<()> {
        // SAFETY: the image lives.
        checked(unsafe { (self.rbd.resize)(self.handle, len) })
    }

    /// Starts writing `data`, which the operation borrows until it is waited for or dropped.
    pub(super) fn write<'a>(&'a self, offset: u64, data: &'a [u8]) -> io::Result<Operation<'a>> {
        let operation = self.operation(0)?;
        // SAFETY: the image lives as long as `'a`; `data` is readable for its length and borrowed by the operation,
        // which waits for the end before it lets go.
        operation.start(|completion| unsafe {
            (self.rbd.write)(self.handle, offset, data.len(), data.as_ptr(), completion)
        })
    }

    /// Starts filling `out`, which the operation borrows until it is waited for or dropped.
    pub(super) fn read<'a>(&'a self, offset: u64, out: &'a mut [u8]) -> io::Result<Operation<'a>> {
        let operation = self.operation(out.len())?;
        // SAFETY: as for `write`; the exclusive borrow makes the library the only one who touches `out`.
        operation.start(|completion| unsafe {
            (self.rbd.read)(self.handle, offset, out.len(), out.as_mut_ptr(), completion)
        })
    }

    pub(super) fn discard(&self, offset: u64, len: u64) -> io::Result<Operation<'_>> {
        let operation = self.operation(0)?;
        // SAFETY: the image lives, no memory is involved.
        operation
            .start(|completion| unsafe { (self.rbd.discard)(self.handle, offset, len, completion) })
    }

    pub(super) fn flush(&self) -> io::Result<Operation<'_>> {
        let operation = self.operation(0)?;
        // SAFETY: the image lives, no memory is involved.
        operation.start(|completion| unsafe { (self.rbd.flush)(self.handle, completion) })
    }

    fn operation(&self, expected: usize) -> io::Result<Operation<'_>> {
        let mut handle = ptr::null_mut();
        // SAFETY: no callback, so no argument for one; one handle is written.
        checked(unsafe { (self.rbd.completion)(ptr::null_mut(), None, &mut handle) })?;
        Ok(Operation {
            image: self,
            handle,
            expected,
            under_way: false,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: operations borrow this value, so none is under way; the pool still lives.
        let _ = unsafe { (self.rbd.close)(self.handle) };
    }
}

/// Something that librbd was asked for. Dropping it waits for its end, since its buffer is borrowed until then; so it
/// must not be leaked, and `rbd`, the only user, does not.
pub(super) struct Operation<'a> {
    image: &'a Opened,
    handle: Handle,
    /// What it answers when all is well: bytes of a read, else 0.
    expected: usize,
    under_way: bool,
}

impl Operation<'_> {
    fn start(mut self, call: impl FnOnce(Handle) -> c_int) -> io::Result<Self> {
        checked(call(self.handle))?;
        self.under_way = true;
        Ok(self)
    }

    /// Blocks until it is done.
    pub(super) fn wait(mut self) -> io::Result<()> {
        self.finish();
        // SAFETY: the completion lives until it is dropped, and is complete.
        let result = unsafe { (self.image.rbd.result)(self.handle) };
        match usize::try_from(result) {
            Ok(len) if len == self.expected => Ok(()),
            Ok(len) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the image gave {len} of {} bytes", self.expected),
            )),
            Err(_) => Err(io::Error::from_raw_os_error(negated(result))),
        }
    }

    fn finish(&mut self) {
        if std::mem::take(&mut self.under_way) {
            // SAFETY: the completion lives and was handed to an operation that librbd took.
            let code = unsafe { (self.image.rbd.wait)(self.handle) };
            // Going on would free memory that the library may still use.
            assert!(code >= 0, "librbd refuses to wait for its own operation");
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.finish();
        // SAFETY: the operation is over, or never began, and the handle is used no more.
        unsafe { (self.image.rbd.release)(self.handle) }
    }
}

fn checked(code: c_int) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::from_raw_os_error(negated(code as isize)))
    } else {
        Ok(())
    }
}

/// The error number in a negative result.
fn negated(result: isize) -> i32 {
    result
        .checked_neg()
        .and_then(|number| i32::try_from(number).ok())
        .unwrap_or(EIO)
}

/// "Input/output error", for an answer that is no error number.
const EIO: i32 = 5;
