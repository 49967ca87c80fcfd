//! Modules of the driver: images as they are, links, launches.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use narrows_gpu_abi::{
    Status,
    layout::{CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC},
};
use narrows_gpu_wire::{Attribute, KernelInfo, Launch, Param, Texture};
use parking_lot::Mutex;

use super::{Raw, Session};
use crate::{Failure, image::LINKED};

/// Kernels and parameters that are told of.
const KERNELS_MAX: u32 = 1 << 16;
const PARAMS_MAX: usize = 4096;
/// Attributes of kernels that programs ask for.
const ATTRIBUTES: std::ops::Range<u32> = 0..10;
/// Room for what the just-in-time compiler says.
const LOG_LEN: usize = 8192;
const JIT_ERROR_LOG_BUFFER: u32 = 5;
const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
/// `CU_JIT_INPUT_…`
const INPUT_CUBIN: u32 = 0;
const INPUT_PTX: u32 = 1;
const INPUT_FATBIN: u32 = 2;

/// A module that is loaded.
pub(super) struct Loaded {
    module: Raw,
    functions: Vec<Raw>,
    globals: Mutex<Vec<u64>>,
}

impl Loaded {
    pub(super) fn load(
        session: &Session,
        image: &[u8],
    ) -> Result<(Self, Vec<KernelInfo>), Failure> {
        let module = if image.starts_with(LINKED) {
            link(session, image)?
        } else {
            // PTX is text with its end.
            let mut whole = image.to_vec();
            whole.push(0);
            load_image(session, &whole)?
        };
        let mut loaded = Self {
            module,
            functions: Vec::new(),
            globals: Mutex::default(),
        };
        let mut count = 0;
        // SAFETY: the module has just been loaded; writes one number.
        session.call("cuModuleGetFunctionCount", |calls| unsafe {
            (calls.module_count)(&raw mut count, module.0)
        })?;
        let count = count.min(KERNELS_MAX);
        loaded.functions = vec![Raw::NULL; count as usize];
        let to = loaded.functions.as_mut_ptr().cast();
        // SAFETY: `Raw` is a handle, and there is room for `count` of them.
        session.call("cuModuleEnumerateFunctions", |calls| unsafe {
            (calls.module_functions)(to, count, module.0)
        })?;
        let kernels = loaded
            .functions
            .iter()
            .map(|function| describe(session, *function))
            .collect::<Result<_, _>>()?;
        Ok((loaded, kernels))
    }

    pub(super) fn function(&self, index: u32) -> Result<Raw, Failure> {
        self.functions
            .get(index as usize)
            .copied()
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    pub(super) fn global(&self, session: &Session, name: &str) -> Result<(u64, u64), Failure> {
        let name = CString::new(name).map_err(|_| Failure::from(Status::INVALID_VALUE))?;
        let (mut address, mut len) = (0, 0);
        // SAFETY: the module is this session's; the name ends with 0; writes two numbers.
        session.call("cuModuleGetGlobal", |calls| unsafe {
            (calls.module_global)(&raw mut address, &raw mut len, self.module.0, name.as_ptr())
        })?;
        self.globals.lock().push(address);
        Ok((address, len as u64))
    }

    pub(super) fn globals(&self) -> Vec<u64> {
        self.globals.lock().clone()
    }

    pub(super) fn launch(
        &self,
        session: &Session,
        launch: &Launch,
        stream: Raw,
    ) -> Result<(), Failure> {
        let function = self.function(launch.kernel.index)?;
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let mut params = launch.params.clone();
        let mut len = params.len();
        // Pairs of a kind and a pointer: the buffer (1), its length (2), the end (0).
        let mut extra: [*mut c_void; 5] = [
            ptr::without_provenance_mut(1),
            params.as_mut_ptr().cast(),
            ptr::without_provenance_mut(2),
            (&raw mut len).cast(),
            ptr::null_mut(),
        ];
        if launch.cooperative {
            let text = "a cooperative launch: not implemented with this back end";
            return Err(Failure::new(Status::NOT_SUPPORTED, text));
        }
        // SAFETY: function and stream are this session's; the driver copies the parameters before it returns.
        session.call("cuLaunchKernel", |calls| unsafe {
            (calls.launch)(
                function.0,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared,
                stream.0,
                ptr::null_mut(),
                extra.as_mut_ptr(),
            )
        })
    }

    pub(super) fn unload(self, session: &Session) -> Result<(), Failure> {
        // SAFETY: the module is this session's, and this was the last of it.
        session.call("cuModuleUnload", |calls| unsafe {
            (calls.module_unload)(self.module.0)
        })
    }
}

fn load_image(session: &Session, image: &[u8]) -> Result<Raw, Failure> {
    let mut log = vec![0_u8; LOG_LEN];
    let options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let values: [*mut c_void; 2] = [
        log.as_mut_ptr().cast(),
        ptr::without_provenance_mut(LOG_LEN - 1),
    ];
    let mut module = Raw::NULL;
    // SAFETY: the image is whole and ends with 0; the log has as many bytes as it is said to have.
    let loaded = session.call("cuModuleLoadData", |calls| unsafe {
        (calls.module_load)(
            &raw mut module.0,
            image.as_ptr().cast(),
            2,
            options.as_ptr(),
            values.as_ptr(),
        )
    });
    loaded.map(|()| module).map_err(|failure| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
        let said = String::from_utf8_lossy(&log[..end]);
        Failure::new(failure.status, format!("{} {}", failure.text, said.trim()))
    })
}

