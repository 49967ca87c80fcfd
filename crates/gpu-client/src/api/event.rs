//! Events.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::Request;

use crate::{
    call::api,
    ffi::{Answer, Handle, Kind, Out},
    state::{Event, client},
    task::Task,
};

/// `CU_EVENT_DISABLE_TIMING`
const NO_TIMING: u32 = 2;

fn record(event: Handle, stream: Handle) -> Answer {
    let client = client()?;
    let event = client.event(event)?;
    client.submit(&*client.stream(stream)?, Task::Record(event))
}

fn elapsed(ms: Out<f32>, start: Handle, end: Handle) -> Answer {
    let client = client()?;
    let (start, end) = (client.event(start)?, client.event(end)?);
    if (start.flags | end.flags) & NO_TIMING != 0 {
        return Err(Status::INVALID_HANDLE);
    }
    let make = |call| Request::EventElapsed {
        call,
        start: start.id,
        end: end.id,
    };
    let (bits, _) = client.remote.ask(make)?;
    ms.set(f32::from_bits(bits as u32))
}

api! {
    fn cuEventCreate(event: Out<Handle>, flags: u32) {
        let client = client()?;
        client.current()?;
        let made = Event { id: client.remote.id(), flags, recorded: AtomicBool::new(false) };
        let id = made.id;
        client.remote.send(&Request::EventCreate { id, flags })?;
        client.events.write().insert(id, Arc::new(made));
        event.set(Kind::Event.handle(id))
    }

    fn cuEventDestroy, cuEventDestroy_v2(event: Handle) {
        let client = client()?;
        let id = Kind::Event.id(event)?;
        client.events.write().remove(&id).ok_or(Status::INVALID_HANDLE)?;
        client.remote.send(&Request::EventDestroy { id })
    }

    fn cuEventRecord; cuEventRecord_ptsz(event: Handle, stream: Handle) {
        record(event, stream)
    }

    fn cuEventRecordWithFlags; cuEventRecordWithFlags_ptsz(
        event: Handle, stream: Handle, flags: u32,
    ) {
        record(event, stream)
    }

    fn cuEventSynchronize(event: Handle) {
        let client = client()?;
        let found = client.event(event)?;
        if !found.recorded.load(Relaxed) {
            return client.remote.check();
        }
        let event = found.id;
        client.remote.sync(|call| Request::EventSync { call, event })
    }

    fn cuEventQuery(event: Handle) {
        let client = client()?;
        let found = client.event(event)?;
        if !found.recorded.load(Relaxed) {
            return client.remote.check();
        }
        let event = found.id;
        client.remote.sync(|call| Request::EventQuery { call, event })
    }

    fn cuEventElapsedTime, cuEventElapsedTime_v2(ms: Out<f32>, start: Handle, end: Handle) {
        elapsed(ms, start, end)
    }
}
