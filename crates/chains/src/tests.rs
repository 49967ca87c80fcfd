//! Every chain on every kind of page, and hostile bytes.

use narrows_testkit::data::{KINDS, Random, make};
use proptest::prelude::*;

use crate::{
    Chain, Chains, Limit, PAGE, Packer, Profile,
    chain::{self, Scratch},
    steps,
};

fn pages() -> Vec<[u8; PAGE]> {
    let kinds = KINDS.iter().flat_map(|&kind| make(kind, 3 * PAGE, 7).as_chunks::<PAGE>().0.to_vec());
    kinds.collect()
}

fn round_trip(chain: &Chain, page: &[u8; PAGE], scratch: &mut Scratch) -> Option<usize> {
    let mut packed = [0; 2 * PAGE];
    let len = chain.pack(page, &mut packed, scratch)?;
    let mut back = [0xa5; PAGE];
    chain::unpack(&packed[..len], &mut back, scratch).unwrap_or_else(|fault| panic!("{chain}: {fault}"));
    assert!(back == *page, "{chain}");
    Some(len)
}

#[test]
fn every_chain_gives_every_page_back() {
    let scratch = &mut Scratch::default();
    for page in pages() {
        for chain in Chain::builtins() {
            round_trip(chain, &page, scratch);
        }
    }
}

// Goal: a fused stage is only a faster way to the same bytes. Method: one step after the other, as specified.
#[test]
fn fused_stages_write_what_their_steps_write() {
    let scratch = &mut Scratch::default();
    for page in pages() {
        for chain in Chain::builtins() {
            let (mut one, mut other) = ([0; 2 * PAGE], [0; 2 * PAGE]);
            let len = chain.pack(&page, &mut one, scratch);
            assert_eq!(len, chain.unfused().pack(&page, &mut other, scratch), "{chain}");
            assert!(one[..len.unwrap_or(0)] == other[..len.unwrap_or(0)], "{chain}");
        }
    }
}

#[test]
fn names_and_numbers_are_each_of_one_step() {
    for step in steps::all() {
        assert_eq!(steps::by_id(step.id()).expect("listed").name(), step.name());
        assert_eq!(steps::by_name(step.name()).expect("listed").id(), step.id());
    }
}

#[test]
fn a_page_unpacks_after_its_chain_was_removed() {
    let chains = Chains::default();
    chains.set("dk8-zz8-deflate").expect("known steps");
    let mut packer = Packer::with(Profile::Ratio, Limit::default(), chains.clone());
    let page: &[u8; PAGE] = &make(narrows_testkit::data::Kind::Doubles, PAGE, 1).try_into().expect("a page");
    let mut packed = [0; PAGE];
    let len = packer.pack(page, &mut packed).expect("a smooth curve packs");
    chains.add("lz4").expect("known step");
    chains.remove("dk8-zz8-deflate").expect("it is there");
    let mut back = [0; PAGE];
    packer.unpack(&packed[..len], &mut back).expect("the page names its steps");
    assert!(back == *page);
    assert_ne!(packer.pack(page, &mut packed), Some(len));
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_make_some_page(
        packed in proptest::collection::vec(any::<u8>(), 0..600), head in 0u8..=255
    ) {
        let scratch = &mut Scratch::default();
        let mut page = [0; PAGE];
        let _ = chain::unpack(&packed, &mut page, scratch);
        let mut packed = packed;
        packed.insert(0, head % Chain::builtins().len() as u8);
        let _ = chain::unpack(&packed, &mut page, scratch);
    }
}

#[test]
fn every_flipped_bit_is_refused_or_makes_some_page() {
    let scratch = &mut Scratch::default();
    let mut random = Random(3);
    for page in pages() {
        for chain in Chain::builtins() {
            let mut packed = [0; 2 * PAGE];
            let Some(len) = chain.pack(&page, &mut packed, scratch) else { continue };
            for _ in 0..40 {
                let bit = random.below(8 * len);
                packed[bit / 8] ^= 1 << (bit % 8);
                let mut back = [0; PAGE];
                let _ = chain::unpack(&packed[..len], &mut back, scratch);
                packed[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
