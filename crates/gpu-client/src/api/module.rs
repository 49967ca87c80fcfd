//! Modules, libraries and kernels. A library is a module here, and a kernel a function: one object, one handle.

use std::{fs, sync::Arc};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::{INLINE_IMAGE_LEN_MAX, Image, Reply, Request};
use sha2::{Digest, Sha256};

use crate::{
    api::link,
    call::{api, say, say_once},
    ffi::{Answer, Handle, In, Kind, Out, Text, put_bytes},
    state::{Client, Function, Module, client},
};

const FATBIN_WRAPPER: u32 = 0x466_243b1;
const FATBIN: u32 = 0xba55_ed50;
const ELF: u32 = 0x464c_457f;
/// Longest image that is read from a program's memory, should its own lengths be nonsense.
const IMAGE_LEN_MAX: usize = 1 << 30;

/// JIT options that give a buffer for messages, and its length.
const JIT_ERROR_LOG_BUFFER: u32 = 5;
const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;

/// The bytes of an image that comes without its length: the formats tell it.
fn image_bytes(address: usize) -> Answer<Vec<u8>> {
    let magic = In::<u32>::at(address).get()?;
    let len = match magic {
        FATBIN_WRAPPER => return image_bytes(In::<usize>::at(address + 8).get()?),
        FATBIN => {
            let header = usize::from(In::<u16>::at(address + 6).get()?);
            let len = In::<u64>::at(address + 8).get()?;
            header.checked_add(len as usize)
        }
        ELF => elf_len(address)?,
        _ if link::is_linked(address)? => In::<u64>::at(address + 8)
            .get()?
            .checked_add(16)
            .map(|len| len as usize),
        _ => Some(Text::at(address).get()?.len()),
    };
    let len = len
        .filter(|len| *len <= IMAGE_LEN_MAX)
        .ok_or(Status::INVALID_IMAGE)?;
    In::<u8>::at(address).bytes(len)
}

/// Behind the last of its sections and of its header tables.
fn elf_len(address: usize) -> Answer<Option<usize>> {
    let word = |at: usize| In::<u64>::at(address + at).get().map(|word| word as usize);
    let half = |at: usize| In::<u16>::at(address + at).get().map(usize::from);
    let (programs, sections) = (word(32)?, word(40)?);
    let mut end = (programs + half(54)? * half(56)?).max(sections + half(58)? * half(60)?);
    if end > IMAGE_LEN_MAX {
        return Err(Status::INVALID_IMAGE);
    }
    const NO_BITS: u32 = 8;
    for at in 0..half(60)? {
        let header = address + sections + at * half(58)?;
        if In::<u32>::at(header + 4).get()? == NO_BITS {
            continue;
        }
        let (offset, len) = (
            In::<u64>::at(header + 24).get()?,
            In::<u64>::at(header + 32).get()?,
        );
        end = end.max(offset.saturating_add(len) as usize);
    }
    Ok(Some(end))
}

impl Text {
    fn at(address: usize) -> Self {
        In::<u8>::at(address).text()
    }
}

/// Options of the just-in-time compiler: where it may leave messages.
struct Options {
    ids: Vec<u32>,
    values: Vec<usize>,
}

impl Options {
    fn read(ids: In<u32>, values: In<usize>, count: u32) -> Answer<Self> {
        if count == 0 {
            return Ok(Self {
                ids: vec![],
                values: vec![],
            });
        }
        Ok(Self {
            ids: ids.list(count as usize)?,
            values: values.list(count as usize)?,
        })
    }

    fn value(&self, id: u32) -> Option<usize> {
        let at = self.ids.iter().position(|known| *known == id)?;
        self.values.get(at).copied()
    }

    fn tell(&self, text: &str) {
        let (Some(buffer), Some(len)) = (
            self.value(JIT_ERROR_LOG_BUFFER),
            self.value(JIT_ERROR_LOG_BUFFER_SIZE_BYTES),
        ) else {
            return;
        };
        let Some(room) = len.checked_sub(1) else {
            return;
        };
        let mut bytes = text.as_bytes()[..text.len().min(room)].to_vec();
        bytes.push(0);
        let _ = put_bytes(Out::at(buffer), &bytes);
    }
}

