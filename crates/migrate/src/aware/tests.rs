//! A guest that runs while it moves, on several lanes at once, and what arrives.

mod waits;

use std::{collections::HashMap, sync::Arc, time::Duration};

use proptest::prelude::*;

use super::{
    packet::made::{header, init},
    *,
};

const BLOCK: &str = "pc.ram";
const PAGES: u64 = 192;
/// More than are sent.
const KEEP: usize = 4096;
/// Fewer: some go.
const FEW: usize = 1024;

/// What a lane's first chunk says.
fn first(lane: u8) -> [u8; FIRST_LEN] {
    first_of(lane, KEEP)
}

fn first_of(lane: u8, keep: usize) -> [u8; FIRST_LEN] {
    let mut out = [0; FIRST_LEN];
    Sender::new(keep).first(&init(lane), &mut out);
    out
}

/// Splits off the next of a row of random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What one lane sends in a round: packets, the last with SYNC.
type Round = Vec<([u8; HEADER_LEN], Vec<u8>)>;

struct Guest {
    ram: Vec<Page>,
    number: u64,
}

impl Guest {
    fn new(dice: &mut Dice) -> Self {
        let mut guest = Self {
            ram: vec![[0; PAGE_LEN]; PAGES as usize],
            number: 0,
        };
        for page in 0..PAGES {
            if dice.roll(4) > 0 {
                guest.fill(page, dice);
            }
        }
        guest
    }

    fn fill(&mut self, page: u64, dice: &mut Dice) {
        self.ram[page as usize].fill_with(|| dice.roll(256) as u8);
    }

    /// What the guest does between two rounds; returns the pages it touched.
    fn live(&mut self, dice: &mut Dice) -> Vec<u64> {
        let mut touched: Vec<u64> = (0..PAGES).filter(|_| dice.roll(3) == 0).collect();
        for &page in &touched {
            match dice.roll(6) {
                // Touched and the same as before.
                0 => {}
                // Bytes move within the page, or come from another.
                other @ 4..6 => {
                    let source = if other == 4 { page } else { dice.roll(PAGES) };
                    let (from, to) = (dice.roll(2000) as usize, dice.roll(2000) as usize);
                    let moved = self.ram[source as usize][from..from + 1500].to_vec();
                    self.ram[page as usize][to..to + 1500].copy_from_slice(&moved);
                }
                1 => self.fill(page, dice),
                2 => self.ram[page as usize] = [0; PAGE_LEN],
                _ => {
                    for _ in 0..1 + dice.roll(20) {
                        self.ram[page as usize][dice.roll(PAGE_LEN as u64) as usize] ^=
                            dice.roll(256) as u8;
                    }
                }
            }
        }
        touched.sort_unstable();
        touched
    }

    /// Sends `pages` over `lanes` in one round.
    fn round(&mut self, pages: &[u64], lanes: usize, dice: &mut Dice) -> Vec<Round> {
        let mut rounds: Vec<Round> = vec![Vec::new(); lanes];
        for some in pages.chunks(1 + dice.roll(20) as usize) {
            let is_zero = |page: &&u64| self.ram[**page as usize] == [0; PAGE_LEN];
            let (zero, normal): (Vec<u64>, Vec<u64>) = some.iter().partition(is_zero);
            let offsets = |pages: &[u64]| {
                pages
                    .iter()
                    .map(|page| page * PAGE_LEN as u64)
                    .collect::<Vec<_>>()
            };
            let bytes = normal
                .iter()
                .flat_map(|page| self.ram[*page as usize])
                .collect();
            let lane = dice.roll(lanes as u64) as usize;
            rounds[lane].push((
                header(
                    false,
                    self.next_number(),
                    BLOCK,
                    &offsets(&normal),
                    &offsets(&zero),
                ),
                bytes,
            ));
        }
        for round in &mut rounds {
            round.push((
                header(true, self.next_number(), BLOCK, &[], &[]),
                Vec::new(),
            ));
        }
        rounds
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number - 1
    }
}

/// The destination's QEMU: its channels wait for one another at each SYNC.
struct Arrived {
    /// By lane and round.
    lanes: Vec<Vec<Vec<Taken>>>,
}

type Taken = (Packet, [u8; HEADER_LEN], Vec<u8>);

impl Arrived {
    fn new(lanes: usize) -> Self {
        Self {
            lanes: vec![vec![Vec::new()]; lanes],
        }
    }

    fn take(&mut self, lane: usize, unpacked: &Unpacked<'_>) {
        let packet = Packet::parse(unpacked.header).unwrap();
        let rounds = &mut self.lanes[lane];
        rounds
            .last_mut()
            .unwrap()
            .push((packet, *unpacked.header, unpacked.pages.to_vec()));
        if packet.sync {
            rounds.push(Vec::new());
        }
    }

