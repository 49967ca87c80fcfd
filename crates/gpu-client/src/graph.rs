//! Graphs are kept here and run as the tasks they are made of, in order, in the stream they are launched in: the server
//! needs to know nothing of them, and a launch is one packet of messages without an answer.
//!
//! Capturing is the same: while a stream is captured its tasks go to a graph.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use narrows_gpu_abi::Status;
use parking_lot::Mutex;

use crate::{
    ffi::{Answer, Handle, Kind},
    state::{Client, Stream},
    task::Task,
};

/// Nodes of one graph.
const NODES_MAX: usize = 1 << 20;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Work {
    Task(Task),
    Child(u64),
}

/// A node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) work: Work,
    pub(crate) after: Vec<u64>,
    pub(crate) enabled: bool,
}

/// A graph.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

impl Graph {
    /// Its nodes, each behind those it comes after; `None` where that is a circle.
    fn sorted(&self) -> Option<Vec<Node>> {
        let (mut done, mut left) = (HashSet::new(), self.nodes.clone());
        let mut sorted = Vec::new();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|node| {
                let ready = node.after.iter().all(|id| done.contains(id));
                if ready {
                    done.insert(node.id);
                    sorted.push(node.clone());
                }
                !ready
            });
            if left.len() == before {
                return None;
            }
        }
        Some(sorted)
    }
}

/// A graph that can be launched.
#[derive(Clone)]
pub(crate) struct Exec {
    pub(crate) nodes: Vec<Node>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: Mutex<HashMap<u64, Graph>>,
    pub(crate) execs: Mutex<HashMap<u64, Exec>>,
    /// Which graph a node is in.
    pub(crate) owners: Mutex<HashMap<u64, u64>>,
    /// Where in a capture an event was recorded.
    events: Mutex<HashMap<u64, Capture>>,
}

/// A capture that a stream takes part in.
#[derive(Clone)]
pub(crate) struct Capture {
    graph: u64,
    /// What the stream's next task comes after, as the handles that programs see.
    after: Vec<u64>,
    handles: Arc<Vec<u64>>,
    /// The stream that it began with, which ends it.
    origin: u64,
}

/// What programs ask of a capture.
pub(crate) struct CaptureInfo {
    pub(crate) id: u64,
    pub(crate) after: usize,
    pub(crate) count: usize,
}

impl Client {
    pub(crate) fn graph_new(&self) -> u64 {
        let id = self.remote.id();
        self.graphs.graphs.lock().insert(id, Graph::default());
        id
    }

    /// Adds a node behind others.
    pub(crate) fn node_add(&self, graph: u64, after: Vec<u64>, work: Work) -> Answer<u64> {
        let id = self.remote.id();
        let mut graphs = self.graphs.graphs.lock();
        let found = graphs.get_mut(&graph).ok_or(Status::INVALID_HANDLE)?;
        let known = |id: &u64| found.nodes.iter().rev().any(|node| node.id == *id);
        if found.nodes.len() >= NODES_MAX || !after.iter().all(known) {
            return Err(Status::INVALID_VALUE);
        }
        found.nodes.push(Node {
            id,
            work,
            after,
            enabled: true,
        });
        drop(graphs);
        self.graphs.owners.lock().insert(id, graph);
        Ok(id)
    }

    pub(crate) fn graph_id(&self, handle: Handle) -> Answer<u64> {
        let id = Kind::Graph.id(handle)?;
        let known = self.graphs.graphs.lock().contains_key(&id);
        known.then_some(id).ok_or(Status::INVALID_HANDLE)
    }

    pub(crate) fn graph_destroy(&self, id: u64) -> Answer {
        let graph = self
            .graphs
            .graphs
            .lock()
            .remove(&id)
            .ok_or(Status::INVALID_HANDLE)?;
        let mut owners = self.graphs.owners.lock();
        for node in &graph.nodes {
            owners.remove(&node.id);
        }
        Ok(())
    }

    /// Makes a graph ready: children in place of the nodes that name them.
    pub(crate) fn instantiate(&self, graph: u64) -> Answer<u64> {
        let graphs = self.graphs.graphs.lock();
        let nodes = flat(&graphs, graph, 0)?;
        drop(graphs);
        let id = self.remote.id();
        self.graphs.execs.lock().insert(id, Exec { nodes });
        Ok(id)
    }

    /// Changes a node, in the graph it was added to.
    pub(crate) fn node_change(
        &self,
        node: u64,
        change: impl FnOnce(&mut Node) -> Answer,
    ) -> Answer {
        let graph = self.graphs.owners.lock().get(&node).copied();
        let mut graphs = self.graphs.graphs.lock();
        let graph = graph.and_then(|graph| graphs.get_mut(&graph));
        let found = graph.and_then(|graph| graph.nodes.iter_mut().find(|found| found.id == node));
        change(found.ok_or(Status::INVALID_HANDLE)?)
    }

