//! The two machines without a socket: what a right client gets, and that a wrong one gets nothing else. And the server
//! around them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use narrows_core::{
    BlockDevice, BlockError,
    block::{Execution, Extent, Shape, Zeroing},
};
use narrows_io::{Address, Listener, Tuning};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::{
    Agreed, Config, Export, Exports, Handshake, HandshakeError, Next, Out, PIECE, Server, Step,
    Tls, Transmission,
    proto::{chunk, cmd, cmd_flag, errno, opt, rep},
    transmission::TransmissionError,
};

/// Bytes in an array; reads of [`BAD`] fail.
#[derive(Debug)]
struct Array(Mutex<Vec<u8>>);

const SIZE: usize = 1 << 20;
const BAD: usize = SIZE - 4096;

impl BlockDevice for Array {
    fn shape(&self) -> Shape {
        Shape {
            size: SIZE as u64,
            block_min: 1,
            block_preferred: 4096,
            read_only: false,
            rotational: false,
            shared: true,
            fast_zero: true,
            execution: Execution::Inline,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let offset = offset as usize;
        if offset + out.len() > BAD && offset <= BAD {
            return Err(BlockError::Io("a bad block".into()));
        }
        out.copy_from_slice(&self.0.lock()[offset..][..out.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<(), BlockError> {
        self.0.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), BlockError> {
        self.write_zeroes(offset, len, Zeroing::default(), fua)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        _how: Zeroing,
        _fua: bool,
    ) -> Result<(), BlockError> {
        self.0.lock()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        found: &mut Vec<Extent>,
    ) -> Result<(), BlockError> {
        let bytes = self.0.lock();
        let bytes = &bytes[offset as usize..][..len as usize];
        let runs = bytes.chunk_by(|a, b| (*a == 0) == (*b == 0));
        found.extend(runs.take(max).map(|run| Extent {
            len: run.len() as u64,
            hole: run[0] == 0,
            zero: run[0] == 0,
        }));
        Ok(())
    }
}

fn exports() -> Exports {
    let device = Arc::new(Array(Mutex::new(vec![0; SIZE])));
    let mut exports = Exports::default();
    for (name, read_only) in [("", false), ("frozen", true)] {
        let export = Export {
            name: name.into(),
            description: "for tests".into(),
            device: device.clone(),
            read_only,
        };
        exports.add(export).unwrap();
    }
    exports
}

pub(crate) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 0]);
    option(opt::GO, &data)
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

/// Flags, then `options`; how the last step ends, and the kinds of reply.
fn negotiate(tls: Tls, options: &[Vec<u8>]) -> Result<(Step, Vec<u32>), HandshakeError> {
    let mut out = Out::default();
    let mut handshake = Handshake::new(exports(), tls, &mut out);
    assert_eq!(out.bytes().len(), 18);
    out.clear();
    let mut input = 3_u32.to_be_bytes().to_vec();
    input.extend(options.concat());
    let (taken, step) = handshake.advance(&input, &mut out)?;
    if matches!(step, Step::More) {
        assert_eq!(taken, input.len());
    }
    let mut kinds = Vec::new();
    let mut replies = out.bytes();
    while !replies.is_empty() {
        let word = |at: usize| u32::from_be_bytes(replies[at..at + 4].try_into().unwrap());
        kinds.push(word(12));
        replies = &replies[20 + word(16) as usize..];
    }
    Ok((step, kinds))
}

#[test]
fn options_are_answered_as_the_protocol_says() {
    let structured = option(opt::STRUCTURED_REPLY, &[]);
    let set = |queries: &[&str]| option(opt::SET_META_CONTEXT, &meta("", queries));
    let cases: Vec<(Vec<Vec<u8>>, Vec<u32>)> = vec![
        (
            vec![option(opt::LIST, &[])],
            vec![rep::SERVER, rep::SERVER, rep::ACK],
        ),
        (vec![option(opt::LIST, &[1])], vec![rep::ERR_INVALID]),
        (vec![option(opt::STARTTLS, &[])], vec![rep::ERR_POLICY]),
        (vec![option(4711, &[1, 2, 3])], vec![rep::ERR_UNSUP]),
        (vec![set(&["base:allocation"])], vec![rep::ERR_INVALID]),
        (
            vec![structured.clone(), set(&["base:allocation"])],
            vec![rep::ACK, rep::META_CONTEXT, rep::ACK],
        ),
        (
            vec![structured.clone(), set(&["x:y"])],
            vec![rep::ACK, rep::ACK],
        ),
        (
            vec![
                structured.clone(),
                option(opt::LIST_META_CONTEXT, &meta("", &[])),
            ],
            vec![rep::ACK, rep::META_CONTEXT, rep::ACK],
        ),
        (
            vec![structured.clone(), option(opt::SET_META_CONTEXT, &[0, 0])],
            vec![rep::ACK, rep::ERR_INVALID],
        ),
        (vec![go("nowhere")], vec![rep::ERR_UNKNOWN]),
        (vec![option(opt::GO, &[0, 0, 0, 9])], vec![rep::ERR_INVALID]),
    ];
    for (options, want) in cases {
        let (step, kinds) = negotiate(Tls::Absent, &options).unwrap();
        assert_eq!(kinds, want, "{options:?}");
        assert!(matches!(step, Step::More), "{options:?}");
    }
}

#[test]
fn go_ends_the_handshake_and_tls_comes_first_where_required() {
    let (step, kinds) = negotiate(Tls::Absent, &[go("frozen")]).unwrap();
    assert!(matches!(
        step,
        Step::Transmit(Agreed {
            structured: false,
            allocation: false,
            ..
        })
    ));
    assert_eq!(kinds, [rep::INFO, rep::INFO, rep::ACK]);
    let (step, kinds) = negotiate(Tls::Required, &[go(""), option(opt::LIST, &[])]).unwrap();
    assert!(matches!(step, Step::More));
    assert_eq!(kinds, [rep::ERR_TLS_REQD; 2]);
    assert_eq!(
        negotiate(Tls::Required, &[option(opt::EXPORT_NAME, b"")]).unwrap_err(),
        HandshakeError::NoExport
    );
    assert!(matches!(
        negotiate(Tls::Required, &[option(opt::STARTTLS, &[])])
            .unwrap()
            .0,
        Step::StartTls
    ));
    assert!(matches!(
        negotiate(Tls::Absent, &[option(opt::ABORT, &[])])
            .unwrap()
            .0,
        Step::Close
    ));
    // A context that was selected for one export is not for another.
    let all = [
        option(opt::STRUCTURED_REPLY, &[]),
        option(opt::SET_META_CONTEXT, &meta("", &["base:allocation"])),
        go("frozen"),
    ];
    let (step, _) = negotiate(Tls::Absent, &all).unwrap();
    assert!(matches!(
        step,
        Step::Transmit(Agreed {
            structured: true,
            allocation: false,
            ..
        })
    ));
}

#[test]
fn endless_or_huge_negotiation_ends() {
    let many = vec![option(4711, &[]); 600];
    assert_eq!(
        negotiate(Tls::Absent, &many).unwrap_err(),
        HandshakeError::TooManyOptions
    );
    let mut long = option(opt::LIST, &[]);
    long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        negotiate(Tls::Absent, &[long]).unwrap_err(),
        HandshakeError::OptionTooLong(u32::MAX)
    );
    assert_eq!(
        negotiate(Tls::Absent, &[b"GET / HTTP/1.1\r\n\r\n".to_vec()]).unwrap_err(),
        HandshakeError::Protocol
    );
}

fn transmission(structured: bool, name: &str) -> Transmission {
    let export = exports().find(name).unwrap().clone();
    Transmission::new(Agreed {
        export,
        structured,
        allocation: structured,
    })
}

pub(crate) fn request(command: u16, flags: u16, offset: u64, len: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(0xc0ff_ee00_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Gives `input` in pieces that end at `cuts`, and gathers all replies.
fn talk(
    machine: &mut Transmission,
    input: &[u8],
    cuts: &[usize],
) -> Result<Vec<u8>, TransmissionError> {
    let (mut out, mut replies) = (Out::default(), Vec::new());
    let mut pending: Vec<u8> = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        pending.extend(&input[from..cut.clamp(from, input.len())]);
        from = cut.clamp(from, input.len());
        loop {
            let (taken, next) = machine.advance(&pending, &mut out)?;
            pending.drain(..taken);
            replies.extend(out.bytes());
            out.clear();
            match next {
                Next::Send => {}
                Next::Receive => break,
                Next::Close => return Ok(replies),
            }
        }
        assert!(
            pending.len() < 4096 + 28,
            "what waits is a header or part of a page"
        );
    }
    Ok(replies)
}

/// The chunks of structured replies: kind, whether last, payload.
fn chunks(mut replies: &[u8]) -> Vec<(u16, bool, Vec<u8>)> {
    let mut found = Vec::new();
    while !replies.is_empty() {
        if replies.starts_with(&0x6744_6698_u32.to_be_bytes()) {
            found.push((u16::MAX, true, replies[4..8].to_vec()));
            replies = &replies[16..];
            continue;
        }
        assert!(replies.starts_with(&0x668e_33ef_u32.to_be_bytes()));
        let half = |at: usize| u16::from_be_bytes([replies[at], replies[at + 1]]);
        let len = u32::from_be_bytes(replies[16..20].try_into().unwrap()) as usize;
        found.push((half(6), half(4) == 1, replies[20..20 + len].to_vec()));
        replies = &replies[20 + len..];
    }
    found
}

#[test]
fn what_is_written_is_read_wherever_the_bytes_are_cut() {
    let data: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8 + 1).collect();
    let mut input = request(cmd::WRITE, cmd_flag::FUA, 5000, 20_000, &data);
    input.extend(request(cmd::READ, 0, 4990, 20_020, &[]));
    let mut want = data.clone();
    want.splice(0..0, [0; 10]);
    want.extend([0; 10]);
    for step in [1, 27, 28, 29, 4095, 4096, 30_000] {
        let cuts: Vec<usize> = (step..input.len()).step_by(step).collect();
        let replies = talk(&mut transmission(false, ""), &input, &cuts).unwrap();
        assert_eq!(replies.len(), 16 + 16 + want.len());
        assert!(replies[32..] == want, "cut each {step}");
        let replies = talk(&mut transmission(true, ""), &input, &cuts).unwrap();
        let found = chunks(&replies);
        assert_eq!(found.len(), 2, "a success, and one chunk of data");
        assert!(found[1].0 == chunk::OFFSET_DATA && found[1].2[8..] == want);
    }
}

#[test]
fn a_long_read_sends_holes_instead_of_zeroes() {
    let mut machine = transmission(true, "");
    let mut input = request(cmd::WRITE, 0, 200_000, 100, &[7; 100]);
    input.extend(request(cmd::READ, 0, 0, 900_000, &[]));
    let replies = talk(&mut machine, &input, &[]).unwrap();
    assert!(replies.len() < 400_000, "{}", replies.len());
    let found = chunks(&replies);
    let mut image = vec![1; 900_000];
    for (kind, _, payload) in &found[1..] {
        let offset = u64::from_be_bytes(payload[..8].try_into().unwrap()) as usize;
        match *kind {
            chunk::OFFSET_DATA => {
                image[offset..][..payload.len() - 8].copy_from_slice(&payload[8..])
            }
            chunk::OFFSET_HOLE => {
                image[offset..][..u32::from_be_bytes(payload[8..].try_into().unwrap()) as usize]
                    .fill(0);
            }
            other => panic!("{other}"),
        }
    }
    let mut want = vec![0; 900_000];
    want[200_000..200_100].fill(7);
    assert!(image == want);
    assert_eq!(found.iter().filter(|(_, last, _)| *last).count(), 2);
    // DF forbids that, and is refused where one chunk would be too long.
    let replies = talk(
        &mut machine,
        &request(cmd::READ, cmd_flag::DF, 0, 100_000, &[]),
        &[],
    )
    .unwrap();
    assert_eq!(chunks(&replies).len(), 1);
    let replies = talk(
        &mut machine,
        &request(cmd::READ, cmd_flag::DF, 0, 900_000, &[]),
        &[],
    )
    .unwrap();
    assert_eq!(chunks(&replies)[0].2[..4], errno::OVERFLOW.to_be_bytes());
}

#[test]
fn faults_have_the_number_the_protocol_names() {
    let end = SIZE as u64;
    let cases = [
        ("", request(cmd::READ, 0, end, 1, &[]), errno::INVAL),
        ("", request(cmd::READ, 0, u64::MAX, 1, &[]), errno::INVAL),
        (
            "",
            request(cmd::READ, 0, 0, (32 << 20) + 1, &[]),
            errno::INVAL,
        ),
        (
            "",
            request(cmd::READ, cmd_flag::NO_HOLE, 0, 1, &[]),
            errno::INVAL,
        ),
        ("", request(cmd::READ, 0, BAD as u64, 10, &[]), errno::IO),
        (
            "",
            request(cmd::WRITE, 0, end - 1, 2, &[1, 2]),
            errno::NOSPC,
        ),
        (
            "",
            request(cmd::WRITE_ZEROES, 0, 0, u32::MAX, &[]),
            errno::NOSPC,
        ),
        ("", request(cmd::TRIM, 0, end, 5, &[]), errno::INVAL),
        ("", request(cmd::FLUSH, 0, 1, 0, &[]), errno::INVAL),
        ("", request(cmd::BLOCK_STATUS, 0, 0, 0, &[]), errno::INVAL),
        ("", request(99, 0, 0, 1, &[]), errno::INVAL),
        ("frozen", request(cmd::WRITE, 0, 0, 2, &[1, 2]), errno::PERM),
        ("frozen", request(cmd::TRIM, 0, 0, 2, &[]), errno::PERM),
        (
            "frozen",
            request(cmd::WRITE_ZEROES, 0, 0, 2, &[]),
            errno::PERM,
        ),
    ];
    for (name, input, want) in cases {
        // A flush behind it shows that client and server still understand each other.
        let input = [input, request(cmd::FLUSH, 0, 0, 0, &[])].concat();
        let replies = talk(&mut transmission(true, name), &input, &[]).unwrap();
        let found = chunks(&replies);
        assert_eq!(found.len(), 2, "{input:?}");
        assert_eq!(
            (found[0].0, &found[0].2[..4]),
            (chunk::ERROR, &want.to_be_bytes()[..]),
            "{input:?}"
        );
        assert_eq!(found[1].2, [0; 4]);
        let replies = talk(&mut transmission(false, name), &input, &[]).unwrap();
        assert_eq!(replies[4..8], want.to_be_bytes(), "{input:?}");
    }
}

#[test]
fn a_read_that_fails_late_says_so_or_closes() {
    let input = request(cmd::READ, 0, 0, SIZE as u32, &[]);
    let mut full = request(cmd::WRITE, 0, 0, BAD as u32, &vec![9; BAD]);
    full.extend(&input);
    let found = chunks(&talk(&mut transmission(true, ""), &full, &[]).unwrap());
    assert_eq!(found.last().unwrap().0, chunk::ERROR);
    assert!(found.len() > 5);
    assert!(matches!(
        talk(&mut transmission(false, ""), &full, &[]),
        Err(TransmissionError::CutShort(_))
    ));
}

// Goal: whoever closes after a read that failed late sends no byte in place of those that could not be read: the client
// would take them for data, and after the last one the read for whole.
#[test]
fn a_read_that_is_cut_short_leaves_nothing_to_send_behind_its_good_part() {
    let mut machine = transmission(false, "");
    let mut out = Out::default();
    let offset = BAD - PIECE;
    let mut input = request(cmd::READ, 0, offset as u64, (SIZE - offset) as u32, &[]);
    let (taken, next) = machine.advance(&input, &mut out).unwrap();
    assert_eq!((next, out.bytes().len()), (Next::Send, 16 + PIECE));
    input.drain(..taken);
    out.clear();
    assert!(matches!(
        machine.advance(&input, &mut out),
        Err(TransmissionError::CutShort(_))
    ));
    assert_eq!(out.bytes().len(), 0);
}

#[test]
fn block_status_tells_runs_and_one_where_one_is_asked_for() {
    let mut machine = transmission(true, "");
    let mut input = request(cmd::WRITE, 0, 8192, 4096, &[1; 4096]);
    input.extend(request(cmd::BLOCK_STATUS, 0, 0, 65_536, &[]));
    input.extend(request(
        cmd::BLOCK_STATUS,
        cmd_flag::REQ_ONE,
        0,
        65_536,
        &[],
    ));
    let found = chunks(&talk(&mut machine, &input, &[]).unwrap());
    let words = |payload: &[u8]| -> Vec<u32> {
        payload
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_be_bytes(*word))
            .collect()
    };
    assert_eq!(
        words(&found[1].2),
        [1, 8192, 3, 4096, 0, 65_536 - 12_288, 3]
    );
    assert_eq!(words(&found[2].2), [1, 8192, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any bytes, any cuts: an error or replies, never a panic, never more waiting than a page.
    #[test]
    fn garbage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), structured: bool) {
        let _ = talk(&mut transmission(structured, ""), &bytes, &[]);
        let mut out = Out::default();
        let mut handshake = Handshake::new(exports(), Tls::Offered, &mut out);
        let _ = handshake.advance(&bytes, &mut out);
    }