fn load(bytes: Vec<u8>, options: &Options) -> Answer<Handle> {
    let client = client()?;
    client.current()?;
    let id = client.remote.id();
    let hash = Sha256::digest(&bytes).into();
    let len = bytes.len() as u64;
    let reply = if bytes.len() <= INLINE_IMAGE_LEN_MAX {
        let image = Image { hash, len, bytes };
        client
            .remote
            .call(|call| Request::ModuleLoad { call, id, image })?
    } else {
        load_long(client, id, &bytes, hash)?
    };
    match reply {
        Reply::Loaded { kernels, .. } => {
            client.add_module(id, kernels)?;
            Ok(Kind::Module.handle(id))
        }
        Reply::Failed { status, text, .. } => {
            say_once(&format!("a module does not load: {text}"));
            options.tell(&text);
            Err(Status(status))
        }
        _ => Err(Status::UNKNOWN),
    }
}

/// Asks first whether the image is there already.
fn load_long(client: &Client, id: u64, bytes: &[u8], hash: [u8; 32]) -> Answer<Reply> {
    let len = bytes.len() as u64;
    let image = Image {
        hash,
        len,
        bytes: vec![],
    };
    let asked = image.clone();
    let reply = client.remote.call(|call| Request::ModuleLoad {
        call,
        id,
        image: asked,
    })?;
    if !matches!(reply, Reply::NeedImage { .. }) {
        return Ok(reply);
    }
    let stream = client.stream(Handle::NULL)?;
    let lane = stream.lane(&client.remote)?;
    client.remote.call_with(
        |call| Request::ModuleImage {
            call,
            id,
            image,
            lane: lane.number,
        },
        |announce| lane.write_bytes(bytes, announce),
    )
}

fn read_file(path: Text) -> Answer<Vec<u8>> {
    let path = path.get()?;
    fs::read(&path).map_err(|fault| {
        say(&format!("cannot read {path}: {fault}"));
        Status::FILE_NOT_FOUND
    })
}

fn function_named(module: Handle, name: Text) -> Answer<Handle> {
    let client = client()?;
    let (module, name) = (client.module(module)?, name.get()?);
    let index = module.kernels.iter().position(|kernel| kernel.name == name);
    client.function_at(&module, index.ok_or(Status::NOT_FOUND)? as u32)
}

fn global(module: Handle, name: Text) -> Answer<(u64, u64)> {
    let client = client()?;
    let (module, name) = (client.module(module)?, name.get()?);
    if let Some(found) = module.globals.lock().get(&name) {
        return Ok(*found);
    }
    let asked = name.clone();
    let found = client.remote.ask_quietly(|call| Request::GetGlobal {
        call,
        module: module.id,
        name: asked,
    })?;
    let allocation = crate::state::Allocation {
        len: found.1,
        context: module.context,
        pool: 0,
        id: client.remote.id(),
        variable: true,
    };
    client.memory.write().insert(found.0, allocation);
    module.globals.lock().insert(name, found);
    Ok(found)
}

fn attribute(function: &Function, id: u32) -> Answer<i32> {
    if let Some(value) = function.set.lock().get(&id) {
        return Ok(*value);
    }
    let attributes = &function.info().attributes;
    let found = attributes.iter().find(|attribute| attribute.id == id);
    // Attributes of clusters, which a device without them has at 0.
    Ok(found.map_or(0, |attribute| attribute.value))
}

fn set_attribute(function: &Function, attribute: u32, value: i32) -> Answer {
    function.set.lock().insert(attribute, value);
    client()?.remote.send(&Request::KernelSetAttribute {
        kernel: function.kernel(),
        attribute,
        value,
    })
}

fn param_info(function: &Function, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    let param = function
        .info()
        .params
        .get(index)
        .ok_or(Status::INVALID_VALUE)?;
    size.offer(param.size as usize);
    offset.set(param.offset as usize)
}

fn functions(module: &Arc<Module>, to: Out<Handle>, count: u32) -> Answer {
    let count = (count as usize).min(module.kernels.len());
    (0..count).try_for_each(|at| to.set_at(at, client()?.function_at(module, at as u32)?))
}

