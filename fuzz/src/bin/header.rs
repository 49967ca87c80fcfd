//! Frame headers from anybody: parsed or refused, and what is parsed has one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::{ChannelId, Limits, Seq, limits};
use narrows_format::Header;

fuzz_target!(|data: &[u8]| {
    let Some((next, bytes)) = data.split_first_chunk::<4>() else {
        return;
    };
    let next = Seq(u32::from_le_bytes(*next).into());
    let allowed = Limits {
        chunk_len_max: limits::CHUNK_LEN_MAX,
        history_len_max: limits::HISTORY_LEN_MAX,
        ..Limits::default()
    };
    check(bytes, &allowed, next);
    // Random bytes hardly ever carry the right check: give them one, as a hostile peer would.
    if let Some((fields, payload)) = bytes.split_first_chunk::<20>() {
        let u32_at =
            |at: usize| u32::from_le_bytes(fields[at..at + 4].try_into().expect("four bytes"));
        let raw_len = u32_at(3) % (limits::CHUNK_LEN_MAX as u32) + 1;
        let header = Header {
            codec: narrows_core::CodecId(fields[0]),
            channel: ChannelId(u16::from_le_bytes([fields[1], fields[2]])),
            seq: next,
            raw_len,
            packed_len: u32_at(7) % narrows_format::packed_len_max(raw_len) + 1,
            history_len: u32_at(11),
            check: u32_at(15),
        };
        let mut made = header.to_bytes()[..header.len()].to_vec();
        made.extend_from_slice(payload);
        check(&made, &allowed, next);
    }
});

fn check(bytes: &[u8], allowed: &Limits, next: Seq) {
    if let Ok(header) = Header::parse(bytes, allowed, |_| Some(next)) {
        assert_eq!(header.to_bytes()[..header.len()], bytes[..header.len()]);
        assert!(header.raw_len as usize <= allowed.chunk_len_max);
        assert!(header.history_len as usize <= allowed.history_len_max);
        assert!(header.packed_len <= narrows_format::packed_len_max(header.raw_len));
    }
}
