//! Modules of the emulation: kernels, variables with their memory, attributes.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
};

use narrows_core::Registry;
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{Attribute, KernelInfo, Param, Texture};
use narrows_ptx::{
    Kernel, Limits, Linked, Module,
    texture::{AddressMode, Format},
};

use super::{attributes::*, memory::Arena};
use crate::{
    Failure,
    image::{self, Content},
};

/// Kernels of one module.
const KERNELS_MAX: usize = 1 << 16;

/// A module that is loaded.
#[derive(Debug)]
pub(super) struct Loaded {
    kernels: Vec<Entry>,
    /// Address and length of each variable.
    pub(super) globals: HashMap<String, (u64, u64)>,
    /// The allocations that hold them.
    pub(super) blocks: Vec<u64>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    params: Vec<Param>,
    code: Option<Code>,
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
    dynamic_max: AtomicI32,
}

/// What runs.
#[derive(Debug, Clone)]
pub(super) struct Code {
    pub(super) linked: Arc<Linked>,
    pub(super) kernel: Kernel,
    version: i32,
}

impl Loaded {
    pub(super) fn load(
        image: &[u8],
        arena: &Arena,
        registry: &Registry,
        capability: (u32, u32),
    ) -> Result<Self, Failure> {
        let mut loaded = Self {
            kernels: Vec::new(),
            globals: HashMap::new(),
            blocks: Vec::new(),
        };
        let result = match image::read(image, registry)? {
            Content::Ptx(texts) => texts
                .iter()
                .try_for_each(|text| loaded.add(text, arena, capability)),
            Content::Cubin(kernels) => {
                loaded.kernels = kernels
                    .into_iter()
                    .map(|kernel| Entry {
                        name: kernel.name,
                        params: kernel.params,
                        code: None,
                        dynamic_max: AtomicI32::new(SHARED_PER_BLOCK),
                    })
                    .collect();
                Ok(())
            }
        };
        if let Err(failure) = result {
            loaded
                .blocks
                .iter()
                .for_each(|base| drop(arena.free(*base)));
            return Err(failure);
        }
        if loaded.kernels.len() > KERNELS_MAX {
            return Err(Failure::new(
                Status::INVALID_IMAGE,
                format!("{} kernels in one module", loaded.kernels.len()),
            ));
        }
        Ok(loaded)
    }

    /// Adds one text's kernels and variables. Variables that it only declares are those of the texts before it.
    fn add(&mut self, text: &str, arena: &Arena, capability: (u32, u32)) -> Result<(), Failure> {
        let module = Module::parse(text, &Limits::default())
            .map_err(|fault| Failure::new(Status::INVALID_PTX, fault.to_string()))?;
        let target = target_number(module.target());
        if target > capability.0 * 10 + capability.1 {
            let text = format!(
                "PTX for {}, and the emulated device is of compute capability {}.{}",
                module.target(),
                capability.0,
                capability.1
            );
            return Err(Failure::new(Status::NO_BINARY_FOR_GPU, text));
        }
        let addresses = self.place(&module, arena)?;
        for (global, address) in module.globals().iter().zip(&addresses) {
            let bytes = Linked::init_bytes(global, &addresses);
            if !bytes.is_empty() && !global.is_extern {
                arena
                    .find(*address, bytes.len() as u64)?
                    .write(*address, &bytes);
            }
        }
        let version = (target.max(10)) as i32;
        let module = Arc::new(module);
        let linked = Arc::new(Linked::new(module.clone(), &addresses, &[]));
        let kernels = module.kernels().cloned().map(|kernel| {
            let params = kernel.params.iter().map(|param| Param {
                offset: param.offset,
                size: param.size,
            });
            let limit = SHARED_PER_BLOCK - kernel.static_shared_bytes as i32;
            Entry {
                name: kernel.name.clone(),
                params: params.collect(),
                dynamic_max: AtomicI32::new(limit.max(0)),
                code: Some(Code {
                    linked: linked.clone(),
                    kernel,
                    version,
                }),
            }
        });
        self.kernels.extend(kernels);
        Ok(())
    }

    /// Gives a module's variables their memory, in one allocation.
    fn place(&mut self, module: &Module, arena: &Arena) -> Result<Vec<u64>, Failure> {
        let short = || Failure::new(Status::OUT_OF_MEMORY, "variables beyond all memory");
        let mut len = 0_u64;
        let mut offsets = Vec::new();
        for global in module.globals() {
            if global.is_extern {
                offsets.push(None);
                continue;
            }
            let at = len
                .checked_next_multiple_of(global.align.max(256))
                .ok_or_else(short)?;
            offsets.push(Some(at));
            len = at.checked_add(global.size.max(1)).ok_or_else(short)?;
        }
        let base = if len > 0 { arena.alloc(len)? } else { 0 };
        if len > 0 {
            self.blocks.push(base);
        }
        let mut addresses = Vec::new();
        for (global, offset) in module.globals().iter().zip(offsets) {
            let known = self.globals.get(&global.name).map(|(address, _)| *address);
            let address = match (offset, known) {
                (Some(offset), _) => base + offset,
                (None, Some(address)) => address,
                (None, None) => {
                    let text = format!("variable {} is declared and defined nowhere", global.name);
                    return Err(Failure::new(Status::INVALID_PTX, text));
                }
            };
            self.globals
                .insert(global.name.clone(), (address, global.size));
            addresses.push(address);
        }
        Ok(addresses)
    }

