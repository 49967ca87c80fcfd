//! Clients that break every rule: each is refused or told, and the next one is served.

use std::{
    io::Write,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::Duration,
};

use narrows::{
    Acceptor, Auth, ChannelReader, ChannelWriter, Connector, Endpoint, Engine, SessionListener,
    Settings, SettingsBuilder,
};
use narrows_gpu_server::{
    Backend, Freed, Server, ServerOptions,
    host::{Host, Options},
    images::hash_of,
    settings,
};
use narrows_gpu_wire::{
    Frames, Image, KernelRef, LANE_SERVICE, Launch, Reply, Request, SERVICE, Span, Texture,
};

/// Nothing here takes longer unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

struct Rig {
    server: Arc<Server>,
    address: String,
    ended: mpsc::Receiver<Result<Freed, narrows::Error>>,
}

impl Rig {
    fn new() -> Self {
        Self::with(ServerOptions::default())
    }

    fn with(limits: ServerOptions) -> Self {
        let mut options = Options::default();
        (options.memory, options.budget) = (8 << 20, 10_000_000);
        let host = Host::start(options).unwrap();
        let server = Server::new(Backend::Host(host), limits).unwrap();
        let acceptor = Acceptor::new(Engine::new(1), settings(Settings::default()));
        let address = narrows::parse("127.0.0.1:0").unwrap();
        let listener = SessionListener::start(&address, Auth::None, acceptor).unwrap();
        let (address, (told, ended)) = (listener.local().to_string(), mpsc::channel());
        let serves = server.clone();
        thread::spawn(move || {
            for endpoint in listener.sessions() {
                let (server, told) = (serves.clone(), told.clone());
                thread::spawn(move || told.send(server.attend(&endpoint)));
            }
        });
        Self {
            server,
            address,
            ended,
        }
    }

    /// A client whose hello is on its way.
    fn stranger(&self) -> Client {
        let mut base = Settings::default();
        base.limits.channels_max = 65;
        let base = SettingsBuilder::from(base)
            .resume_within(Duration::ZERO)
            .build();
        let connector = Connector::new(&self.address, Auth::None).unwrap();
        let endpoint = connector.connect(&Engine::new(1), base).unwrap();
        let (writer, reader) = endpoint.open(SERVICE).unwrap();
        let mut client = Client {
            endpoint,
            writer,
            reader,
            frames: Frames::default(),
            call: 100,
        };
        client.send(&Request::Hello {
            header_version: 13_000,
            program: "\u{1b}[31mtest".into(),
        });
        client
    }

    fn client(&self) -> Client {
        let mut client = self.stranger();
        assert!(matches!(client.hear(), Reply::Welcome(_)));
        assert!(matches!(client.hear(), Reply::Contents { .. }));
        client
    }

    /// What the next session that ends has freed.
    fn freed(&self) -> Freed {
        self.ended
            .recv_timeout(DEADLINE)
            .unwrap()
            .unwrap_or_default()
    }
}

struct Client {
    endpoint: Endpoint,
    writer: ChannelWriter,
    reader: ChannelReader,
    frames: Frames,
    call: u64,
}

impl Client {
    fn send(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        request.put(&mut bytes);
        self.raw(&bytes);
    }

    fn raw(&mut self, bytes: &[u8]) {
        let _ = self
            .writer
            .write_all(bytes)
            .and_then(|()| self.writer.flush());
    }

    fn hear(&mut self) -> Reply {
        self.try_hear().expect("the session goes on")
    }

    fn try_hear(&mut self) -> Option<Reply> {
        loop {
            if let Some(body) = self.frames.next_frame().unwrap() {
                return Some(Reply::parse(&body).unwrap());
            }
            let bytes = self.reader.next_chunk().ok()??;
            self.frames.push(bytes);
        }
    }

    /// A call's answer, past whatever was told before it.
    fn ask(&mut self, make: impl FnOnce(u64) -> Request) -> Reply {
        self.call += 1;
        self.send(&make(self.call));
        loop {
            match self.hear() {
                Reply::Fault { .. } | Reply::Delivered { .. } => {}
                reply => return reply,
            }
        }
    }