    fn ram(&self) -> HashMap<u64, Page> {
        let mut ram = HashMap::new();
        let rounds = self.lanes.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            for (packet, header, pages) in self
                .lanes
                .iter()
                .filter_map(|lane| lane.get(round))
                .flatten()
            {
                for (index, offset) in packet.offsets(header).enumerate() {
                    let page = pages
                        .chunks_exact(PAGE_LEN)
                        .nth(index)
                        .map_or([0; PAGE_LEN], |page| page.try_into().unwrap());
                    ram.insert(offset / PAGE_LEN as u64, page);
                }
            }
        }
        ram
    }
}

fn encode(encoder: &mut Encoder, head: &[u8; HEADER_LEN], pages: &[u8]) -> Vec<u8> {
    let packet = Packet::parse(head).unwrap();
    let mut chunk = vec![0; encoder.room(&packet)];
    chunk[PAGES_AT..PAGES_AT + pages.len()].copy_from_slice(pages);
    let len = encoder.pack(head, &packet, &mut chunk);
    chunk.truncate(len);
    chunk
}

struct Moved {
    counts: Counts,
    sent: usize,
}

/// Moves a guest in `rounds` over `lanes`, threads taking turns at random on both sides, and holds what arrives against
/// it.
fn migrate(seed: u64, lanes: usize, rounds: usize, keep: usize) -> Moved {
    let mut dice = Dice(seed);
    let mut guest = Guest::new(&mut dice);
    let sender = Arc::new(Sender::with_patience(keep, Duration::ZERO));
    sender.set_link(12_500_000, 1.0);
    let receiver = Arc::new(Receiver::new(keep));
    // A lane comes when its thread gets a turn: QEMU has connected all before its first packet, but on a busy machine
    // others are rounds ahead.
    let mut encoders: Vec<Option<Encoder>> = (0..lanes).map(|_| None).collect();
    let mut decoders: Vec<Option<Decoder>> = (0..lanes).map(|_| None).collect();
    let mut arrived = Arrived::new(lanes);
    let mut to_encode: Vec<Round> = vec![Vec::new(); lanes];
    let mut under_way: Vec<Vec<Vec<u8>>> = vec![Vec::new(); lanes];
    let mut sent = 0;
    for round in 0..=rounds {
        // The first SYNC comes before any page, as with QEMU.
        let pages = if round == 0 {
            Vec::new()
        } else if round == 1 {
            (0..PAGES).collect()
        } else {
            guest.live(&mut dice)
        };
        for (lane, more) in guest
            .round(&pages, lanes, &mut dice)
            .into_iter()
            .enumerate()
        {
            to_encode[lane].extend(more);
        }
        // Some of it now, the rest when there is more: lanes run ahead of one another, even by rounds.
        let turns = if round == rounds {
            usize::MAX
        } else {
            dice.roll(40) as usize
        };
        for _ in 0..turns {
            let lane = dice.roll(lanes as u64) as usize;
            if dice.roll(2) == 0 && !to_encode[lane].is_empty() {
                let (head, bytes) = to_encode[lane].remove(0);
                let encoder =
                    encoders[lane].get_or_insert_with(|| sender.lane(&init(lane as u8)).unwrap());
                let chunk = encode(encoder, &head, &bytes);
                sent += chunk.len();
                under_way[lane].push(chunk);
            } else if !under_way[lane].is_empty() {
                let decoder = decoders[lane]
                    .get_or_insert_with(|| receiver.lane(&first_of(lane as u8, keep)).unwrap());
                if decoder.is_ready(&under_way[lane][0], Duration::ZERO) {
                    let chunk = under_way[lane].remove(0);
                    arrived.take(lane, &decoder.unpack(&chunk).unwrap());
                }
            }
            if to_encode.iter().all(Vec::is_empty) && under_way.iter().all(Vec::is_empty) {
                break;
            }
        }
    }
    let ram = arrived.ram();
    for page in 0..PAGES {
        assert!(
            ram[&page] == guest.ram[page as usize],
            "page {page} differs, seed {seed}, {lanes} lanes"
        );
    }
    Moved {
        counts: sender.counts(),
        sent,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_guest_arrives_whatever_the_order(seed in any::<u64>(), lanes in 1_usize..6, rounds in 1_usize..20, keep in prop::sample::select(vec![0, FEW, FEW + 77, KEEP])) {
        migrate(seed, lanes, rounds, keep);
    }

    #[test]
    fn headers_come_back_as_they_were(fields in prop::collection::vec(any::<u8>(), HEADER_LEN), before in prop::collection::vec(any::<u8>(), HEADER_LEN)) {
        let (header, before): ([u8; HEADER_LEN], [u8; HEADER_LEN]) = (fields.try_into().unwrap(), before.try_into().unwrap());
        let mut packed = Vec::new();
        packet::write_header(&header, &before, &mut packed);
        prop_assert!(packed.len() <= sparse::len_max(HEADER_LEN));
        prop_assert_eq!(packet::read_header(&packed, &before), Some(header));
    }

    #[test]
    fn any_chunk_is_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0_usize..400, flip in any::<u8>()) {
        let receiver = Arc::new(Receiver::new(KEEP));
        let mut decoder = receiver.lane(&first(0)).unwrap();
        let _ = decoder.is_ready(&bytes, Duration::ZERO);
        let _ = decoder.unpack(&bytes);
        let sender = Arc::new(Sender::with_patience(KEEP, Duration::ZERO));
        let mut chunk = encode(&mut sender.lane(&init(0)).unwrap(), &header(false, 1, BLOCK, &[0, 4096], &[8192]), &[3; 2 * PAGE_LEN]);
        let at = at.min(chunk.len() - 1);
        chunk[at] ^= flip;
        let _ = decoder.unpack(&chunk);
        let _ = decoder.unpack(&chunk[..at]);
    }
}

