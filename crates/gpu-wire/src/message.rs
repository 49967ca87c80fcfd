//! The messages.

use crate::{
    Span,
    codec::{Field, Structure, WireError, messages, structure},
};

/// Ids that mean something by themselves.
pub mod ids {
    /// The legacy default stream, which waits for all blocking streams and they for it.
    pub const LEGACY_STREAM: u64 = 0;
    /// The least id that a client gives to what it creates.
    pub const FIRST: u64 = 16;
}

structure! {
    /// What a client knows of the device from the start.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DeviceInfo {
        /// `"cuda"` or `"host"`.
        pub backend: String,
        /// The device's name.
        pub name: String,
        /// Its identity.
        pub uuid: [u8; 16],
        /// `"0000:01:00.0"`.
        pub pci_bus_id: String,
        /// Bytes of memory that this session may use.
        pub memory: u64,
        /// CUDA version of the driver there: 1000 × major + 10 × minor.
        pub driver_version: u32,
        /// All attributes, by `CUdevice_attribute`.
        pub attributes: Vec<Attribute>,
        /// Where device addresses may lie, so that no host address of the program looks like one.
        pub arena_base: u64,
        /// Bytes of that range; 0 where the server does not know.
        pub arena_len: u64,
    }
}

structure! {
    /// A number and its value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Attribute {
        /// Which.
        pub id: u32,
        /// Its value.
        pub value: i32,
    }
}

structure! {
    /// A kernel of a module.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KernelInfo {
        /// As programs ask for it.
        pub name: String,
        /// Its parameters, in order.
        pub params: Vec<Param>,
        /// Attributes by `CUfunction_attribute`.
        pub attributes: Vec<Attribute>,
    }
}

structure! {
    /// Where a kernel's parameter lies in its parameter buffer. Bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Param {
        /// Distance from the beginning.
        pub offset: u32,
        /// Length.
        pub size: u32,
    }
}

structure! {
    /// A kernel: which of the list that came when its module was loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct KernelRef {
        /// The client's id of the module.
        pub module: u64,
        /// Counted from 0.
        pub index: u32,
    }
}

structure! {
    /// Starts a kernel.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Launch {
        /// In which stream.
        pub stream: u64,
        /// Which kernel.
        pub kernel: KernelRef,
        /// Blocks.
        pub grid: [u32; 3],
        /// Threads of a block.
        pub block: [u32; 3],
        /// Bytes of dynamic shared memory of a block.
        pub shared: u32,
        /// All blocks must run at once.
        pub cooperative: bool,
        /// The parameter buffer.
        pub params: Vec<u8>,
    }
}

structure! {
    /// An image to load.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Image {
        /// SHA-256 of its bytes.
        pub hash: [u8; 32],
        /// Length in bytes.
        pub len: u64,
        /// Its bytes, if they are few; empty otherwise, and where the server should have them.
        pub bytes: Vec<u8>,
    }
}

structure! {
    /// A piece of a copy that the server keeps.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ContentPiece {
        /// BLAKE3 of its bytes.
        pub hash: [u8; 32],
        /// How many they are.
        pub len: u32,
    }
}

structure! {
    /// A texture object over device memory.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Texture {
        /// The elements' address.
        pub base: u64,
        /// `CUarray_format`.
        pub format: u32,
        /// Components of an element: 1, 2 or 4.
        pub channels: u32,
        /// Elements of a row.
        pub width: u64,
        /// Rows; 0 for a linear texture.
        pub height: u64,
        /// Bytes from one row to the next.
        pub pitch: u64,
        /// `CUaddress_mode` in x, y and z.
        pub address_mode: [u32; 3],
        /// 0 nearest element, 1 linear.
        pub filter: u32,
        /// `CU_TRSF_…`: 1 read as integer, 2 normalized coordinates, 16 no conversion of sRGB.
        pub flags: u32,
    }
}

