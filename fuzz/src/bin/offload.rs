//! What an offload server or client is told by anybody, and packed files of any make: parsed or refused, in bounded
//! memory.
#![no_main]

use std::{
    io::Cursor,
    sync::{Arc, OnceLock},
};

use libfuzzer_sys::fuzz_target;
use narrows::{Buf, Engine};
use narrows_core::Workspace;
use narrows_offload::{
    BLOCK_LEN_MAX, container,
    message::{Answer, Question, Reply, Request, Summary, parse_document, printable},
};

static ENGINE: OnceLock<Engine> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let engine = ENGINE.get_or_init(|| Engine::new(1));
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        if let Ok(Reply::Refused { text }) = parse_document(data) {
            assert!(printable(&text).chars().all(|c| !c.is_control()));
        }
        let _ = parse_document::<Request>(data);
        let _ = parse_document::<Summary>(data);
        if let Some(question) = Question::parse(data) {
            assert_eq!(question.bytes.len() + Question::HEAD_LEN, data.len());
        }
        if let Some(answer) = Answer::parse(Arc::new(Buf::from_vec(data.to_vec()))) {
            assert_eq!(answer.bytes().len() + Answer::HEAD_LEN, data.len());
            let _ = answer.summary();
        }
        return;
    }
    let Ok((method, mut pieces)) = container::pieces(Cursor::new(data.to_vec())) else {
        return;
    };
    let unpacker = method
        .checker(&engine.registry)
        .expect("the plain backend has all methods");
    let mut ws = Workspace::default();
    while let Ok(Some(piece)) = pieces.next(engine) {
        assert!(
            piece.raw_len as usize <= BLOCK_LEN_MAX
                && piece.bytes.len() <= data.len() + Question::HEAD_LEN
        );
        let mut raw = vec![0; piece.raw_len as usize];
        let _ =
            piece.stored || unpacker.unpack(&piece.bytes[Question::HEAD_LEN..], &mut raw, &mut ws);
    }
});