/// Links the inputs of an image of ours, and loads what comes of it.
fn link(session: &Session, image: &[u8]) -> Result<Raw, Failure> {
    let mut link = Raw::NULL;
    // SAFETY: writes one handle.
    session.call("cuLinkCreate", |calls| unsafe {
        (calls.link_create)(0, ptr::null(), ptr::null(), &raw mut link.0)
    })?;
    let module = link_inputs(session, link, image);
    // SAFETY: the link is ours; what came of it was copied by loading it.
    let _ = session.call("cuLinkDestroy", |calls| unsafe {
        (calls.link_destroy)(link.0)
    });
    module
}

fn link_inputs(session: &Session, link: Raw, image: &[u8]) -> Result<Raw, Failure> {
    let cut = || Failure::new(Status::INVALID_IMAGE, "a link whose inputs are cut short");
    let mut rest = image.get(16..).ok_or_else(cut)?;
    while !rest.is_empty() {
        let (len, more) = rest.split_first_chunk().ok_or_else(cut)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| cut())?;
        let (input, more) = more.split_at_checked(len).ok_or_else(cut)?;
        rest = more;
        let kind = match input.first_chunk() {
            Some(b"\x7fELF") => INPUT_CUBIN,
            Some([0x50, 0xed, 0x55, 0xba]) => INPUT_FATBIN,
            _ => INPUT_PTX,
        };
        let mut whole = input.to_vec();
        whole.push(0);
        let len = if kind == INPUT_PTX {
            whole.len()
        } else {
            input.len()
        };
        // SAFETY: the input has as many bytes as it is said to have.
        session.call("cuLinkAddData", |calls| unsafe {
            (calls.link_add)(
                link.0,
                kind,
                whole.as_ptr().cast(),
                len,
                c"input".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        })?;
    }
    let (mut cubin, mut len, mut module) = (ptr::null_mut(), 0, Raw::NULL);
    // SAFETY: writes where the result is, which stays until the link is destroyed.
    session.call("cuLinkComplete", |calls| unsafe {
        (calls.link_complete)(link.0, &raw mut cubin, &raw mut len)
    })?;
    // SAFETY: as above.
    session.call("cuModuleLoadData", |calls| unsafe {
        (calls.module_load)(&raw mut module.0, cubin, 0, ptr::null(), ptr::null())
    })?;
    Ok(module)
}

fn describe(session: &Session, function: Raw) -> Result<KernelInfo, Failure> {
    let mut name = ptr::null();
    // SAFETY: the function is of a module that has just been loaded; writes one pointer.
    session.call("cuFuncGetName", |calls| unsafe {
        (calls.function_name)(&raw mut name, function.0)
    })?;
    // SAFETY: the driver's string lives as long as the module.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    let mut params = Vec::new();
    for at in 0..PARAMS_MAX {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: writes two numbers; it fails behind the last parameter.
        let told = session.call("cuFuncGetParamInfo", |calls| unsafe {
            (calls.function_param)(function.0, at, &raw mut offset, &raw mut size)
        });
        if told.is_err() {
            break;
        }
        params.push(Param {
            offset: offset as u32,
            size: size as u32,
        });
    }
    let attribute = |id| {
        let mut value = 0;
        // SAFETY: writes one number.
        let told = session.call("cuFuncGetAttribute", |calls| unsafe {
            (calls.function_attribute)(&raw mut value, id, function.0)
        });
        told.ok().map(|()| Attribute { id, value })
    };
    Ok(KernelInfo {
        name,
        params,
        attributes: ATTRIBUTES.filter_map(attribute).collect(),
    })
}

/// A texture of the driver's.
pub(super) fn texture(session: &Session, asked: &Texture) -> Result<u64, Failure> {
    let format = u64::from(asked.format) | u64::from(asked.channels) << 32;
    let mut res = [0; 16];
    let res_type = if asked.height == 0 {
        res[..3].copy_from_slice(&[asked.base, format, asked.pitch]);
        2
    } else {
        res[..5].copy_from_slice(&[asked.base, format, asked.width, asked.height, asked.pitch]);
        3
    };
    let span =
        narrows_gpu_wire::Span::linear(asked.base, asked.pitch.saturating_mul(asked.height.max(1)));
    session.check_span(&span)?;
    let resource = CUDA_RESOURCE_DESC {
        resType: res_type,
        pad: 0,
        res,
        flags: 0,
        tail: 0,
    };
    let how = CUDA_TEXTURE_DESC {
        addressMode: asked.address_mode,
        filterMode: asked.filter,
        flags: asked.flags,
        maxAnisotropy: 0,
        mipmapFilterMode: 0,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: [0.0; 4],
        reserved: [0; 12],
    };
    let mut handle = 0;
    // SAFETY: both structures are whole, and what they name is this session's memory (checked above).
    session.call("cuTexObjectCreate", |calls| unsafe {
        (calls.texture_create)(
            &raw mut handle,
            (&raw const resource).cast(),
            (&raw const how).cast(),
            ptr::null(),
        )
    })?;
    Ok(handle)
}
