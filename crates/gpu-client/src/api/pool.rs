//! Memory pools: memory that is allocated and freed in a stream's order. Allocation here is immediate, which comes
//! before anything in the stream; freeing waits for the stream.

use std::collections::HashMap;

use narrows_gpu_abi::{Status, layout::CUdeviceptr};

use crate::{
    call::api,
    ffi::{Answer, Handle, In, Kind, Out},
    state::client,
};

/// The pools.
#[derive(Default)]
pub(crate) struct Pools {
    default: u64,
    current: u64,
    made: HashMap<u64, HashMap<u32, u64>>,
}

const RELEASE_THRESHOLD: u32 = 4;

impl Pools {
    fn default(&mut self) -> Answer<u64> {
        if self.default == 0 {
            self.default = self.make()?;
        }
        Ok(self.default)
    }

    fn make(&mut self) -> Answer<u64> {
        let id = client()?.remote.id();
        // Reuse policies are on where nobody says; no memory is held back.
        let attributes = HashMap::from([(1, 1), (2, 1), (3, 1), (RELEASE_THRESHOLD, 0)]);
        self.made.insert(id, attributes);
        Ok(id)
    }

    fn current(&mut self) -> Answer<u64> {
        if self.current == 0 {
            self.default()
        } else {
            Ok(self.current)
        }
    }
}

fn pool_id(pool: Handle) -> Answer<u64> {
    let id = Kind::Pool.id(pool)?;
    let known = client()?.pools.lock().made.contains_key(&id);
    known.then_some(id).ok_or(Status::INVALID_VALUE)
}

/// Attributes 5 to 8 count bytes: reserved and used, now and at most.
fn is_count(attribute: u32) -> bool {
    (5..=8).contains(&attribute)
}

api! {
    fn cuMemAllocAsync; cuMemAllocAsync_ptsz(to: Out<CUdeviceptr>, len: usize, stream: Handle) {
        let client = client()?;
        client.stream(stream)?;
        let pool = client.pools.lock().current()?;
        to.set(client.alloc(len as u64, pool)?)
    }

    fn cuMemAllocFromPoolAsync; cuMemAllocFromPoolAsync_ptsz(
        to: Out<CUdeviceptr>, len: usize, pool: Handle, stream: Handle,
    ) {
        let client = client()?;
        client.stream(stream)?;
        to.set(client.alloc(len as u64, pool_id(pool)?)?)
    }

    fn cuMemFreeAsync; cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: Handle) {
        let client = client()?;
        let stream = client.stream(stream)?;
        client.before(&stream)?;
        client.free(address, Some(stream.id))
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) {
        client()?.device(device)?;
        let id = client()?.pools.lock().default()?;
        pool.set(Kind::Pool.handle(id))
    }

    fn cuDeviceGetMemPool(pool: Out<Handle>, device: i32) {
        client()?.device(device)?;
        let id = client()?.pools.lock().current()?;
        pool.set(Kind::Pool.handle(id))
    }

    fn cuDeviceSetMemPool(device: i32, pool: Handle) {
        client()?.device(device)?;
        let id = pool_id(pool)?;
        client()?.pools.lock().current = id;
        Ok(())
    }

    fn cuMemPoolCreate(pool: Out<Handle>, properties: In<u8>) {
        let id = client()?.pools.lock().make()?;
        pool.set(Kind::Pool.handle(id))
    }

    fn cuMemPoolDestroy(pool: Handle) {
        let id = pool_id(pool)?;
        let mut pools = client()?.pools.lock();
        if id == pools.default {
            return Err(Status::INVALID_VALUE);
        }
        pools.made.remove(&id);
        if pools.current == id {
            pools.current = 0;
        }
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        pool_id(pool).map(drop)
    }

    fn cuMemPoolSetAccess(pool: Handle, list: In<u8>, count: usize) {
        pool_id(pool).map(drop)
    }

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, location: In<u8>) {
        pool_id(pool)?;
        flags.set(3)
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, to: Out<u64>) {
        let id = pool_id(pool)?;
        let client = client()?;
        if is_count(attribute) {
            let memory = client.memory.read();
            return to.set(memory.values().filter(|found| found.pool == id).map(|found| found.len).sum());
        }
        let pools = client.pools.lock();
        let value = pools.made.get(&id).and_then(|attributes| attributes.get(&attribute)).copied();
        let value = value.ok_or(Status::INVALID_VALUE)?;
        if attribute == RELEASE_THRESHOLD { to.set(value) } else { to.cast::<i32>().set(value as i32) }
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, from: In<u64>) {
        let id = pool_id(pool)?;
        let value = if attribute == RELEASE_THRESHOLD || is_count(attribute) {
            from.get()?
        } else {
            u64::from(In::<u32>::at(from.address()).get()?)
        };
        if let Some(attributes) = client()?.pools.lock().made.get_mut(&id) {
            attributes.insert(attribute, value);
        }
        Ok(())
    }
}