#[test]
fn what_is_sent_again_costs_little() {
    let mut dice = Dice(7);
    let mut guest = Guest::new(&mut dice);
    guest.ram[0] = [0; PAGE_LEN];
    let sender = Arc::new(Sender::new(KEEP));
    let mut encoder = sender.lane(&init(0)).unwrap();
    let all: Vec<u64> = (0..PAGES).collect();
    let mut lens = Vec::new();
    for round in 0..4 {
        if round == 3 {
            let Counts {
                pages,
                left_out,
                differences,
                ..
            } = sender.counts();
            assert_eq!((left_out, differences), (pages / 3 * 2, 0));
            guest.ram.iter_mut().for_each(|page| page[100] ^= 1);
            guest.ram[0] = [0; PAGE_LEN];
        }
        let sent = guest.round(&all, 1, &mut dice).remove(0);
        lens.push(
            sent.iter()
                .map(|(head, bytes)| encode(&mut encoder, head, bytes).len())
                .sum::<usize>(),
        );
    }
    // Round 0 is before the first SYNC. Round 1 has the same pages: nothing but headers. In round 3 every page changed,
    // but none was kept before, as none had changed; the one after would be differences.
    assert!(lens[0] > 40 * PAGE_LEN, "{lens:?}");
    assert!(lens[1] < 1500 && lens[2] < 1500, "{lens:?}");
    guest.ram.iter_mut().skip(1).for_each(|page| page[7] ^= 1);
    let sent = guest.round(&all, 1, &mut dice).remove(0);
    let len: usize = sent
        .iter()
        .map(|(head, bytes)| encode(&mut encoder, head, bytes).len())
        .sum();
    assert!(
        len < 2500 && sender.counts().differences > 0,
        "{len} {:?}",
        sender.counts()
    );
}

#[test]
fn lanes_in_step_save_and_lanes_out_of_step_stay_right() {
    let in_step = migrate(3, 1, 20, KEEP);
    let Counts {
        pages,
        left_out,
        differences,
        copies,
    } = in_step.counts;
    assert!(
        left_out > 20 && differences > 20 && copies > 5,
        "{:?}",
        in_step.counts
    );
    assert!(in_step.sent < pages as usize * PAGE_LEN * 3 / 4);
    let out_of_step = migrate(3, 4, 20, KEEP);
    assert!(out_of_step.counts.copies > 0, "{:?}", out_of_step.counts);
}

// Goal: a page may travel by a way that is not understood; then nothing is known of what the destination holds.
#[test]
fn nothing_is_left_out_before_zero_pages_are_seen_here_nor_after_a_surprise() {
    let sender = Arc::new(Sender::with_patience(0, Duration::ZERO));
    let mut encoder = sender.lane(&init(0)).unwrap();
    let page = vec![5; PAGE_LEN];
    let mut number = 0;
    let mut send = |encoder: &mut Encoder, zero: &[u64]| {
        let len = encode(encoder, &header(false, number, BLOCK, &[4096], zero), &page).len();
        encode(encoder, &header(true, number + 1, BLOCK, &[], &[]), &[]);
        number += 2;
        len
    };
    assert!(send(&mut encoder, &[]) > PAGE_LEN);
    assert!(
        send(&mut encoder, &[]) > PAGE_LEN,
        "an older QEMU sends zero pages elsewhere"
    );
    assert!(
        send(&mut encoder, &[0]) < 100,
        "now it is known that it does not"
    );
    encoder.surprised();
    assert!(send(&mut encoder, &[0]) > PAGE_LEN);
}