messages! {
    /// From the client. Those with a `call` are answered; the rest is not.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Request {
        /// The first message. Answered by [`Reply::Welcome`] or [`Reply::Refused`].
        1 => Hello {
            /// CUDA version of the headers that the client was made from.
            header_version: u32,
            /// What the server may say in its log.
            program: String,
        },
        /// A stream of this id. `flags` 1: does not wait for the legacy stream.
        2 => StreamCreate {
            /// The client's id for it.
            id: u64,
            /// `CU_STREAM_…`.
            flags: u32,
            /// Lower is more urgent.
            priority: i32,
        },
        /// Its work is done first.
        3 => StreamDestroy {
            /// Which.
            id: u64,
        },
        /// An event of this id.
        4 => EventCreate {
            /// The client's id for it.
            id: u64,
            /// `CU_EVENT_…`.
            flags: u32,
        },
        /// What waits for it still does.
        5 => EventDestroy {
            /// Which.
            id: u64,
        },
        /// Notes when the stream has come so far.
        6 => EventRecord {
            /// Which event.
            event: u64,
            /// Which stream.
            stream: u64,
        },
        /// The stream goes on when the event's last record has come.
        7 => StreamWaitEvent {
            /// Which stream.
            stream: u64,
            /// Which event.
            event: u64,
        },
        /// Device memory. Answered by its address.
        8 => Alloc {
            /// Repeated in the answer.
            call: u64,
            /// Bytes.
            len: u64,
        },
        /// Frees it once all streams' work so far is done.
        9 => Free {
            /// As [`Request::Alloc`] answered.
            address: u64,
        },
        /// Frees it once the stream has come so far.
        10 => FreeAsync {
            /// As [`Request::Alloc`] answered.
            address: u64,
            /// Which stream.
            stream: u64,
        },
        /// Answered by free and total bytes.
        11 => MemInfo {
            /// Repeated in the answer.
            call: u64,
        },
        /// Fills elements of 1, 2 or 4 bytes.
        12 => Memset {
            /// Which stream.
            stream: u64,
            /// Where; rows are in bytes.
            dst: Span,
            /// Bytes of an element.
            element: u32,
            /// What goes into each.
            value: u32,
        },
        /// Copies within the device. Both spans have as many bytes, in rows of one length.
        13 => CopyDevice {
            /// Which stream.
            stream: u64,
            /// To.
            dst: Span,
            /// From.
            src: Span,
        },
        /// Copies these bytes to the device.
        14 => WriteInline {
            /// Which stream.
            stream: u64,
            /// Where.
            dst: Span,
            /// As many as `dst` has.
            bytes: Vec<u8>,
        },
        /// As many bytes as `dst` has come next on the lane.
        15 => Write {
            /// Which stream.
            stream: u64,
            /// Which lane.
            lane: u32,
            /// Where.
            dst: Span,
        },
        /// Answered by [`Reply::Data`] in its stream's order.
        16 => ReadInline {
            /// Which stream.
            stream: u64,
            /// Repeated in the answer.
            call: u64,
            /// From where; at most [`INLINE_LEN_MAX`](crate::INLINE_LEN_MAX) bytes.
            src: Span,
        },
        /// These bytes are to be sent on the lane, in its stream's order.
        17 => Read {
            /// Which stream.
            stream: u64,
            /// Which lane.
            lane: u32,
            /// From where.
            src: Span,
        },
        /// Loads a module. Answered by [`Reply::Loaded`], [`Reply::NeedImage`] or [`Reply::Failed`].
        18 => ModuleLoad {
            /// Repeated in the answer.
            call: u64,
            /// The client's id for it.
            id: u64,
            /// What.
            image: Image,
        },
        /// As [`Request::ModuleLoad`], after [`Reply::NeedImage`]: the image comes next on the lane.
        19 => ModuleImage {
            /// Repeated in the answer.
            call: u64,
            /// The client's id for it.
            id: u64,
            /// Hash and length; no bytes.
            image: Image,
            /// Which lane.
            lane: u32,
        },
        /// Its kernels that run still finish.
        20 => ModuleUnload {
            /// Which.
            id: u64,
        },
        /// Answered by address and length.
        21 => GetGlobal {
            /// Repeated in the answer.
            call: u64,
            /// Which module.
            module: u64,
            /// Which variable.
            name: String,
        },
        /// Starts a kernel.
        22 => Launch(Launch),
        /// Answered when the stream has come so far.
        23 => StreamSync {
            /// Repeated in the answer.
            call: u64,
            /// Which.
            stream: u64,
        },
        /// Answered when all streams have come so far.
        24 => ContextSync {
            /// Repeated in the answer.
            call: u64,
        },
        /// Answered when the event's last record has come.
        25 => EventSync {
            /// Repeated in the answer.
            call: u64,
            /// Which.
            event: u64,
        },
        /// Answered at once: done, or not ready.
        26 => StreamQuery {
            /// Repeated in the answer.
            call: u64,
            /// Which.
            stream: u64,
        },
        /// Answered at once: done, or not ready.
        27 => EventQuery {
            /// Repeated in the answer.
            call: u64,
            /// Which.
            event: u64,
        },
        /// Answered by the milliseconds between them, as the bits of a float.
        28 => EventElapsed {
            /// Repeated in the answer.
            call: u64,
            /// From.
            start: u64,
            /// To.
            end: u64,
        },
        /// The stream says [`Reply::Callback`] and waits for [`Request::CallbackDone`].
        29 => HostCallback {
            /// Which stream.
            stream: u64,
            /// Repeated there.
            callback: u64,
        },
        /// The program's function has returned.
        30 => CallbackDone {
            /// Which.
            callback: u64,
        },
        /// Answered by the handle that kernels are given.
        31 => TextureCreate {
            /// Repeated in the answer.
            call: u64,
            /// What it reads.
            texture: Texture,
        },
        /// Once all streams' work so far is done.
        32 => TextureDestroy {
            /// As answered.
            handle: u64,
        },
        /// Sets an attribute of a kernel.
        33 => KernelSetAttribute {
            /// Which kernel.
            kernel: KernelRef,
            /// `CUfunction_attribute`.
            attribute: u32,
            /// Its value.
            value: i32,
        },
        /// Answered by how many blocks one multiprocessor holds.
        34 => Occupancy {
            /// Repeated in the answer.
            call: u64,
            /// Which kernel.
            kernel: KernelRef,
            /// Threads of a block.
            block: u32,
            /// Bytes of dynamic shared memory of a block.
            shared: u64,
        },
        /// Answered at once: a round trip of the session and nothing else.
        35 => Ping {
            /// Repeated in the answer.
            call: u64,
        },
        /// Frees what this session has, as its end would. Answered.
        36 => Reset {
            /// Repeated in the answer.
            call: u64,
        },
        /// Answered by the lane's bytes so far: what was sent raw, what it took, and processor time.
        37 => Usage {
            /// Repeated in the answer.
            call: u64,
        },
        /// As [`Request::Write`], of one piece: the server keeps its bytes and drops others, least recently used first.
        38 => WriteKept {
            /// Which stream.
            stream: u64,
            /// Which lane.
            lane: u32,
            /// Where.
            dst: Span,
            /// BLAKE3 of the bytes.
            hash: [u8; 32],
        },
        /// Copies a piece that the server keeps; nothing comes on a lane.
        39 => WriteHeld {
            /// Which stream.
            stream: u64,
            /// Where.
            dst: Span,
            /// As [`Request::WriteKept`] said.
            hash: [u8; 32],
        },
    }
}

