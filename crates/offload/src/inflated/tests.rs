use narrows::{
    core::{Level, Workspace, registry::Entry},
    default_registry,
};
use narrows_testkit::data::{KINDS, Kind, make};
use proptest::prelude::*;

use super::*;

fn says(packed: &[u8], raw: &[u8]) -> bool {
    follow(packed, raw, &mut Codes::default(), 0.0).is_some()
}

/// Whether the plainest unpacker makes `raw` of it.
fn unpacks(packed: &[u8], raw: &[u8]) -> bool {
    let (registry, mut out) = (default_registry(), vec![0; raw.len()]);
    let entries = registry.entries().find(|entries| entries[0].codec.info().name == "deflate").unwrap();
    let codec = &entries.last().unwrap().codec;
    codec.unpack(packed, &[], &mut out, &mut Workspace::default()).is_ok() && out == raw
}

/// `raw` packed by every backend at some of its levels.
fn packed(raw: &[u8]) -> Vec<Vec<u8>> {
    let registry = default_registry();
    let entries = registry.entries().find(|entries| entries[0].codec.info().name == "deflate").unwrap();
    let pack = |entry: &Entry, level| {
        let mut out = vec![0; raw.len() + raw.len() / 8 + 100];
        let len = entry.codec.pack(raw, Level(level), &[], &mut out, &mut Workspace::default())?;
        out.truncate(len);
        Some(out)
    };
    let each = entries.iter().flat_map(|entry| entry.codec.info().levels.clone().map(move |level| (entry, level)));
    each.filter_map(|(entry, level)| pack(entry, level)).collect()
}

// Goal: what packers make is found right, whatever is in it, and nothing else is taken for it. Method: every kind of data,
// every backend and level; each stream against its bytes, and against its bytes with one of them changed or one missing.
#[test]
fn what_packers_make_is_found_right_and_nothing_else() {
    for raw in KINDS.iter().flat_map(|kind| [1, 2, 3, 4, 5, 300, 20_000].map(|len| make(*kind, len, 1))) {
        for stream in packed(&raw) {
            assert!(says(&stream, &raw), "{} bytes", raw.len());
            assert!(!says(&stream, &raw[1..]) && !says(&stream[..stream.len() - 1], &raw));
            assert!(!says(&[&stream[..], &[0]].concat(), &raw));
            for at in [0, raw.len() / 2, raw.len() - 1] {
                let mut other = raw.clone();
                other[at] ^= 1;
                assert!(!says(&stream, &other), "{} bytes, {at}", raw.len());
            }
        }
    }
}

// Goal: a stream that is called right unpacks to the bytes. Method: every bit of small streams turned, and every cut; what
// the unpacker does with those is what counts.
#[test]
fn a_damaged_stream_is_right_only_where_it_unpacks_to_the_bytes_all_the_same() {
    for kind in [Kind::Text, Kind::Sparse, Kind::Skewed, Kind::Period, Kind::Floats] {
        let raw = make(kind, 300, 2);
        for stream in packed(&raw) {
            for bit in 0..stream.len() * 8 {
                let mut damaged = stream.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(!says(&damaged, &raw) || unpacks(&damaged, &raw), "bit {bit}");
            }
            assert!((0..stream.len()).all(|cut| !says(&stream[..cut], &raw)));
        }
    }
}

#[test]
fn streams_of_few_literals_are_left_to_the_unpacker() {
    let mut codes = Codes::default();
    let (text, noise) = (make(Kind::Text, 50_000, 3), make(Kind::Skewed, 50_000, 3));
    let first = |raw: &[u8]| packed(raw).swap_remove(1);
    assert!(!unpacks_to(&first(&text), &text, &mut codes));
    assert!(unpacks_to(&first(&noise), &noise, &mut codes) && !unpacks_to(&first(&noise), &text, &mut codes));
}

proptest! {
    // Goal: no bytes panic, and none are called right that are not.
    #[test]
    fn anything_may_come(stream in prop::collection::vec(any::<u8>(), 0..300), raw in prop::collection::vec(any::<u8>(), 0..40)) {
        prop_assert!(!says(&stream, &raw) || unpacks(&stream, &raw));
    }
}