    /// Well-formed headers with any field, so that more is reached than the check of the magic number.
    #[test]
    fn any_request_is_answered(
        requests in prop::collection::vec((0..9_u16, 0..32_u16, any::<u64>(), any::<u32>(), any::<bool>()), 1..20),
        structured: bool,
    ) {
        let mut machine = transmission(structured, "");
        let mut input = Vec::new();
        for (command, flags, offset, len, near) in requests {
            let (offset, len) = if near { (offset % (2 * SIZE as u64), len % 70_000) } else { (offset, len) };
            let len = if command == cmd::WRITE { len % 70_000 } else { len };
            let payload = if command == cmd::WRITE { vec![3; len as usize] } else { Vec::new() };
            input.extend(request(command, flags, offset, len, &payload));
            if command == cmd::DISC {
                break;
            }
        }
        let cuts: Vec<usize> = (0..input.len()).step_by(977).collect();
        match talk(&mut machine, &input, &cuts) {
            Ok(replies) if structured => { chunks(&replies); }
            Ok(_) | Err(TransmissionError::CutShort(_)) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

// Goal: a device with a fault of the kind that no answer tells costs its connection, and no place for others. Method:
// one that has none of the bytes it says it has, and panics where they are read.
#[test]
fn a_device_that_panics_costs_its_connection_and_no_place_for_others() {
    let mut exports = Exports::default();
    let device = Arc::new(Array(Mutex::new(Vec::new())));
    exports
        .add(Export {
            name: String::new(),
            description: String::new(),
            device,
            read_only: false,
        })
        .unwrap();
    let listener = Listener::bind(
        &Address::parse("127.0.0.1:0", 0).unwrap(),
        &Tuning::default(),
    )
    .unwrap();
    let config = Config {
        exports,
        tls_certificates: None,
        insecure: false,
        allow: Vec::new(),
        connections_max: 1,
    };
    let server = Server::start(vec![listener], config).unwrap();
    let words = [
        &3_u32.to_be_bytes()[..],
        &option(opt::EXPORT_NAME, &[]),
        &request(cmd::READ, 0, 0, 512, &[]),
    ]
    .concat();
    for round in 0..2 {
        let mut client = TcpStream::connect(server.addresses()[0].resolve().unwrap()[0]).unwrap();
        client.write_all(&words).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert_eq!(
            answer.len(),
            18 + 10,
            "round {round}: greeting and export, and no reply"
        );
        let begun = Instant::now();
        while server.connections() > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "round {round}: the place is taken for good"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}
