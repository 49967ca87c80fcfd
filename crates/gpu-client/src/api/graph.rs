//! Graphs.

use narrows_gpu_abi::{
    Status,
    layout::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS},
};
use narrows_gpu_wire::Span;

use super::{
    copy::places_3d,
    launch::{self, Shape},
};
use crate::{
    call::api,
    ffi::{Answer, Handle, In, Kind, Out},
    graph::{Node, Work},
    state::client,
    task::{HostCall, Task, span},
};

/// `CU_GRAPH_NODE_TYPE_…`
fn kind_of(work: &Work) -> u32 {
    match work {
        Work::Task(Task::Launch { .. }) => 0,
        Work::Task(Task::Copy { .. }) => 1,
        Work::Task(Task::Memset { .. }) => 2,
        Work::Task(Task::Host(_)) => 3,
        Work::Child(_) => 4,
        Work::Task(Task::Empty) => 5,
        Work::Task(Task::Wait(_)) => 6,
        Work::Task(Task::Record(_)) => 7,
    }
}

/// A node's place: handles that come before it, how many, and where its own handle goes.
struct At {
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
}

fn add(at: At, work: Work) -> Answer {
    let client = client()?;
    let after = at.after_ids()?;
    let id = client.node_add(client.graph_id(at.graph)?, after, work)?;
    at.node.set(Kind::Node.handle(id))
}

impl At {
    fn after_ids(&self) -> Answer<Vec<u64>> {
        (0..self.count)
            .map(|at| Kind::Node.id(self.after.get_at(at)?))
            .collect()
    }
}

/// The first version of these structures ends before `kern` and `ctx`.
fn kernel_params(params: In<u8>, second: bool) -> Answer<Task> {
    let (address, len) = (params.address(), if second { 72 } else { 56 });
    let mut bytes = params.bytes(len)?;
    bytes.resize(72, 0);
    let params = In::<CUDA_KERNEL_NODE_PARAMS>::at(bytes.as_ptr() as usize).get()?;
    if address == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let client = client()?;
    let handle = if params.func.is_null() {
        params.kern
    } else {
        params.func
    };
    let function = client.function(Handle::new(handle as usize as u64))?;
    let each = In::at(params.kernelParams as usize);
    let buffer = launch::params(&function, each, In::at(params.extra as usize))?;
    let shape = Shape {
        grid: params.gridDim,
        block: params.blockDim,
        shared: params.sharedMemBytes,
        cooperative: false,
    };
    launch::task(client, function, shape, buffer)
}

fn copy_params(params: In<CUDA_MEMCPY3D>) -> Answer<Task> {
    let (to, from) = places_3d(&params.get()?)?;
    Ok(Task::Copy { to, from })
}

fn memset_params(params: In<CUDA_MEMSET_NODE_PARAMS>) -> Answer<Task> {
    let asked = params.get()?;
    let row = (asked.width as u64)
        .checked_mul(asked.elementSize.into())
        .ok_or(Status::INVALID_VALUE)?;
    let to = if asked.height <= 1 {
        Span::linear(asked.dst, row)
    } else {
        span(
            asked.dst,
            [0; 3],
            asked.pitch as u64,
            asked.height as u64,
            [row, asked.height as u64, 1],
        )?
    };
    client()?.check_span(&to)?;
    Ok(Task::Memset {
        to,
        element: asked.elementSize,
        value: asked.value,
    })
}

fn host_params(params: In<usize>) -> Answer<Task> {
    Ok(Task::Host(HostCall::Plain {
        function: params.get_at(0)?,
        data: params.get_at(1)?,
    }))
}

/// Replaces what a node does by something of the same kind.
fn replace(node: &mut Node, task: Task) -> Answer {
    let work = Work::Task(task);
    if kind_of(&work) != kind_of(&node.work) {
        return Err(Status::INVALID_VALUE);
    }
    node.work = work;
    Ok(())
}

fn set(node: Handle, task: Task) -> Answer {
    client()?.node_change(Kind::Node.id(node)?, |node| replace(node, task))
}

fn exec_set(exec: Handle, node: Handle, task: Task) -> Answer {
    client()?.exec_change(exec, Kind::Node.id(node)?, |node| replace(node, task))
}

fn instantiate(exec: Out<Handle>, graph: Handle) -> Answer {
    let client = client()?;
    let id = client.instantiate(client.graph_id(graph)?)?;
    exec.set(Kind::Exec.handle(id))
}

/// Gives a list of nodes: how many there are, or as many as there is room for.
fn list(nodes: &[u64], to: Out<Handle>, count: Out<usize>) -> Answer {
    if !to.is_null() {
        let room = count.get()?.min(nodes.len());
        for (at, id) in nodes[..room].iter().enumerate() {
            to.set_at(at, Kind::Node.handle(*id))?;
        }
    }
    count.set(nodes.len())
}

