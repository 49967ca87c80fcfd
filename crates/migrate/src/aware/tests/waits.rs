//! Lanes that wait for each other: for what is right, and never for ever.

use std::collections::VecDeque;

use super::*;

/// Moves a guest to a destination that reads a lane past a SYNC only when all lanes have come there, and of those that
/// it reads always the first in `order` that can go on; not a byte lies in between. The source hears lane 0 `late`
/// rounds after the others. Fails where no lane can go on.
fn nobody_waits_for_ever(seed: u64, order: &[usize], late: usize, keep: usize) -> Counts {
    let lanes = order.len();
    let mut dice = Dice(seed);
    let mut guest = Guest::new(&mut dice);
    let (sender, receiver) = (
        Arc::new(Sender::with_patience(keep, Duration::ZERO)),
        Arc::new(Receiver::new(keep)),
    );
    sender.set_link(12_500_000, 1.0);
    let mut to_encode: Vec<VecDeque<_>> = vec![VecDeque::new(); lanes];
    for round in 0..6 {
        let pages = if round == 0 { 0..0 } else { 0..PAGES };
        for (lane, more) in guest
            .round(&Vec::from_iter(pages), lanes, &mut dice)
            .into_iter()
            .enumerate()
        {
            to_encode[lane].extend(more);
        }
        guest.live(&mut dice);
    }
    let mut encoders: Vec<Option<Encoder>> = (0..lanes).map(|_| None).collect();
    let mut under_way: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); lanes];
    let mut rounds = vec![0; lanes];
    while to_encode.iter().any(|lane| !lane.is_empty()) {
        let lane = dice.roll(lanes as u64) as usize;
        let last = rounds
            .iter()
            .skip(usize::from(rounds[1] < late))
            .min()
            .unwrap();
        let has_turn = rounds[lane] == *last || dice.roll(20) == 0;
        let Some((head, bytes)) =
            to_encode[lane].pop_front_if(|_| has_turn && (lane > 0 || rounds[1] >= late))
        else {
            continue;
        };
        rounds[lane] += usize::from(Packet::parse(&head).unwrap().sync);
        if encoders[lane].is_none() {
            encoders[lane] = sender.lane(&init(lane as u8));
        }
        under_way[lane].push_back(match &mut encoders[lane] {
            Some(encoder) => encode(encoder, &head, &bytes),
            None => [&[kind::PLAIN], &head[..], &bytes].concat(),
        });
    }
    let mut decoders: Vec<_> = (0..lanes)
        .map(|lane| receiver.lane(&first_of(lane as u8, keep)).unwrap())
        .collect();
    let mut passed = vec![0; lanes];
    while under_way.iter().any(|lane| !lane.is_empty()) {
        let goes_on = |lane: usize| {
            let chunk = under_way[lane].front();
            passed.iter().all(|other| *other >= passed[lane])
                && chunk.is_some_and(|chunk| {
                    chunk[0] == kind::PLAIN || decoders[lane].is_ready(chunk, Duration::ZERO)
                })
        };
        let next = order.iter().copied().find(|lane| goes_on(*lane));
        let lane = next.unwrap_or_else(|| panic!("all wait, having passed {passed:?}"));
        let chunk = under_way[lane].pop_front().unwrap();
        let head = match chunk[0] {
            kind::PLAIN => chunk[1..].first_chunk().unwrap(),
            _ => decoders[lane].unpack(&chunk).unwrap().header,
        };
        passed[lane] += usize::from(Packet::parse(head).unwrap().sync);
    }
    sender.counts()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn lanes_that_wait_for_each_other_go_on(seed in any::<u64>(), order in (2_usize..6).prop_flat_map(|lanes| Just(Vec::from_iter(0..lanes)).prop_shuffle()), late in 0_usize..4, keep in prop::sample::select(vec![FEW, FEW + 77, KEEP])) {
        let counts = nobody_waits_for_ever(seed, &order, late, keep);
        prop_assert!(late > 0 || counts.copies > 0 && counts.differences > 0, "{:?}", counts);
    }
}

// Goal: a lane copies from what another sent in the same round, and waits for it.
#[test]
fn a_packet_waits_for_the_page_that_it_copies_from() {
    let (sender, receiver) = (Arc::new(Sender::new(KEEP)), Arc::new(Receiver::new(KEEP)));
    sender.set_link(12_500_000, 1.0);
    let mut encoders = [0, 1].map(|lane| sender.lane(&init(lane)).unwrap());
    let mut decoders = [0, 1].map(|lane| receiver.lane(&first(lane)).unwrap());
    for lane in [0, 1] {
        let chunk = encode(&mut encoders[lane], &header(true, 0, BLOCK, &[], &[]), &[]);
        decoders[lane].unpack(&chunk).unwrap();
    }
    let mut dice = Dice(11);
    let page: Page = std::array::from_fn(|_| dice.roll(256) as u8);
    let mut moved = page;
    moved.rotate_left(700);
    let heads = [
        header(false, 1, BLOCK, &[0x3000], &[0]),
        header(false, 2, BLOCK, &[0x9000], &[]),
    ];
    let one = encode(&mut encoders[0], &heads[0], &page);
    let two = encode(&mut encoders[1], &heads[1], &moved);
    assert!(
        one.len() > PAGE_LEN && two.len() < 500,
        "{} {}",
        one.len(),
        two.len()
    );
    assert!(!decoders[1].is_ready(&two, Duration::ZERO));
    assert!(decoders[0].is_ready(&one, Duration::ZERO));
    assert_eq!(decoders[0].unpack(&one).unwrap().pages, page);
    assert!(decoders[1].is_ready(&two, Duration::ZERO));
    assert_eq!(decoders[1].unpack(&two).unwrap().pages, moved);
    let mut early = Arc::new(Receiver::new(KEEP)).lane(&first(1)).unwrap();
    assert!(early.unpack(&two).is_err(), "nothing is kept there");
    // As if no page had been kept before it: what it refers to cannot be, however long one waits.
    let mut wrong = two.clone();
    let tail = PAGES_AT + u32::from_le_bytes(two[4..8].try_into().unwrap()) as usize;
    assert_eq!(std::mem::replace(&mut wrong[tail + 1], 0), 1);
    let mut early = Arc::new(Receiver::new(KEEP)).lane(&first(1)).unwrap();
    assert!(!early.is_ready(&two, Duration::ZERO));
    assert!(early.is_ready(&wrong, Duration::ZERO) && early.unpack(&wrong).is_err());
}