api! {
    fn cuModuleLoad(module: Out<Handle>, path: Text) {
        module.set(load(read_file(path)?, &Options::read(In::at(0), In::at(0), 0)?)?)
    }

    fn cuModuleLoadData, cuModuleLoadFatBinary(module: Out<Handle>, image: In<u8>) {
        module.set(load(image_bytes(image.address())?, &Options::read(In::at(0), In::at(0), 0)?)?)
    }

    fn cuModuleLoadDataEx(
        module: Out<Handle>, image: In<u8>, count: u32, options: In<u32>, values: In<usize>,
    ) {
        module.set(load(image_bytes(image.address())?, &Options::read(options, values, count)?)?)
    }

    fn cuModuleUnload, cuLibraryUnload(module: Handle) {
        client()?.unload(Kind::Module.id(module)?)
    }

    fn cuModuleGetFunction, cuLibraryGetKernel(function: Out<Handle>, module: Handle, name: Text) {
        function.set(function_named(module, name)?)
    }

    fn cuModuleGetFunctionCount, cuLibraryGetKernelCount(count: Out<u32>, module: Handle) {
        count.set(client()?.module(module)?.kernels.len() as u32)
    }

    fn cuModuleEnumerateFunctions, cuLibraryEnumerateKernels(
        to: Out<Handle>, count: u32, module: Handle,
    ) {
        functions(&client()?.module(module)?, to, count)
    }

    fn cuModuleGetGlobal_v2, cuLibraryGetGlobal(
        address: Out<u64>, len: Out<usize>, module: Handle, name: Text,
    ) {
        let (base, found) = global(module, name)?;
        len.offer(found as usize);
        address.offer(base);
        Ok(())
    }

    fn cuLibraryGetManaged(address: Out<u64>, len: Out<usize>, library: Handle, name: Text) {
        client()?.module(library)?;
        Err(Status::NOT_FOUND)
    }

    fn cuModuleGetLoadingMode(mode: Out<u32>) {
        // CU_MODULE_EAGER_LOADING
        client()?;
        mode.set(1)
    }

    fn cuModuleGetTexRef, cuModuleGetSurfRef(reference: Out<Handle>, module: Handle, name: Text) {
        client()?.module(module)?;
        say_once("texture references were removed in CUDA 12 and are not implemented; texture objects are");
        Err(Status::NOT_SUPPORTED)
    }

    fn cuLibraryLoadData(
        library: Out<Handle>, code: In<u8>, options: In<u32>, values: In<usize>, count: u32,
        more: In<u32>, more_values: In<usize>, more_count: u32,
    ) {
        library.set(load(image_bytes(code.address())?, &Options::read(options, values, count)?)?)
    }

    fn cuLibraryLoadFromFile(
        library: Out<Handle>, path: Text, options: In<u32>, values: In<usize>, count: u32,
        more: In<u32>, more_values: In<usize>, more_count: u32,
    ) {
        library.set(load(read_file(path)?, &Options::read(options, values, count)?)?)
    }

    fn cuLibraryGetModule(module: Out<Handle>, library: Handle) {
        client()?.module(library)?;
        module.set(library)
    }

    fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) {
        client()?.function(kernel)?;
        function.set(kernel)
    }

    fn cuKernelGetLibrary, cuFuncGetModule(module: Out<Handle>, function: Handle) {
        let found = client()?.function(function)?;
        module.set(Kind::Module.handle(found.module.id))
    }

    fn cuKernelGetName, cuFuncGetName(name: Out<usize>, function: Handle) {
        name.set(client()?.function(function)?.name.as_ptr() as usize)
    }

    fn cuKernelGetParamInfo, cuFuncGetParamInfo(
        function: Handle, index: usize, offset: Out<usize>, size: Out<usize>,
    ) {
        param_info(&*client()?.function(function)?, index, offset, size)
    }

    fn cuKernelGetParamCount, cuFuncGetParamCount(function: Handle, count: Out<usize>) {
        count.set(client()?.function(function)?.info().params.len())
    }

    fn cuFuncGetAttribute(value: Out<i32>, id: u32, function: Handle) {
        value.set(attribute(&*client()?.function(function)?, id)?)
    }

    fn cuKernelGetAttribute(value: Out<i32>, id: u32, kernel: Handle, device: i32) {
        client()?.device(device)?;
        value.set(attribute(&*client()?.function(kernel)?, id)?)
    }

    fn cuFuncSetAttribute(function: Handle, id: u32, value: i32) {
        set_attribute(&*client()?.function(function)?, id, value)
    }

    fn cuKernelSetAttribute(id: u32, value: i32, kernel: Handle, device: i32) {
        client()?.device(device)?;
        set_attribute(&*client()?.function(kernel)?, id, value)
    }

    fn cuFuncSetCacheConfig, cuFuncSetSharedMemConfig(function: Handle, config: u32) {
        client()?.function(function).map(drop)
    }

    fn cuKernelSetCacheConfig(kernel: Handle, config: u32, device: i32) {
        client()?.function(kernel).map(drop)
    }

    fn cuFuncIsLoaded(state: Out<u32>, function: Handle) {
        client()?.function(function)?;
        state.set(1)
    }

    fn cuFuncLoad(function: Handle) {
        client()?.function(function).map(drop)
    }
}