messages! {
    /// From the server.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Reply {
        /// The session has begun.
        1 => Welcome(DeviceInfo),
        /// It has not.
        2 => Refused {
            /// Why, in words.
            text: String,
        },
        /// The call is answered. What `value` and `more` mean is said with the request.
        3 => Done {
            /// Which call.
            call: u64,
            /// `CUresult`.
            status: u32,
            /// The first answer.
            value: u64,
            /// The second.
            more: u64,
        },
        /// The call failed, and there is more to say than a number.
        4 => Failed {
            /// Which call.
            call: u64,
            /// `CUresult`.
            status: u32,
            /// In words.
            text: String,
        },
        /// Bytes of a [`Request::ReadInline`].
        5 => Data {
            /// Which call.
            call: u64,
            /// As many as were asked for; none where the read failed.
            bytes: Vec<u8>,
        },
        /// The module is there.
        6 => Loaded {
            /// Which call.
            call: u64,
            /// Its kernels, in the order that [`KernelRef::index`] counts.
            kernels: Vec<KernelInfo>,
        },
        /// The image is not known here: send it.
        7 => NeedImage {
            /// Which call.
            call: u64,
        },
        /// Something that was not answered went wrong. Calls that synchronise report it from now on.
        8 => Fault {
            /// `CUresult`.
            status: u32,
            /// In words.
            text: String,
        },
        /// The stream has come to this callback and waits.
        9 => Callback {
            /// Which.
            callback: u64,
        },
        /// So many [`Request::Read`]s of this lane were sent whole, since the session began. Comes before the answer of
        /// a call that synchronises with them.
        10 => Delivered {
            /// Which lane.
            lane: u32,
            /// How many.
            reads: u64,
        },
        /// Pieces of copies may be kept ([`Request::WriteKept`]). Comes right after [`Reply::Welcome`], or not at all.
        11 => Contents {
            /// Bytes of pieces that the server keeps for this session.
            bytes_max: u64,
            /// Those that it has of an earlier session of this client, first the one whose use is longest ago.
            pieces: Vec<ContentPiece>,
        },
    }
}
