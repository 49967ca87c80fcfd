//! Multifd lanes driven by anybody: what is packed unpacks to what a destination needs, and what was changed on the way
//! is unpacked or refused.
#![no_main]

use std::{sync::Arc, time::Duration};

use libfuzzer_sys::fuzz_target;
use narrows_migrate::aware::{
    FIRST_LEN, HEADER_LEN, INIT_LEN, PAGE_LEN, PAGES_AT, Packet, Receiver, Sender,
};

const LANES: usize = 3;
/// As few as are kept at all, so that some go.
const KEEP: usize = 1024;

fn init(lane: u8) -> [u8; INIT_LEN] {
    let mut init = [0; INIT_LEN];
    init[..8].copy_from_slice(&[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1]);
    init[24] = lane;
    init
}

fn first(sender: &Sender, lane: u8) -> [u8; FIRST_LEN] {
    let mut first = [0; FIRST_LEN];
    sender.first(&init(lane), &mut first);
    first
}

fn header(number: u64, sync: bool, normal: &[u8], zero: &[u8]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&init(0)[..8]);
    header[11] = sync.into();
    header[15] = 128;
    header[19] = normal.len() as u8;
    header[20..24].copy_from_slice(&((normal.len() * PAGE_LEN) as u32).to_be_bytes());
    header[24..32].copy_from_slice(&number.to_be_bytes());
    header[35] = zero.len() as u8;
    header[64] = b'r';
    for (place, page) in header[320..]
        .chunks_exact_mut(8)
        .zip(normal.iter().chain(zero))
    {
        place.copy_from_slice(&(u64::from(*page) * PAGE_LEN as u64).to_be_bytes());
    }
    header
}

fuzz_target!(|data: &[u8]| {
    let (sender, receiver) = (Arc::new(Sender::new(KEEP)), Arc::new(Receiver::new(KEEP)));
    // Slow enough for pages to be kept from the first, and copied from.
    sender.set_link(12_500_000, 1.0);
    let mut encoders: Vec<_> = (0..LANES)
        .map(|lane| sender.lane(&init(lane as u8)).expect("it is new"))
        .collect();
    let mut decoders: Vec<_> = (0..LANES)
        .map(|lane| {
            receiver
                .lane(&first(&sender, lane as u8))
                .expect("it is new")
        })
        .collect();
    let (mut damaged, mut number) = (false, 0);
    for (index, op) in data.chunks(4).enumerate() {
        let &[what, page, value, at] = op else { break };
        let lane = usize::from(what >> 4) % LANES;
        let round_over = what & 3 == 0;
        if what & 7 == 7 {
            // Whatever stands there, behind what was understood so far.
            let chunk = &data[4 * index + 4..];
            if decoders[lane].is_ready(chunk, Duration::ZERO) {
                let _ = decoders[lane].unpack(chunk);
            }
            break;
        }
        let mut header = |sync, normal: &[u8], zero: &[u8]| {
            number += 1;
            header(number - 1, sync, normal, zero)
        };
        // A SYNC goes to all lanes, as with QEMU; only then is nothing waited for.
        let turns: Vec<([u8; HEADER_LEN], usize)> = if round_over {
            (0..LANES)
                .map(|lane| (header(true, &[], &[]), lane))
                .collect()
        } else if what & 3 == 1 {
            vec![(header(false, &[page], &[page.wrapping_add(1)]), lane)]
        } else {
            vec![(header(false, &[page, page.wrapping_add(3)], &[]), lane)]
        };
        for (head, lane) in turns {
            let packet = Packet::parse(&head).expect("it is well formed");
            let mut chunk = vec![0; encoders[lane].room(&packet)];
            let pages = &mut chunk[PAGES_AT..PAGES_AT + packet.payload_len()];
            pages
                .iter_mut()
                .enumerate()
                .for_each(|(index, byte)| *byte = (index as u8).wrapping_mul(page | 1));
            if let Some(byte) = pages.get_mut(usize::from(at) * 7) {
                *byte = value;
            }
            let raw = pages.to_vec();
            let len = encoders[lane].pack(&head, &packet, &mut chunk);
            chunk.truncate(len);
            if what & 8 != 0 && op[3] != 0 {
                let at = usize::from(value) * 16 % len;
                chunk[at] ^= at as u8 | 1;
                damaged = true;
            }
            if !damaged {
                assert!(decoders[lane].is_ready(&chunk, Duration::ZERO));
            }
            match decoders[lane].unpack(&chunk) {
                Ok(unpacked) if !damaged => {
                    let arrived = Packet::parse(unpacked.header).expect("it is well formed");
                    assert_eq!((arrived.sync, arrived.zero), (packet.sync, packet.zero));
                    // Whatever pages arrive are those that were sent at their offsets.
                    let sent: Vec<_> = packet.offsets(&head).collect();
                    for (page, offset) in unpacked
                        .pages
                        .chunks_exact(PAGE_LEN)
                        .zip(arrived.offsets(unpacked.header))
                    {
                        let index = sent
                            .iter()
                            .position(|sent| *sent == offset)
                            .expect("it was sent");
                        assert_eq!(page, &raw[index * PAGE_LEN..][..PAGE_LEN]);
                    }
                }
                Ok(_) => {}
                Err(fault) => assert!(damaged, "{fault}"),
            }
        }
        if damaged && sender.counts().pages > 64 {
            break;
        }
    }
});