#[test]
fn a_lane_that_nobody_could_expect_or_that_comes_twice_travels_plain() {
    let sender = Arc::new(Sender::with_patience(KEEP, Duration::ZERO));
    let mut first = sender.lane(&init(0)).unwrap();
    assert!(sender.lane(&init(0)).is_none(), "the same channel twice");
    let sender = Arc::new(Sender::with_patience(KEEP, Duration::ZERO));
    first = sender.lane(&init(0)).unwrap_or(first);
    encode(&mut first, &header(true, 0, BLOCK, &[], &[]), &[]);
    encode(
        &mut first,
        &header(false, 1, BLOCK, &[4096], &[0]),
        &[1; PAGE_LEN],
    );
    assert!(
        sender.lane(&init(1)).is_none(),
        "no number is missing, so others rely on there being one lane"
    );
    assert!(sender.lane(&[0; INIT_LEN]).is_none());
}

// Goal: a lane whose thread gets its turn late, rounds behind the others, is understood. Method: two rounds of one of
// two lanes, with the numbers that the other's packets leave out.
#[test]
fn nothing_is_relied_on_while_a_packet_is_missing() {
    let sender = Arc::new(Sender::with_patience(KEEP, Duration::ZERO));
    let mut first = sender.lane(&init(0)).unwrap();
    let mut send = |sync, data| {
        encode(&mut first, &header(true, sync, BLOCK, &[], &[]), &[]);
        encode(
            &mut first,
            &header(false, data, BLOCK, &[4096], &[0]),
            &[1; PAGE_LEN],
        )
        .len()
    };
    assert!(
        send(0, 2) > PAGE_LEN && send(3, 5) > PAGE_LEN,
        "1 and 4 are another lane's"
    );
    let mut second = sender.lane(&init(1)).expect("nothing is fixed yet");
    for number in [1, 4, 7] {
        encode(&mut second, &header(true, number, BLOCK, &[], &[]), &[]);
    }
    assert!(send(6, 8) < PAGE_LEN, "left out");
}

#[test]
fn headers_that_are_not_known_are_a_surprise() {
    let good = header(false, 9, BLOCK, &[0, 4096], &[8192]);
    assert_eq!(
        Packet::parse(&good),
        Ok(Packet {
            sync: false,
            normal: 2,
            zero: 1
        })
    );
    for (at, value, why) in [
        (0, 0x51, "magic"),
        (7, 2, "version"),
        (11, 2, "compressed"),
        (11, 64, "device state"),
        (15, 129, "places"),
        (19, 127, "pages"),
        (23, 1, "length"),
        (327, 1, "offset"),
    ] {
        let mut bad = good;
        bad[at] = value;
        assert!(Packet::parse(&bad).is_err(), "{why}");
    }
}

// Goal: on a slow link a page that changes for the first time travels as difference already.
#[test]
fn on_a_slow_link_the_first_change_is_a_difference() {
    for (rate, processors, differences) in [
        (0, 1.0, 0),
        (12_500_000, 1.0, 1),
        (125_000_000, 1.0, 0),
        (125_000_000, 4.0, 1),
        (1_250_000_000, 64.0, 0),
    ] {
        let (sender, receiver) = (Arc::new(Sender::new(KEEP)), Arc::new(Receiver::new(KEEP)));
        sender.set_link(rate, processors);
        let (mut encoder, mut decoder) = (
            sender.lane(&init(0)).unwrap(),
            receiver.lane(&first(0)).unwrap(),
        );
        // As QEMU does: a SYNC before the first page.
        let first = header(true, 1, BLOCK, &[0], &[4096]);
        let (mut page, mut changed) = ([5; PAGE_LEN], [5; PAGE_LEN]);
        page[17] = 1;
        changed[99] = 9;
        for (head, pages) in [
            (header(true, 0, BLOCK, &[], &[]), &[][..]),
            (first, &page[..]),
            (header(true, 2, BLOCK, &[0], &[]), &changed[..]),
        ] {
            let chunk = encode(&mut encoder, &head, pages);
            let got = decoder.unpack(&chunk).unwrap();
            assert!(got.header == &head && got.pages == pages);
        }
        assert_eq!(sender.counts().differences, differences, "{rate}");
    }
}