fn nodes(graph: Handle, pick: impl Fn(&Node) -> bool) -> Answer<Vec<u64>> {
    let client = client()?;
    let id = client.graph_id(graph)?;
    let graphs = client.graphs.graphs.lock();
    let graph = graphs.get(&id).ok_or(Status::INVALID_HANDLE)?;
    Ok(graph
        .nodes
        .iter()
        .filter(|node| pick(node))
        .map(|node| node.id)
        .collect())
}

fn depend(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize, add: bool) -> Answer {
    let client = client()?;
    client.graph_id(graph)?;
    for at in 0..count {
        let (from, to) = (
            Kind::Node.id(from.get_at(at)?)?,
            Kind::Node.id(to.get_at(at)?)?,
        );
        client.node_change(to, |node| {
            node.after.retain(|id| *id != from);
            if add {
                node.after.push(from);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Puts a graph's nodes in place of those of one that is ready, where they are alike.
fn update(exec: Handle, graph: Handle) -> Answer {
    let client = client()?;
    let fresh = client.instantiate(client.graph_id(graph)?)?;
    let mut execs = client.graphs.execs.lock();
    let fresh = execs.remove(&fresh).ok_or(Status::UNKNOWN)?;
    let old = execs
        .get_mut(&Kind::Exec.id(exec)?)
        .ok_or(Status::INVALID_HANDLE)?;
    let kinds = |nodes: &[Node]| {
        nodes
            .iter()
            .map(|node| kind_of(&node.work))
            .collect::<Vec<_>>()
    };
    if kinds(&old.nodes) != kinds(&fresh.nodes) {
        // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        return Err(Status(910));
    }
    for (old, fresh) in old.nodes.iter_mut().zip(fresh.nodes) {
        old.work = fresh.work;
    }
    Ok(())
}

api! {
    fn cuGraphCreate(graph: Out<Handle>, flags: u32) {
        graph.set(Kind::Graph.handle(client()?.graph_new()))
    }

    fn cuGraphDestroy(graph: Handle) {
        client()?.graph_destroy(Kind::Graph.id(graph)?)
    }

    fn cuGraphClone(to: Out<Handle>, from: Handle) {
        let client = client()?;
        let id = client.graph_id(from)?;
        let copy = client.graphs.graphs.lock().get(&id).cloned().ok_or(Status::INVALID_HANDLE)?;
        let made = client.graph_new();
        client.graphs.graphs.lock().insert(made, copy);
        to.set(Kind::Graph.handle(made))
    }

    fn cuGraphAddKernelNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<u8>,
    ) {
        add(At { node, graph, after, count }, Work::Task(kernel_params(params, false)?))
    }

    fn cuGraphAddKernelNode_v2(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<u8>,
    ) {
        add(At { node, graph, after, count }, Work::Task(kernel_params(params, true)?))
    }

    fn cuGraphAddMemcpyNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        params: In<CUDA_MEMCPY3D>, context: Handle,
    ) {
        add(At { node, graph, after, count }, Work::Task(copy_params(params)?))
    }

    fn cuGraphAddMemsetNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize,
        params: In<CUDA_MEMSET_NODE_PARAMS>, context: Handle,
    ) {
        add(At { node, graph, after, count }, Work::Task(memset_params(params)?))
    }

    fn cuGraphAddHostNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<usize>,
    ) {
        add(At { node, graph, after, count }, Work::Task(host_params(params)?))
    }

    fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) {
        add(At { node, graph, after, count }, Work::Task(Task::Empty))
    }

    fn cuGraphAddEventRecordNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        let event = client()?.event(event)?;
        add(At { node, graph, after, count }, Work::Task(Task::Record(event)))
    }

    fn cuGraphAddEventWaitNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) {
        let event = client()?.event(event)?;
        add(At { node, graph, after, count }, Work::Task(Task::Wait(event)))
    }

    fn cuGraphAddChildGraphNode(
        node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle,
    ) {
        let child = client()?.graph_id(child)?;
        add(At { node, graph, after, count }, Work::Child(child))
    }

    fn cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        depend(graph, from, to, count, true)
    }

    fn cuGraphAddDependencies_v2(
        graph: Handle, from: In<Handle>, to: In<Handle>, edges: In<u8>, count: usize,
    ) {
        depend(graph, from, to, count, true)
    }

    fn cuGraphRemoveDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        depend(graph, from, to, count, false)
    }

    fn cuGraphGetNodes(graph: Handle, to: Out<Handle>, count: Out<usize>) {
        list(&nodes(graph, |_| true)?, to, count)
    }

    fn cuGraphGetRootNodes(graph: Handle, to: Out<Handle>, count: Out<usize>) {
        list(&nodes(graph, |node| node.after.is_empty())?, to, count)
    }

    fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) {
        let mut found = 0;
        client()?.node_change(Kind::Node.id(node)?, |node| {
            found = kind_of(&node.work);
            Ok(())
        })?;
        kind.set(found)
    }

    fn cuGraphNodeGetDependencies(node: Handle, to: Out<Handle>, count: Out<usize>) {
        let mut after = vec![];
        client()?.node_change(Kind::Node.id(node)?, |node| {
            after.clone_from(&node.after);
            Ok(())
        })?;
        list(&after, to, count)
    }

    fn cuGraphInstantiate, cuGraphInstantiate_v2(
        exec: Out<Handle>, graph: Handle, node: Out<Handle>, log: Out<u8>, len: usize,
    ) {
        instantiate(exec, graph)
    }

    fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, flags: u64) {
        instantiate(exec, graph)
    }

    fn cuGraphInstantiateWithParams; cuGraphInstantiateWithParams_ptsz(
        exec: Out<Handle>, graph: Handle, params: Out<u64>,
    ) {
        // flags, stream, node at fault, result: nothing is uploaded before it is launched.
        params.set_at(2, 0)?;
        params.set_at(3, 0)?;
        instantiate(exec, graph)
    }

    fn cuGraphExecDestroy(exec: Handle) {
        let found = client()?.graphs.execs.lock().remove(&Kind::Exec.id(exec)?);
        found.map(drop).ok_or(Status::INVALID_HANDLE)
    }

    fn cuGraphUpload; cuGraphUpload_ptsz(exec: Handle, stream: Handle) {
        client()?.stream(stream).map(drop)
    }

    fn cuGraphLaunch; cuGraphLaunch_ptsz(exec: Handle, stream: Handle) {
        let client = client()?;
        client.graph_launch(exec, &*client.stream(stream)?)
    }

    fn cuGraphExecUpdate(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) {
        node.offer(Handle::NULL);
        result.offer(0);
        update(exec, graph).inspect_err(|_| result.offer(1))
    }

    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: Out<u64>) {
        (0..3).try_for_each(|at| result.set_at(at, 0))?;
        update(exec, graph).inspect_err(|_| result.offer(1))
    }

    fn cuGraphKernelNodeSetParams(node: Handle, params: In<u8>) {
        set(node, kernel_params(params, false)?)
    }

    fn cuGraphKernelNodeSetParams_v2(node: Handle, params: In<u8>) {
        set(node, kernel_params(params, true)?)
    }

    fn cuGraphMemcpyNodeSetParams(node: Handle, params: In<CUDA_MEMCPY3D>) {
        set(node, copy_params(params)?)
    }

    fn cuGraphMemsetNodeSetParams(node: Handle, params: In<CUDA_MEMSET_NODE_PARAMS>) {
        set(node, memset_params(params)?)
    }

    fn cuGraphHostNodeSetParams(node: Handle, params: In<usize>) {
        set(node, host_params(params)?)
    }

    fn cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<u8>) {
        exec_set(exec, node, kernel_params(params, false)?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: In<u8>) {
        exec_set(exec, node, kernel_params(params, true)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(
        exec: Handle, node: Handle, params: In<CUDA_MEMCPY3D>, context: Handle,
    ) {
        exec_set(exec, node, copy_params(params)?)
    }

    fn cuGraphExecMemsetNodeSetParams(
        exec: Handle, node: Handle, params: In<CUDA_MEMSET_NODE_PARAMS>, context: Handle,
    ) {
        exec_set(exec, node, memset_params(params)?)
    }

    fn cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: In<usize>) {
        exec_set(exec, node, host_params(params)?)
    }

    fn cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32) {
        client()?.exec_change(exec, Kind::Node.id(node)?, |node| {
            node.enabled = enabled != 0;
            Ok(())
        })
    }

    fn cuGraphNodeGetEnabled(exec: Handle, node: Handle, enabled: Out<u32>) {
        let mut found = 0;
        client()?.exec_change(exec, Kind::Node.id(node)?, |node| {
            found = u32::from(node.enabled);
            Ok(())
        })?;
        enabled.set(found)
    }

    fn cuGraphDestroyNode(node: Handle) {
        let client = client()?;
        let id = Kind::Node.id(node)?;
        let graph = client.graphs.owners.lock().remove(&id).ok_or(Status::INVALID_HANDLE)?;
        if let Some(graph) = client.graphs.graphs.lock().get_mut(&graph) {
            graph.nodes.retain(|node| node.id != id);
            graph.nodes.iter_mut().for_each(|node| node.after.retain(|other| *other != id));
        }
        Ok(())
    }
}