    /// Changes a node of a graph that is ready.
    pub(crate) fn exec_change(
        &self,
        exec: Handle,
        node: u64,
        change: impl FnOnce(&mut Node) -> Answer,
    ) -> Answer {
        let mut execs = self.graphs.execs.lock();
        let exec = execs
            .get_mut(&Kind::Exec.id(exec)?)
            .ok_or(Status::INVALID_HANDLE)?;
        let found = exec.nodes.iter_mut().find(|found| found.id == node);
        change(found.ok_or(Status::INVALID_VALUE)?)
    }

    /// Runs a graph in a stream.
    pub(crate) fn graph_launch(&self, exec: Handle, stream: &Stream) -> Answer {
        let execs = self.graphs.execs.lock();
        let nodes = execs
            .get(&Kind::Exec.id(exec)?)
            .ok_or(Status::INVALID_HANDLE)?
            .nodes
            .clone();
        drop(execs);
        for node in nodes.iter().filter(|node| node.enabled) {
            if let Work::Task(task) = &node.work {
                self.submit(stream, task.clone())?;
            }
        }
        Ok(())
    }
}

fn flat(graphs: &HashMap<u64, Graph>, graph: u64, depth: u32) -> Answer<Vec<Node>> {
    if depth > 32 {
        return Err(Status::INVALID_VALUE);
    }
    let graph = graphs.get(&graph).ok_or(Status::INVALID_HANDLE)?;
    let mut nodes = Vec::new();
    for node in graph.sorted().ok_or(Status::INVALID_VALUE)? {
        match node.work {
            Work::Child(child) => nodes.extend(flat(graphs, child, depth + 1)?),
            Work::Task(_) => nodes.push(node),
        }
        if nodes.len() > NODES_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
    }
    Ok(nodes)
}

/// Begins to capture a stream.
pub(crate) fn begin(client: &Client, stream: &Stream) -> Answer {
    let mut capture = stream.capture.lock();
    // The legacy stream waits for others, which a graph cannot.
    if stream.id == 0 || capture.is_some() {
        return Err(Status::ILLEGAL_STATE);
    }
    *capture = Some(Capture {
        graph: client.graph_new(),
        after: vec![],
        handles: Arc::default(),
        origin: stream.id,
    });
    stream.capturing.store(true, Relaxed);
    Ok(())
}

/// Ends the capture that began with this stream; gives its graph.
pub(crate) fn end(client: &Client, stream: &Stream) -> Answer<u64> {
    let mut capture = stream.capture.lock();
    let ended = capture.take().ok_or(Status::ILLEGAL_STATE)?;
    stream.capturing.store(false, Relaxed);
    drop(capture);
    if ended.origin != stream.id {
        return Err(Status::ILLEGAL_STATE);
    }
    client
        .graphs
        .events
        .lock()
        .retain(|_, other| other.graph != ended.graph);
    for other in client.streams.read().values() {
        let mut capture = other.capture.lock();
        if capture
            .as_ref()
            .is_some_and(|other| other.graph == ended.graph)
        {
            *capture = None;
            other.capturing.store(false, Relaxed);
        }
    }
    Ok(ended.graph)
}

/// The capture that a stream is in.
pub(crate) fn info(stream: &Stream) -> Option<CaptureInfo> {
    let capture = stream.capture.lock();
    capture.as_ref().map(|capture| CaptureInfo {
        id: capture.graph,
        after: capture.handles.as_ptr() as usize,
        count: capture.handles.len(),
    })
}

/// Takes a task for a graph, if the stream is captured, or joins a capture whose event it waits for.
pub(crate) fn captures(client: &Client, stream: &Stream, task: &Task) -> Answer<bool> {
    if let Task::Wait(event) = task {
        let recorded = client.graphs.events.lock().get(&event.id).cloned();
        if let Some(recorded) = recorded {
            return join(stream, recorded).map(|()| true);
        }
    }
    if !stream.capturing.load(Relaxed) {
        return Ok(false);
    }
    let mut slot = stream.capture.lock();
    let Some(capture) = slot.as_mut() else {
        return Ok(false);
    };
    if let Task::Record(event) = task {
        client
            .graphs
            .events
            .lock()
            .insert(event.id, capture.clone());
        return Ok(true);
    }
    let work = Work::Task(task.clone());
    let id = client.node_add(capture.graph, capture.after.clone(), work)?;
    capture.come_after(vec![id]);
    Ok(true)
}

fn join(stream: &Stream, recorded: Capture) -> Answer {
    let mut slot = stream.capture.lock();
    match slot.as_mut() {
        Some(capture) if capture.graph == recorded.graph => {
            let mut after = capture.after.clone();
            after.extend(
                recorded
                    .after
                    .iter()
                    .filter(|id| !capture.after.contains(id)),
            );
            capture.come_after(after);
        }
        Some(_) => return Err(Status::ILLEGAL_STATE),
        None => *slot = Some(recorded),
    }
    stream.capturing.store(true, Relaxed);
    Ok(())
}

impl Capture {
    fn come_after(&mut self, after: Vec<u64>) {
        self.handles = Arc::new(
            after
                .iter()
                .map(|id| Kind::Node.handle(*id).value())
                .collect(),
        );
        self.after = after;
    }
}