    fn fault(&mut self) -> u32 {
        match self.hear() {
            Reply::Fault { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    fn alloc(&mut self, len: u64) -> Option<u64> {
        match self.ask(|call| Request::Alloc { call, len }) {
            Reply::Done { value, .. } => Some(value),
            _ => None,
        }
    }

    fn answers(&mut self) -> bool {
        matches!(
            self.ask(|call| Request::Ping { call }),
            Reply::Done { status: 0, .. }
        )
    }

    /// Ends the session well.
    fn leave(self) {
        self.endpoint.close();
    }
}

fn image(text: &str) -> Image {
    Image {
        hash: hash_of(text.as_bytes()),
        len: text.len() as u64,
        bytes: text.into(),
    }
}

const KERNEL: KernelRef = KernelRef {
    module: 50,
    index: 0,
};

fn launch() -> Launch {
    Launch {
        stream: 0,
        kernel: KERNEL,
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        cooperative: false,
        params: vec![],
    }
}

// Goal: what a message names that is not there is a fault in words, and no more. Method: one message of each kind.
#[allow(clippy::too_many_lines, reason = "a list of cases")]
#[test]
fn handles_and_addresses_that_are_not_there_are_faults() {
    let rig = Rig::new();
    let mut client = rig.client();
    let far = Span::linear(u64::MAX - 10, 100);
    let (stream, few) = (0, Span::linear(0, 8));
    let bad = [
        Request::StreamDestroy { id: 77 },
        Request::StreamCreate {
            id: 3,
            flags: 0,
            priority: 0,
        },
        Request::EventRecord { event: 1, stream },
        Request::StreamWaitEvent {
            stream: 5,
            event: 1,
        },
        Request::Free { address: 4096 },
        Request::FreeAsync {
            address: 4096,
            stream: 9,
        },
        Request::Memset {
            stream,
            dst: far,
            element: 1,
            value: 0,
        },
        Request::Memset {
            stream,
            dst: Span::linear(0, 9),
            element: 3,
            value: 0,
        },
        Request::CopyDevice {
            stream,
            dst: few,
            src: Span::linear(0, 9),
        },
        Request::WriteInline {
            stream,
            dst: few,
            bytes: vec![0; 9],
        },
        Request::ModuleUnload { id: 99 },
        Request::Launch(launch()),
        Request::Launch(Launch {
            params: vec![0; 40_000],
            ..launch()
        }),
        Request::CallbackDone { callback: 5 },
        Request::TextureDestroy { handle: 5 },
        Request::KernelSetAttribute {
            kernel: KERNEL,
            attribute: 8,
            value: -1,
        },
        Request::Read {
            stream,
            lane: 0,
            src: far,
        },
    ];
    for request in bad {
        client.send(&request);
        assert!(client.fault() > 0, "{request:?}");
    }
    let refused = |reply: Reply| matches!(reply, Reply::Failed { .. });
    assert_eq!((client.alloc(u64::MAX), client.alloc(0)), (None, None));
    assert!(refused(client.ask(|call| Request::GetGlobal {
        call,
        module: 4,
        name: "x".into()
    })));
    assert!(refused(client.ask(|call| Request::EventElapsed {
        call,
        start: 1,
        end: 2
    })));
    assert!(refused(
        client.ask(|call| Request::StreamSync { call, stream: 9 })
    ));
    let occupancy = |call| Request::Occupancy {
        call,
        kernel: KERNEL,
        block: 1,
        shared: 0,
    };
    assert!(refused(client.ask(occupancy)));
    let texture = Texture {
        base: 1,
        format: 99,
        channels: 3,
        width: u64::MAX,
        height: 0,
        pitch: 0,
        address_mode: [9; 3],
        filter: 7,
        flags: u32::MAX,
    };
    assert!(refused(
        client.ask(|call| Request::TextureCreate { call, texture })
    ));
    assert!(client.answers());
    client.leave();
    rig.freed();
}

// Goal: nothing of one client is another's. Method: read what another has, and what lies beside it.
#[test]
fn memory_of_others_is_out_of_reach() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.client(), rig.client());
    let base = one.alloc(4096).unwrap();
    let dst = Span::linear(base, 4096);
    one.send(&Request::Memset {
        stream: 0,
        dst,
        element: 1,
        value: 7,
    });
    let read = |client: &mut Client, address| {
        let src = Span::linear(address, 16);
        match client.ask(|call| Request::ReadInline {
            stream: 0,
            call,
            src,
        }) {
            Reply::Data { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        }
    };
    for address in [base, base - 1, base + 4096] {
        assert_eq!(read(&mut two, address), [0; 0]);
    }
    assert_eq!(read(&mut one, base), [7; 16]);
    two.leave();
    assert_eq!(rig.freed().allocations, 0);
    one.leave();
    assert_eq!(
        (
            rig.freed().allocations,
            rig.client().alloc(8 << 20).is_some()
        ),
        (1, true)
    );
}

// Goal: bounds on what a session has. Method: more streams than there may be, ids that are taken, images of garbage.
#[test]
fn a_session_has_no_more_than_it_may() {
    let rig = Rig::new();
    let mut client = rig.client();
    for id in 100..100 + 1024 {
        client.send(&Request::StreamCreate {
            id,
            flags: 1,
            priority: 0,
        });
    }
    client.send(&Request::StreamCreate {
        id: 50,
        flags: 1,
        priority: 0,
    });
    assert_eq!(client.fault(), 2);
    client.send(&Request::StreamDestroy { id: 100 });
    client.send(&Request::StreamCreate {
        id: 101,
        flags: 1,
        priority: 0,
    });
    assert_eq!(client.fault(), 1, "an id that is taken");
    for garbage in ["", "\0\0", ".version 1.0\n{{{{", &".visible ".repeat(2000)] {
        let image = image(garbage);
        let reply = client.ask(|call| Request::ModuleLoad {
            call,
            id: 5000,
            image,
        });
        assert!(!matches!(reply, Reply::Loaded { .. }), "{garbage:?}");
    }
    let mut absent = image(".version 7.0\n.target sm_50\n.address_size 64\n");
    absent.bytes.clear();
    let reply = client.ask(|call| Request::ModuleLoad {
        call,
        id: 5000,
        image: absent,
    });
    assert!(matches!(reply, Reply::NeedImage { .. }));
    client.leave();
    assert_eq!(rig.freed().streams, 1023);
}

// Goal: bytes that are no messages end the session in words, and only that one. Method: garbage of several kinds, each
// on a session of its own, beside one that goes on.
#[test]
fn garbage_ends_its_own_session_only() {
    let rig = Rig::new();
    let mut good = rig.client();
    for garbage in [&[255; 8][..], &[1, 0, 0, 0, 200], &[2, 0, 0, 0, 3, 1]] {
        let mut bad = rig.client();
        bad.raw(garbage);
        while bad.try_hear().is_some() {}
        let ended = bad.endpoint.ended().expect("it has").to_string();
        assert!(ended.contains("refused from the client"), "{ended}");
        drop(bad);
        rig.ended.recv_timeout(DEADLINE).unwrap().unwrap_err();
    }
    assert!(good.answers());
}

// Goal: a copy whose bytes never come holds up nobody, and ends with its client. Method: announce one, send a part, go.
#[test]
fn a_copy_that_never_comes_ends_with_its_client() {
    let rig = Rig::new();
    let mut client = rig.client();
    let base = client.alloc(1 << 20).unwrap();
    let (mut lane, _reader) = client.endpoint.open(&format!("{LANE_SERVICE}0")).unwrap();
    let dst = Span::linear(base, 1 << 20);
    client.send(&Request::Write {
        stream: 0,
        lane: 0,
        dst,
    });
    lane.write_all(&[1; 1000])
        .and_then(|()| lane.flush())
        .unwrap();
    assert!(client.answers());
    client.send(&Request::StreamSync { call: 9, stream: 0 });
    thread::sleep(Duration::from_millis(100));
    client.leave();
    let freed = rig.ended.recv_timeout(DEADLINE).unwrap();
    assert!(freed.is_err() || freed.is_ok_and(|freed| freed.allocations == 1));
    assert!(
        rig.client().alloc(8 << 20).is_some(),
        "all of the memory is free"
    );
}

/// A client with memory, a lane, and a piece that it says it sends on it.
fn sends_piece(rig: &Rig, claimed: &[u8], sent: &[u8]) -> (Client, ChannelWriter, Span, [u8; 32]) {
    let mut client = rig.client();
    let dst = Span::linear(client.alloc(1 << 20).unwrap(), claimed.len() as u64);
    let (mut lane, reader) = client.endpoint.open(&format!("{LANE_SERVICE}0")).unwrap();
    // Kept open: what comes back on a lane is nothing here.
    std::mem::forget(reader);
    let hash = *blake3::hash(claimed).as_bytes();
    client.send(&Request::WriteKept {
        stream: 0,
        lane: 0,
        dst,
        hash,
    });
    lane.write_all(sent).and_then(|()| lane.flush()).unwrap();
    (client, lane, dst, hash)
}

fn held(dst: Span, hash: [u8; 32]) -> Request {
    Request::WriteHeld {
        stream: 0,
        dst,
        hash,
    }
}

// Goal: a piece is what its hash says, is its session's only, and is named only while it is kept. Method: clients that
// lie about a hash, name what they never sent or others sent, send a piece twice, and lengths that no piece has.
#[test]
fn pieces_are_what_their_hash_says_and_their_sessions_own() {
    let rig = Rig::new();
    let (right, wrong) = (vec![1; 128 << 10], vec![2; 128 << 10]);
    let synced = |client: &mut Client| match client.ask(|call| Request::ContextSync { call }) {
        Reply::Done { .. } => String::new(),
        Reply::Failed { text, .. } => text,
        other => panic!("{other:?}"),
    };
    let (mut liar, _lane, dst, hash) = sends_piece(&rig, &right, &wrong);
    let told = synced(&mut liar);
    assert!(told.contains("not what its hash says"), "{told}");
    liar.send(&held(dst, hash));
    assert!(synced(&mut liar).contains("hash"), "nothing of it is there");
    // It begins anew, and so does its list.
    liar.ask(|call| Request::Reset { call });
    liar.send(&held(dst, hash));
    assert_eq!(liar.fault(), 1);

    let (mut good, lane, dst, hash) = sends_piece(&rig, &right, &right);
    assert_eq!(synced(&mut good), "");
    good.send(&held(dst, hash));
    assert_eq!(synced(&mut good), "");
    let src = Span::linear(dst.base, 16);
    let back = good.ask(|call| Request::ReadInline {
        stream: 0,
        call,
        src,
    });
    assert!(matches!(back, Reply::Data { bytes, .. } if bytes == [1; 16]));
    let mut other = rig.client();
    let own = other.alloc(1 << 20).unwrap();
    other.send(&held(Span::linear(own, 128 << 10), hash));
    assert_eq!(other.fault(), 1, "of another session");
    let kept = |len, hash| Request::WriteKept {
        stream: 0,
        lane: 0,
        dst: Span::linear(dst.base, len),
        hash,
    };
    for bad in [
        held(Span::linear(dst.base, 64 << 10), hash),
        held(dst, [9; 32]),
        kept(128 << 10, hash),
        kept(1000, [9; 32]),
        kept(2 << 20, [9; 32]),
        kept(u64::MAX, [9; 32]),
    ] {
        good.send(&bad);
        assert_eq!(good.fault(), 1, "{bad:?}");
    }
    drop(lane);
    other.leave();
    good.leave();
    rig.freed();
    rig.freed();
    assert_eq!(
        rig.server.counters().contents_saved.load(Relaxed),
        128 << 10
    );
}

// Goal: what is named before its bytes have come is an error, not a wait. Method: another stream names it.
#[test]
fn a_piece_that_has_not_come_is_an_error_not_a_wait() {
    let rig = Rig::new();
    let bytes = vec![1; 128 << 10];
    let (mut client, _lane, dst, hash) = sends_piece(&rig, &bytes, &bytes[..1000]);
    client.send(&Request::StreamCreate {
        id: 40,
        flags: 1,
        priority: 0,
    });
    client.send(&Request::WriteHeld {
        stream: 40,
        dst,
        hash,
    });
    assert_eq!(client.fault(), 999);
    assert!(client.answers());
    client.leave();
    let _ = rig.ended.recv_timeout(DEADLINE).unwrap();
}

// Goal: kernels do not keep the server busy for ever. Method: one that never ends, with its client and without.
#[test]
fn an_endless_kernel_ends_with_its_budget_and_with_its_client() {
    let text = ".version 6.3\n.target sm_50\n.address_size 64\n\
                .visible .entry endless()\n{\nAGAIN:\n bra AGAIN;\n}\n";
    let rig = Rig::new();
    for stays in [true, false] {
        let mut client = rig.client();
        let image = image(text);
        let loaded = client.ask(|call| Request::ModuleLoad {
            call,
            id: KERNEL.module,
            image,
        });
        assert!(matches!(loaded, Reply::Loaded { .. }), "{loaded:?}");
        client.send(&Request::Launch(launch()));
        if stays {
            assert_eq!(client.fault(), 702);
            let synced = client.ask(|call| Request::ContextSync { call });
            assert!(
                matches!(synced, Reply::Failed { status: 702, .. }),
                "{synced:?}"
            );
            // A program that has let go of everything begins anew.
            let renewed = client.ask(|call| Request::Reset { call });
            assert!(matches!(renewed, Reply::Done { status: 0, .. }));
            let synced = client.ask(|call| Request::ContextSync { call });
            assert!(matches!(synced, Reply::Done { status: 0, .. }));
        }
        client.leave();
        rig.freed();
    }
}

#[test]
fn more_clients_than_allowed_are_refused_in_words() {
    let mut limits = ServerOptions::default();
    limits.clients_max = 1;
    let rig = Rig::with(limits);
    let _first = rig.client();
    let reply = rig.stranger().hear();
    assert!(matches!(reply, Reply::Refused { text } if text.contains("1 clients")));
}
