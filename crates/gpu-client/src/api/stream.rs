//! Streams, and functions of the program that they call.

use narrows_gpu_abi::Status;
use narrows_gpu_wire::Request;

use crate::{
    call::api,
    ffi::{Handle, Kind, Out},
    graph::{self, CaptureInfo},
    state::client,
    task::{HostCall, Task, handle_of},
};

/// `CU_STREAM_NON_BLOCKING`
const FLAGS: u32 = 1;

api! {
    fn cuStreamCreate(stream: Out<Handle>, flags: u32) {
        if flags & !FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        stream.set(Kind::Stream.handle(client()?.create_stream(flags, 0)?.id))
    }

    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32) {
        if flags & !FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        stream.set(Kind::Stream.handle(client()?.create_stream(flags, priority.clamp(-5, 0))?.id))
    }

    fn cuStreamDestroy, cuStreamDestroy_v2(stream: Handle) {
        client()?.destroy_stream(Kind::Stream.id(stream)?)
    }

    fn cuStreamSynchronize; cuStreamSynchronize_ptsz(stream: Handle) {
        let client = client()?;
        client.sync_stream(&*client.stream(stream)?)
    }

    fn cuStreamQuery; cuStreamQuery_ptsz(stream: Handle) {
        let client = client()?;
        let stream = client.stream(stream)?.id;
        client.remote.sync(|call| Request::StreamQuery { call, stream })
    }

    fn cuStreamWaitEvent; cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32) {
        let client = client()?;
        let event = client.event(event)?;
        client.submit(&*client.stream(stream)?, Task::Wait(event))
    }

    fn cuStreamGetFlags; cuStreamGetFlags_ptsz(stream: Handle, flags: Out<u32>) {
        flags.set(client()?.stream(stream)?.flags)
    }

    fn cuStreamGetPriority; cuStreamGetPriority_ptsz(stream: Handle, priority: Out<i32>) {
        priority.set(client()?.stream(stream)?.priority)
    }

    fn cuStreamGetId; cuStreamGetId_ptsz(stream: Handle, id: Out<u64>) {
        id.set(client()?.stream(stream)?.id)
    }

    fn cuStreamGetDevice; cuStreamGetDevice_ptsz(stream: Handle, device: Out<i32>) {
        client()?.stream(stream)?;
        device.set(0)
    }

    fn cuStreamGetCtx; cuStreamGetCtx_ptsz(stream: Handle, context: Out<Handle>) {
        let client = client()?;
        let owner = client.stream(stream)?.context;
        let id = if owner == 0 { client.current()?.id } else { owner };
        context.set(Kind::Context.handle(id))
    }

    fn cuStreamGetCtx_v2; cuStreamGetCtx_v2_ptsz(
        stream: Handle, context: Out<Handle>, green: Out<Handle>,
    ) {
        let client = client()?;
        let owner = client.stream(stream)?.context;
        let id = if owner == 0 { client.current()?.id } else { owner };
        green.offer(Handle::NULL);
        context.set(Kind::Context.handle(id))
    }

    fn cuStreamAddCallback; cuStreamAddCallback_ptsz(
        stream: Handle, function: Out<u8>, data: Out<u8>, flags: u32,
    ) {
        let client = client()?;
        let stream = client.stream(stream)?;
        let call = HostCall::Stream {
            function: function.address(),
            data: data.address(),
            stream: handle_of(&stream).value(),
        };
        client.submit(&stream, Task::Host(call))
    }

    fn cuLaunchHostFunc, cuLaunchHostFunc_v2; cuLaunchHostFunc_ptsz, cuLaunchHostFunc_v2_ptsz(
        stream: Handle, function: Out<u8>, data: Out<u8>,
    ) {
        let client = client()?;
        if function.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let call = HostCall::Plain { function: function.address(), data: data.address() };
        client.submit(&*client.stream(stream)?, Task::Host(call))
    }

    fn cuStreamCopyAttributes; cuStreamCopyAttributes_ptsz(to: Handle, from: Handle) {
        client()?.stream(to)?;
        client()?.stream(from).map(drop)
    }

    fn cuStreamSetAttribute; cuStreamSetAttribute_ptsz(
        stream: Handle, attribute: u32, value: Out<u8>,
    ) {
        // Hints: access policies and priorities of memory.
        client()?.stream(stream).map(drop)
    }

    fn cuStreamAttachMemAsync; cuStreamAttachMemAsync_ptsz(
        stream: Handle, address: u64, len: usize, flags: u32,
    ) {
        // About managed memory, of which there is none.
        Err(Status::INVALID_VALUE)
    }

    fn cuStreamBeginCapture, cuStreamBeginCapture_v2; cuStreamBeginCapture_ptsz,
        cuStreamBeginCapture_v2_ptsz(
        stream: Handle, mode: u32,
    ) {
        graph::begin(client()?, &*client()?.stream(stream)?)
    }

    fn cuStreamEndCapture; cuStreamEndCapture_ptsz(stream: Handle, graph: Out<Handle>) {
        let id = graph::end(client()?, &*client()?.stream(stream)?)?;
        graph.set(Kind::Graph.handle(id))
    }

    fn cuStreamIsCapturing; cuStreamIsCapturing_ptsz(stream: Handle, status: Out<u32>) {
        status.set(u32::from(graph::info(&*client()?.stream(stream)?).is_some()))
    }

    fn cuStreamGetCaptureInfo; cuStreamGetCaptureInfo_ptsz(
        stream: Handle, status: Out<u32>, id: Out<u64>,
    ) {
        let info = graph::info(&*client()?.stream(stream)?);
        if let Some(CaptureInfo { id: found, .. }) = &info {
            id.offer(*found);
        }
        status.set(u32::from(info.is_some()))
    }

    fn cuStreamGetCaptureInfo_v2; cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<usize>,
        count: Out<usize>,
    ) {
        let info = graph::info(&*client()?.stream(stream)?);
        if let Some(info) = &info {
            id.offer(info.id);
            graph.offer(Kind::Graph.handle(info.id));
            after.offer(info.after);
            count.offer(info.count);
        }
        status.set(u32::from(info.is_some()))
    }

    fn cuStreamGetCaptureInfo_v3; cuStreamGetCaptureInfo_v3_ptsz(
        stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<usize>,
        edges: Out<usize>, count: Out<usize>,
    ) {
        let info = graph::info(&*client()?.stream(stream)?);
        if let Some(info) = &info {
            id.offer(info.id);
            graph.offer(Kind::Graph.handle(info.id));
            after.offer(info.after);
            edges.offer(0);
            count.offer(info.count);
        }
        status.set(u32::from(info.is_some()))
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        // Calls that would be unsafe while capturing are none here: nothing is done behind a captured stream.
        client()?;
        mode.set(mode.get()?)
    }
}