// Goal: QEMU 7.2 ends a round with a packet of no pages that names the length of the packet before; it must arrive as
// it is.
#[test]
fn a_length_left_standing_where_no_page_follows_arrives() {
    let mut end = header(true, 7, BLOCK, &[], &[]);
    end[20..24].copy_from_slice(&(128 * PAGE_LEN as u32).to_be_bytes());
    assert_eq!(
        Packet::parse(&end),
        Ok(Packet {
            sync: true,
            normal: 0,
            zero: 0
        })
    );
    let (sender, receiver) = (Arc::new(Sender::new(KEEP)), Arc::new(Receiver::new(KEEP)));
    let (mut encoder, mut decoder) = (
        sender.lane(&init(0)).unwrap(),
        receiver.lane(&first(0)).unwrap(),
    );
    for sent in [header(false, 6, BLOCK, &[0], &[]), end] {
        let pages = if sent == end { &[][..] } else { &[5; PAGE_LEN] };
        let chunk = encode(&mut encoder, &sent, pages);
        let got = decoder.unpack(&chunk).unwrap();
        assert!(got.header == &sent && got.pages == pages);
    }
}

// Goal: QEMU before 9.0 sends zero pages by another way, so nothing can be left out; but what is kept is the same on
// both sides whatever the destination holds.
#[test]
fn pages_that_cannot_be_left_out_are_empty_differences() {
    let (sender, receiver) = (Arc::new(Sender::new(KEEP)), Arc::new(Receiver::new(KEEP)));
    sender.set_link(12_500_000, 1.0);
    let (mut encoder, mut decoder) = (
        sender.lane(&init(0)).unwrap(),
        receiver.lane(&first(0)).unwrap(),
    );
    for number in 0..4 {
        let page = vec![5; PAGE_LEN];
        for (head, pages) in [
            (header(true, 2 * number, BLOCK, &[], &[]), &[][..]),
            (
                header(false, 2 * number + 1, BLOCK, &[4096], &[]),
                &page[..],
            ),
        ] {
            let chunk = encode(&mut encoder, &head, pages);
            assert!(number == 0 || chunk.len() < 100);
            let got = decoder.unpack(&chunk).unwrap();
            assert!(got.header == &head && got.pages == pages);
        }
    }
    assert_eq!(
        (sender.counts().left_out, sender.counts().differences),
        (0, 3)
    );
}

// Goal: what was kept long ago is not referred to, and what is still needed is kept again before it goes.
#[test]
fn the_ring_turns() {
    let (sender, receiver) = (Arc::new(Sender::new(FEW)), Arc::new(Receiver::new(FEW)));
    sender.set_link(12_500_000, 1.0);
    let (mut encoder, mut decoder) = (
        sender.lane(&init(0)).unwrap(),
        receiver.lane(&first_of(0, FEW)).unwrap(),
    );
    let mut dice = Dice(5);
    let mut noise = || -> Page { std::array::from_fn(|_| dice.roll(256) as u8) };
    let popular = noise();
    let chunk = encode(&mut encoder, &header(true, 0, BLOCK, &[], &[]), &[]);
    decoder.unpack(&chunk).unwrap();
    let mut in_full = 0;
    for number in 0..40 {
        let pages: Vec<u8> = [popular]
            .into_iter()
            .chain((0..99).map(|_| noise()))
            .flatten()
            .collect();
        let offsets: Vec<u64> = (0..100)
            .map(|at| (number * 100 + at) * PAGE_LEN as u64)
            .collect();
        let head = header(false, 1 + number, BLOCK, &offsets, &[]);
        let chunk = encode(&mut encoder, &head, &pages);
        in_full += usize::from(chunk.len() > 100 * PAGE_LEN);
        assert!(decoder.is_ready(&chunk, Duration::ZERO));
        assert_eq!(decoder.unpack(&chunk).unwrap().pages, pages);
    }
    assert_eq!(in_full, 1, "the first");
}

#[test]
fn a_source_keeps_no_more_than_the_destination_allows() {
    let receiver = Arc::new(Receiver::new(FEW + 2));
    assert!(receiver.lane(&first_of(0, FEW + 3)).is_err());
    assert!(receiver.lane(&first_of(0, FEW + 1)).is_ok());
    assert!(
        receiver.lane(&first_of(1, FEW + 2)).is_err(),
        "another number than the lane before"
    );
    assert!(receiver.lane(&first_of(1, FEW + 1)).is_ok());
    assert!(
        receiver
            .lane(&first_of(2, FEW + 1)[..FIRST_LEN - 1])
            .is_err()
    );
}
