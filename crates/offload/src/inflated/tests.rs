use narrows::default_registry;
use narrows_core::{Level, Workspace, registry::Entry};
use narrows_testkit::data::{KINDS, Kind, make};
use proptest::prelude::*;

use super::*;

fn says(packed: &[u8], raw: &[u8]) -> bool {
    unpacks_to(packed, raw, &mut Codes::default())
}

/// Whether the plainest unpacker makes `raw` of it.
fn unpacks(packed: &[u8], raw: &[u8]) -> bool {
    let (registry, mut out) = (default_registry(), vec![0; raw.len()]);
    let entries = registry
        .entries()
        .find(|entries| entries[0].codec.info().name == "deflate")
        .unwrap();
    let codec = &entries.last().unwrap().codec;
    codec
        .unpack(packed, &[], &mut out, &mut Workspace::default())
        .is_ok()
        && out == raw
}

/// `raw` packed by every backend at some of its levels.
fn packed(raw: &[u8]) -> Vec<Vec<u8>> {
    let registry = default_registry();
    let entries = registry
        .entries()
        .find(|entries| entries[0].codec.info().name == "deflate")
        .unwrap();
    let pack = |entry: &Entry, level| {
        let mut out = vec![0; raw.len() + raw.len() / 8 + 100];
        let len = entry
            .codec
            .pack(raw, Level(level), &[], &mut out, &mut Workspace::default())?;
        out.truncate(len);
        Some(out)
    };
    let each = entries.iter().flat_map(|entry| {
        entry
            .codec
            .info()
            .levels
            .clone()
            .map(move |level| (entry, level))
    });
    each.filter_map(|(entry, level)| pack(entry, level))
        .collect()
}

// Goal: what packers make is found right, whatever is in it, and nothing else is taken for it. Method: every kind of
// data, every backend and level; each stream against its bytes, and against its bytes with one of them changed or one
// missing.
#[test]
fn what_packers_make_is_found_right_and_nothing_else() {
    for raw in KINDS
        .iter()
        .flat_map(|kind| [1, 2, 3, 4, 5, 300, 20_000].map(|len| make(*kind, len, 1)))
    {
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

// Goal: a stream that is called right unpacks to the bytes. Method: every bit of small streams turned, and every cut;
// what the unpacker does with those is what counts.
#[test]
fn a_damaged_stream_is_right_only_where_it_unpacks_to_the_bytes_all_the_same() {
    for kind in [
        Kind::Text,
        Kind::Sparse,
        Kind::Skewed,
        Kind::Period,
        Kind::Floats,
    ] {
        let raw = make(kind, 300, 2);
        for stream in packed(&raw) {
            for bit in 0..stream.len() * 8 {
                let mut damaged = stream.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    !says(&damaged, &raw) || unpacks(&damaged, &raw),
                    "bit {bit}"
                );
            }
            assert!((0..stream.len()).all(|cut| !says(&stream[..cut], &raw)));
        }
    }
}

/// Bits as DEFLATE has them, from the lowest of each byte on.
fn bits(fields: &[(u32, u32)]) -> Vec<u8> {
    let (mut bytes, mut at) = (Vec::new(), 0);
    for &(value, count) in fields {
        for bit in 0..count {
            if at % 8 == 0 {
                bytes.push(0);
            }
            *bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (at % 8);
            at += 1;
        }
    }
    bytes
}

/// A dynamic block of the byte 0 eight times, as literals of one bit, which says that it has so many lengths of
/// literals and of distances.
fn eight_zeros(symbols: u32, distances: u32) -> Vec<u8> {
    let mut fields = vec![
        (1, 1),
        (2, 2),
        (symbols - 257, 5),
        (distances - 1, 5),
        (18 - 4, 4),
    ];
    // Codes of one bit for 1 and of two for 0 and 18, in the format's order of them.
    fields.extend(LENGTHS_ORDER[..18].iter().map(|symbol| match symbol {
        1 => (1, 3),
        0 | 18 => (2, 3),
        _ => (0, 3),
    }));
    let (one, zero) = ((0, 1), (0b01, 2));
    let run = |len: u32| [(0b11, 2), (len - 11, 7)];
    fields.push(one);
    fields.extend(run(138));
    fields.extend(run(117));
    fields.push(one);
    fields.extend((257..symbols + distances).map(|_| zero));
    fields.extend([(0, 1); 8]);
    fields.push((1, 1));
    bits(&fields)
}

// Goal: what gzip refuses and libdeflate takes is not right.
#[test]
fn more_lengths_than_the_format_has_are_refused() {
    assert!(says(&eight_zeros(257, 1), &[0; 8]) && unpacks(&eight_zeros(257, 1), &[0; 8]));
    assert!(says(&eight_zeros(286, 30), &[0; 8]));
    for stream in [eight_zeros(287, 1), eight_zeros(257, 31)] {
        assert!(unpacks(&stream, &[0; 8]), "libdeflate takes it");
        assert!(!says(&stream, &[0; 8]));
    }
}

proptest! {
    // Goal: no bytes panic, and none are called right that are not.
    #[test]
    fn anything_may_come(stream in prop::collection::vec(any::<u8>(), 0..300), raw in prop::collection::vec(any::<u8>(), 0..40)) {
        prop_assert!(!says(&stream, &raw) || unpacks(&stream, &raw));
    }
}