    pub(super) fn infos(&self) -> Vec<KernelInfo> {
        self.kernels
            .iter()
            .map(|entry| {
                let of = |read: fn(&Code) -> i32| entry.code.as_ref().map_or(0, read);
                let attributes = [
                    // Of machine code nobody here knows; its launch says why it does not run.
                    (
                        0,
                        entry
                            .code
                            .as_ref()
                            .map_or(1024, |code| code.kernel.max_threads as i32),
                    ),
                    (1, of(|code| code.kernel.static_shared_bytes as i32)),
                    (2, 0),
                    (3, of(|code| code.kernel.local_bytes as i32)),
                    (4, of(|code| code.kernel.registers.min(255) as i32)),
                    (5, of(|code| code.version)),
                    (6, of(|code| code.version)),
                    (7, 0),
                    (8, entry.dynamic_max.load(Relaxed)),
                    (9, -1),
                ];
                KernelInfo {
                    name: entry.name.clone(),
                    params: entry.params.clone(),
                    attributes: attributes.map(|(id, value)| Attribute { id, value }).into(),
                }
            })
            .collect()
    }

    fn entry(&self, index: u32) -> Result<&Entry, Failure> {
        self.kernels
            .get(index as usize)
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    /// What to run, of a kernel that can be.
    pub(super) fn code(&self, index: u32) -> Result<&Code, Failure> {
        let entry = self.entry(index)?;
        entry.code.as_ref().ok_or_else(|| {
            let text = format!(
                "kernel {} is machine code for a GPU; the host back end runs PTX only: build it with PTX \
                 (nvcc -gencode arch=compute_80,code=compute_80), or serve a GPU",
                entry.name
            );
            Failure::new(Status::NOT_SUPPORTED, text)
        })
    }

    pub(super) fn dynamic_max(&self, index: u32) -> i32 {
        self.entry(index)
            .map_or(0, |entry| entry.dynamic_max.load(Relaxed))
    }

    pub(super) fn set_attribute(&self, index: u32, id: u32, value: i32) -> Result<(), Failure> {
        let entry = self.entry(index)?;
        match id {
            8 if (0..=SHARED_OPTIN).contains(&value) => entry.dynamic_max.store(value, Relaxed),
            8 => {
                let text = format!("{value} bytes of shared memory; there are {SHARED_OPTIN}");
                return Err(Failure::new(Status::INVALID_VALUE, text));
            }
            // Hints: how to split a cache that is not there.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn occupancy(&self, index: u32, block: u32, shared: u64) -> Result<u32, Failure> {
        let code = self.code(index)?;
        if block == 0 || block > code.kernel.max_threads {
            return Ok(0);
        }
        let warps = block.div_ceil(32);
        let by_threads = (THREADS_PER_SM as u32 / 32) / warps;
        let bytes = shared + u64::from(code.kernel.static_shared_bytes);
        let by_shared = if bytes == 0 {
            32
        } else {
            SHARED_PER_SM as u64 / (bytes + 1024)
        };
        Ok(by_threads.min(by_shared.min(32) as u32).min(32))
    }
}

/// The number in `sm_86`, `compute_90a`.
fn target_number(target: &str) -> u32 {
    let digits = |c: char| !c.is_ascii_digit();
    target
        .split(digits)
        .find(|part| !part.is_empty())
        .and_then(|part| part.parse().ok())
        .unwrap_or(0)
}

/// A texture as the interpreter knows it.
pub(super) fn texture(asked: &Texture) -> Result<narrows_ptx::texture::Texture, Failure> {
    let refused = |text: String| Failure::new(Status::INVALID_VALUE, text);
    let format = match asked.format {
        0x01 => Format::U8,
        0x02 => Format::U16,
        0x03 => Format::U32,
        0x08 => Format::S8,
        0x09 => Format::S16,
        0x0a => Format::S32,
        0x10 => Format::F16,
        0x20 => Format::F32,
        format => return Err(refused(format!("a texture of format {format}"))),
    };
    let mode = |mode: u32| match mode {
        0 => AddressMode::Wrap,
        2 => AddressMode::Mirror,
        3 => AddressMode::Border,
        _ => AddressMode::Clamp,
    };
    let extent =
        |len: u64| u32::try_from(len).map_err(|_| refused(format!("a texture {len} wide")));
    if ![1, 2, 4].contains(&asked.channels) {
        return Err(refused(format!("a texture of {} channels", asked.channels)));
    }
    let height = extent(asked.height.max(1))?;
    Ok(narrows_ptx::texture::Texture {
        address: asked.base,
        width: extent(asked.width)?,
        height,
        depth: 1,
        pitch: asked.pitch,
        slice: asked.pitch.saturating_mul(u64::from(height)),
        format,
        channels: asked.channels,
        address_mode: asked.address_mode.map(mode),
        linear: asked.filter == 1,
        normalized: asked.flags & 2 != 0,
        as_integer: asked.flags & 1 != 0,
    })
}
