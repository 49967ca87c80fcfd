//! What a module holds after parsing, and the addresses its loader gave it.

use std::sync::Arc;

use crate::inst::{Code, Lanes};
use crate::{Limits, ParseError};

/// A parsed module. Immutable, so that sessions and workers share it.
#[derive(Debug)]
pub struct Module {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) globals: Vec<Global>,
    pub(crate) textures: Vec<Texref>,
    pub(crate) code: Code,
    pub(crate) version: (u32, u32),
    pub(crate) target: String,
}

impl Module {
    /// Parses a module. An instruction that the interpreter lacks is no error here: it fails where
    /// it is executed, so that the module's other kernels run.
    pub fn parse(text: &str, limits: &Limits) -> Result<Module, ParseError> {
        crate::lower::module(text, limits)
    }

    /// The kernels (`.entry`), in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter()
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Variables in global and constant memory, in the order of the text. The loader allocates
    /// each, writes its bytes, resolves its relocations and hands the addresses to [`Linked::new`].
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Textures, samplers and surfaces that the module declares by name (`.texref`, ...).
    pub fn textures(&self) -> &[Texref] {
        &self.textures
    }

    /// ISA version from `.version`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// First name in `.target`, for example `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Instructions that the interpreter lacks, as (line, text), for a report.
    pub fn unsupported(&self) -> impl Iterator<Item = (u32, &str)> {
        self.code.unsupported()
    }
}

/// Memory space of a module variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`
    Const,
}

/// A module variable in global or constant memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// Name.
    pub name: String,
    /// Space; constant memory is read only for kernels.
    pub space: Space,
    /// Length in bytes. May exceed `init`; the rest is zeros.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// `.extern`: another module defines it. The loader looks it up by name.
    pub is_extern: bool,
    /// First bytes of the variable.
    pub init: Vec<u8>,
    /// Places in `init` that hold addresses.
    pub relocations: Vec<Relocation>,
}

/// A place in a variable's bytes that holds an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Where, in bytes from the variable's begin.
    pub offset: u64,
    /// Length of the place in bytes: 1, 2, 4 or 8.
    pub len: u32,
    /// The address is shifted right by this many bits before its low bytes are stored.
    pub shift: u32,
    /// Index into [`Module::globals`].
    pub global: usize,
    /// Bytes added to that variable's address.
    pub addend: i64,
}

/// What a name declared in texture space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TexrefKind {
    /// `.texref`
    Texture,
    /// `.samplerref`
    Sampler,
    /// `.surfref`
    Surface,
}

/// A texture, sampler or surface declared by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texref {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: TexrefKind,
}

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Where it begins in the parameter buffer, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel (`.entry`).
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Length of the parameter buffer in bytes.
    pub param_bytes: u32,
    /// Shared memory that the kernel declares itself, in bytes.
    pub static_shared_bytes: u32,
    /// Stack of one thread in bytes: local variables of the kernel and of what it calls.
    pub local_bytes: u32,
    /// Threads of a block at most (`.maxntid`, `.reqntid`), or 1024.
    pub max_threads: u32,
    /// `.reqntid`: a launch must use exactly this block.
    pub required_block: Option<[u32; 3]>,
    /// Registers that the kernel declares, as many as a compiler would report at most: 255.
    pub registers: u32,
    pub(crate) function: u32,
}

/// A module whose variables have addresses.
#[derive(Debug, Clone)]
pub struct Linked {
    pub(crate) module: Arc<Module>,
    /// Constants that instructions name, with addresses filled in.
    pub(crate) constants: Vec<Lanes>,
}

impl Linked {
    /// Gives the module's variables their addresses, and its texture names their handles; both in
    /// the order of [`Module::globals`] and [`Module::textures`]. Missing ones are 0.
    pub fn new(module: Arc<Module>, addresses: &[u64], textures: &[u64]) -> Linked {
        let constants = module.code.link(addresses, textures);
        Linked { module, constants }
    }

    /// The module.
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The bytes to write for a variable: `init` with its relocations resolved.
    pub fn init_bytes(global: &Global, addresses: &[u64]) -> Vec<u8> {
        let mut bytes = global.init.clone();
        for place in &global.relocations {
            let base = addresses.get(place.global).copied().unwrap_or(0);
            let value = base.wrapping_add_signed(place.addend) >> place.shift;
            let (at, len) = (place.offset as usize, place.len as usize);
            if let Some(to) = bytes.get_mut(at..at + len) {
                to.copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        bytes
    }
}
