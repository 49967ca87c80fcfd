//! Launches, occupancy.

use std::sync::Arc;

use narrows_gpu_abi::{Status, layout::CUlaunchConfig};
use narrows_gpu_wire::{PARAMS_LEN_MAX, Request};

use crate::{
    call::api,
    ffi::{Answer, Handle, In, Out},
    state::{Client, Function, client},
    task::Task,
};

/// What `extra` says: pairs of these and a pointer, up to the end.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, `…_CLUSTER_DIMENSION`
const COOPERATIVE: u32 = 2;
const CLUSTER: u32 = 4;

/// A kernel's parameter buffer, from either way in which programs pass parameters.
pub(crate) fn params(function: &Function, each: In<usize>, extra: In<usize>) -> Answer<Vec<u8>> {
    if !extra.is_null() {
        return extra_params(extra);
    }
    let list = &function.info().params;
    let len = list
        .iter()
        .map(|param| param.offset + param.size)
        .max()
        .unwrap_or(0) as usize;
    if len > PARAMS_LEN_MAX {
        return Err(Status::INVALID_IMAGE);
    }
    let mut buffer = vec![0; len];
    for (at, param) in list.iter().enumerate() {
        let bytes = In::<u8>::at(each.get_at(at)?).bytes(param.size as usize)?;
        buffer[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    Ok(buffer)
}

fn extra_params(extra: In<usize>) -> Answer<Vec<u8>> {
    let (mut pointer, mut len) = (0, None);
    let mut at = 0;
    loop {
        match extra.get_at(at)? {
            EXTRA_END => break,
            EXTRA_POINTER => pointer = extra.get_at(at + 1)?,
            EXTRA_SIZE => len = Some(In::<usize>::at(extra.get_at(at + 1)?).get()?),
            _ => return Err(Status::INVALID_VALUE),
        }
        at += 2;
    }
    let len = len
        .filter(|len| *len <= PARAMS_LEN_MAX)
        .ok_or(Status::INVALID_VALUE)?;
    In::<u8>::at(pointer).bytes(len)
}

/// How a launch is laid out.
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
}

/// A launch that this device can do; what it cannot is an error here, without a round trip.
pub(crate) fn task(
    client: &Client,
    function: Arc<Function>,
    shape: Shape,
    params: Vec<u8>,
) -> Answer<Task> {
    let limit = |id| client.attribute(id).unwrap_or(i32::MAX) as u64;
    let threads: u64 = shape.block.iter().map(|len| u64::from(*len)).product();
    let fits = threads > 0
        && threads <= limit(1)
        && (0..3).all(|at| u64::from(shape.block[at]) <= limit(2 + at as u32))
        && (0..3).all(|at| (1..=limit(5 + at as u32)).contains(&u64::from(shape.grid[at])));
    if !fits {
        return Err(Status::INVALID_VALUE);
    }
    let set = |id| function.set.lock().get(&id).copied();
    let info = |id: u32| {
        let found = function
            .info()
            .attributes
            .iter()
            .find(|attribute| attribute.id == id);
        found.map(|attribute| attribute.value)
    };
    let most = info(0).filter(|most| *most > 0).unwrap_or(i32::MAX);
    if threads > most as u64 {
        return Err(Status::LAUNCH_OUT_OF_RESOURCES);
    }
    let dynamic_max = set(8).or_else(|| info(8)).unwrap_or(i32::MAX);
    if i64::from(shape.shared) > i64::from(dynamic_max) {
        return Err(Status::INVALID_VALUE);
    }
    if shape.cooperative && client.attribute(95) == Some(0) {
        return Err(Status::NOT_SUPPORTED);
    }
    Ok(Task::Launch {
        function,
        grid: shape.grid,
        block: shape.block,
        shared: shape.shared,
        cooperative: shape.cooperative,
        params,
    })
}

fn launch(
    function: Handle,
    shape: Shape,
    stream: Handle,
    each: In<usize>,
    extra: In<usize>,
) -> Answer {
    let client = client()?;
    client.current()?;
    let function = client.function(function)?;
    let params = params(&function, each, extra)?;
    let stream = client.stream(stream)?;
    let task = task(client, function, shape, params)?;
    client.submit(&stream, task)
}

fn launch_grid(function: Handle, grid: [i32; 2], stream: Handle) -> Answer {
    let client = client()?;
    let function = client.function(function)?;
    let old = function.old_style.lock().clone();
    let shape = Shape {
        grid: [grid[0] as u32, grid[1] as u32, 1],
        block: old.block,
        shared: old.shared,
        cooperative: false,
    };
    let stream = client.stream(stream)?;
    let task = task(client, function, shape, old.params)?;
    client.submit(&stream, task)
}

fn set_param(function: Handle, offset: i32, bytes: &[u8]) -> Answer {
    let function = client()?.function(function)?;
    let offset = usize::try_from(offset).map_err(|_| Status::INVALID_VALUE)?;
    let end = offset
        .checked_add(bytes.len())
        .filter(|end| *end <= PARAMS_LEN_MAX)
        .ok_or(Status::INVALID_VALUE)?;
    let params = &mut function.old_style.lock().params;
    if params.len() < end {
        params.resize(end, 0);
    }
    params[offset..end].copy_from_slice(bytes);
    Ok(())
}

fn occupancy(function: Handle, block: i32, shared: usize) -> Answer<u32> {
    let client = client()?;
    let kernel = client.function(function)?.kernel();
    let block = u32::try_from(block)
        .ok()
        .filter(|block| *block > 0)
        .ok_or(Status::INVALID_VALUE)?;
    let make = |call| Request::Occupancy {
        call,
        kernel,
        block,
        shared: shared as u64,
    };
    client.remote.ask(make).map(|(blocks, _)| blocks as u32)
}

/// The block size with which a multiprocessor holds most threads.
fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    dynamic: Out<u8>,
    shared: usize,
    limit: i32,
) -> Answer {
    let client = client()?;
    let most = client
        .function(function)?
        .info()
        .attributes
        .iter()
        .find(|attribute| attribute.id == 0)
        .map_or(1024, |attribute| attribute.value);
    let most = if limit > 0 { most.min(limit) } else { most };
    let mut best = (0, 0, 0);
    for warps in (1..=(most / 32).max(1)).rev() {
        let size = (warps * 32).min(most);
        let bytes = if dynamic.is_null() {
            shared
        } else {
            // SAFETY: the program gave this function to be asked how much memory a block of a size takes.
            let ask: extern "C" fn(i32) -> usize =
                unsafe { std::mem::transmute(dynamic.address()) };
            ask(size)
        };
        let blocks = occupancy(function, size, bytes)? as i32;
        if blocks * size > best.0 {
            best = (blocks * size, blocks, size);
        }
        if best.0 >= client.attribute(39).unwrap_or(2048) {
            break;
        }
    }
    block.set(best.2)?;
    grid.set(best.1 * client.attribute(16).unwrap_or(1))
}

