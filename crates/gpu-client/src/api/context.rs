//! Contexts: whose objects are whose, and which is current in a thread. The server has one for the whole session.

use std::sync::atomic::Ordering::Relaxed;

use narrows_gpu_abi::Status;

use crate::{
    call::api,
    ffi::{Answer, Handle, In, Kind, Out},
    state::{client, stack},
};

/// A limit's value where nobody has set it.
fn default_limit(limit: u32) -> Answer<usize> {
    Ok(match limit {
        0 => 1024,    // CU_LIMIT_STACK_SIZE
        1 => 1 << 20, // CU_LIMIT_PRINTF_FIFO_SIZE
        2 => 8 << 20, // CU_LIMIT_MALLOC_HEAP_SIZE
        3 => 2,       // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH
        4 => 2048,    // CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
        5 => 128,     // CU_LIMIT_MAX_L2_FETCH_GRANULARITY
        6 => 0,       // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        _ => return Err(Status::NOT_SUPPORTED),
    })
}

fn create(context: Out<Handle>, flags: u32, device: i32) -> Answer {
    let client = client()?;
    client.device(device)?;
    let made = client.context_new(flags);
    stack(|stack| stack.push(made.id));
    context.set(Kind::Context.handle(made.id))
}

fn id_or_none(context: Handle) -> Answer<u64> {
    if context == Handle::NULL {
        return Ok(0);
    }
    client()?.context_of(context).map(|context| context.id)
}

fn synchronize() -> Answer {
    let client = client()?;
    client.current()?;
    client.sync_all()
}

api! {
    fn cuCtxCreate, cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v3(context: Out<Handle>, affinity: In<u8>, count: i32, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v4(context: Out<Handle>, params: In<u8>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxDestroy, cuCtxDestroy_v2, cuCtxDetach(context: Handle) {
        let client = client()?;
        let ended = client.context_of(context)?;
        stack(|stack| {
            if stack.last() == Some(&ended.id) {
                stack.pop();
            }
        });
        client.context_end(&ended)
    }

    fn cuCtxAttach(context: Out<Handle>, flags: u32) {
        context.set(Kind::Context.handle(client()?.current()?.id))
    }

    fn cuCtxPushCurrent, cuCtxPushCurrent_v2(context: Handle) {
        let id = client()?.context_of(context)?.id;
        stack(|stack| stack.push(id));
        Ok(())
    }

    fn cuCtxPopCurrent, cuCtxPopCurrent_v2(context: Out<Handle>) {
        client()?;
        let id = stack(Vec::pop).ok_or(Status::INVALID_CONTEXT)?;
        context.offer(if id == 0 { Handle::NULL } else { Kind::Context.handle(id) });
        Ok(())
    }

    fn cuCtxSetCurrent(context: Handle) {
        let id = id_or_none(context)?;
        stack(|stack| {
            stack.pop();
            if id != 0 {
                stack.push(id);
            }
        });
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<Handle>) {
        client()?;
        let id = stack(|stack| stack.last().copied()).unwrap_or(0);
        context.set(if id == 0 { Handle::NULL } else { Kind::Context.handle(id) })
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        client()?.current()?;
        device.set(0)
    }

    fn cuCtxGetDevice_v2(device: Out<i32>, context: Handle) {
        if context == Handle::NULL {
            client()?.current()?;
        } else {
            client()?.context_of(context)?;
        }
        device.set(0)
    }

    fn cuCtxSynchronize() {
        synchronize()
    }

    fn cuCtxSynchronize_v2(context: Handle) {
        if context == Handle::NULL {
            return synchronize();
        }
        client()?.context_of(context)?;
        client()?.sync_all()
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        flags.set(client()?.current()?.flags.load(Relaxed) as u32)
    }

    fn cuCtxSetFlags(flags: u32) {
        client()?.current()?.flags.store(flags.into(), Relaxed);
        Ok(())
    }

    fn cuCtxGetId(context: Handle, id: Out<u64>) {
        let client = client()?;
        let found = if context == Handle::NULL { client.current()? } else { client.context_of(context)? };
        id.set(found.id)
    }

    fn cuCtxGetApiVersion(context: Handle, version: Out<u32>) {
        let client = client()?;
        if context == Handle::NULL {
            client.current()?;
        } else {
            client.context_of(context)?;
        }
        version.set(3020)
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let context = client()?.current()?;
        let set = context.limits.lock().get(&limit).copied();
        value.set(set.map_or_else(|| default_limit(limit), Ok)?)
    }

    fn cuCtxSetLimit(limit: u32, value: usize) {
        default_limit(limit)?;
        client()?.current()?.limits.lock().insert(limit, value);
        Ok(())
    }

    fn cuCtxGetCacheConfig, cuCtxGetSharedMemConfig(config: Out<u32>) {
        client()?.current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig, cuCtxSetSharedMemConfig(config: u32) {
        client()?.current().map(drop)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        client()?.current()?;
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        client()?.current().map(drop)
    }

    fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) {
        client()?.context_of(peer)?;
        // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: there is one device.
        Err(Status(217))
    }

    fn cuCtxDisablePeerAccess(peer: Handle) {
        client()?.context_of(peer)?;
        // CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
        Err(Status(705))
    }
}