api! {
    fn cuLaunchKernel; cuLaunchKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, each: In<usize>, extra: In<usize>,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: false };
        launch(function, shape, stream, each, extra)
    }

    fn cuLaunchCooperativeKernel; cuLaunchCooperativeKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, each: In<usize>,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: true };
        launch(function, shape, stream, each, In::at(0))
    }

    fn cuLaunchKernelEx; cuLaunchKernelEx_ptsz(
        config: In<CUlaunchConfig>, function: Handle, each: In<usize>, extra: In<usize>,
    ) {
        let config = config.get()?;
        let mut cooperative = false;
        for at in 0..config.numAttrs as usize {
            let attribute = In::at(config.attrs as usize).get_at(at)?;
            let narrows_gpu_abi::layout::CUlaunchAttribute { id, value, .. } = attribute;
            match id {
                COOPERATIVE => cooperative = value[0] as u32 != 0,
                // A cluster of one block is a launch without clusters.
                CLUSTER if value[0] == 1 << 32 | 1 && value[1] as u32 == 1 => {}
                CLUSTER => return Err(Status::NOT_SUPPORTED),
                // Priorities, hints and events of launches.
                _ => {}
            }
        }
        let shape = Shape { grid: config.gridDim, block: config.blockDim, shared: config.sharedMemBytes, cooperative };
        launch(function, shape, Handle::new(config.hStream as usize as u64), each, extra)
    }

    fn cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32) {
        client()?.function(function)?.old_style.lock().block = [x as u32, y as u32, z as u32];
        Ok(())
    }

    fn cuFuncSetSharedSize(function: Handle, bytes: u32) {
        client()?.function(function)?.old_style.lock().shared = bytes;
        Ok(())
    }

    fn cuParamSetSize(function: Handle, bytes: u32) {
        if bytes as usize > PARAMS_LEN_MAX {
            return Err(Status::INVALID_VALUE);
        }
        client()?.function(function)?.old_style.lock().params.resize(bytes as usize, 0);
        Ok(())
    }

    fn cuParamSeti(function: Handle, offset: i32, value: u32) {
        set_param(function, offset, &value.to_le_bytes())
    }

    fn cuParamSetf(function: Handle, offset: i32, value: f32) {
        set_param(function, offset, &value.to_le_bytes())
    }

    fn cuParamSetv(function: Handle, offset: i32, from: In<u8>, bytes: u32) {
        set_param(function, offset, &from.bytes(bytes as usize)?)
    }

    fn cuLaunch(function: Handle) {
        launch_grid(function, [1, 1], Handle::NULL)
    }

    fn cuLaunchGrid(function: Handle, width: i32, height: i32) {
        launch_grid(function, [width, height], Handle::NULL)
    }

    fn cuLaunchGridAsync(function: Handle, width: i32, height: i32, stream: Handle) {
        launch_grid(function, [width, height], stream)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: Handle, block: i32, shared: usize,
    ) {
        blocks.set(occupancy(function, block, shared)? as i32)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: Handle, block: i32, shared: usize, flags: u32,
    ) {
        blocks.set(occupancy(function, block, shared)? as i32)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Handle, dynamic: Out<u8>, shared: usize,
        limit: i32,
    ) {
        best_block(grid, block, function, dynamic, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: Handle, dynamic: Out<u8>, shared: usize,
        limit: i32, flags: u32,
    ) {
        best_block(grid, block, function, dynamic, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: Handle, blocks: i32, block: i32,
    ) {
        let client = client()?;
        client.function(function)?;
        let all = client.attribute(81).unwrap_or(0) / blocks.max(1);
        bytes.set(all.min(client.attribute(97).unwrap_or(all)) as usize)
    }
}
