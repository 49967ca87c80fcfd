//! Every codec keeps the promises of the suite: one line each.

use std::sync::Arc;

use narrows_codecs::cpu;
use narrows_core::{Backend, Codec, Level, Registry, Workspace};
use narrows_testkit::data::{KINDS, make};

macro_rules! enrol {
    ($($module:ident $name:literal $(declines $bytes:literal)?;)*) => {
        narrows_testkit::codec_suite! { $($module => by_name($name) $(, declines $bytes)?;)* }

        const ENROLLED: &[&str] = &[$($name),*];
    };
}

enrol! {
    raw "raw";
    lz4 "lz4";
    lz4_hc "lz4-hc";
    snappy "snappy";
    gipfeli "gipfeli";
    lzo1x "lzo1x";
    deflate "deflate";
    zlib "zlib";
    gzip "gzip";
    zstd "zstd";
    nx842 "842";
    deflate_w4k "deflate-w4k" declines 4096;
    shuffle2_lz4 "shuffle2-lz4";
    shuffle4_lz4 "shuffle4-lz4";
    shuffle8_lz4 "shuffle8-lz4";
    shuffle2_zstd "shuffle2-zstd";
    shuffle4_zstd "shuffle4-zstd";
    shuffle8_zstd "shuffle8-zstd";
    delta2_lz4 "delta2-lz4";
    delta4_lz4 "delta4-lz4";
    delta8_lz4 "delta8-lz4";
    delta2_zstd "delta2-zstd";
    delta4_zstd "delta4-zstd";
    delta8_zstd "delta8-zstd";
    decimal4_zstd "decimal4-zstd";
    decimal8_zstd "decimal8-zstd";
}

fn all() -> Vec<Arc<dyn Codec>> {
    cpu().probe().expect("the CPU is there")
}

fn by_name(name: &str) -> Arc<dyn Codec> {
    all()
        .into_iter()
        .find(|codec| codec.info().name == name)
        .unwrap_or_else(|| panic!("no codec {name}"))
}

#[test]
fn every_codec_is_enrolled_and_registers() {
    let names: Vec<_> = all().iter().map(|codec| codec.info().name).collect();
    assert_eq!(names, ENROLLED);
    Registry::default()
        .add(&cpu())
        .expect("ids and names are unique");
}

#[test]
fn one_workspace_serves_all_codecs_in_any_order() {
    let mut ws = Workspace::default();
    for kind in KINDS {
        let raw = make(kind, 4000, 20);
        let mut last: Option<(Arc<dyn Codec>, Vec<u8>)> = None;
        for codec in all().into_iter().chain(all().into_iter().rev()) {
            let mut packed = vec![0; 9000];
            let level = Level(codec.info().level_default);
            let len = codec
                .pack(&raw, level, &[], &mut packed, &mut ws)
                .expect("room enough");
            packed.truncate(len);
            if let Some((codec, packed)) = last.replace((codec, packed)) {
                let mut out = vec![0; raw.len()];
                codec
                    .unpack(&packed, &[], &mut out, &mut ws)
                    .expect("own packing");
                assert_eq!(out, raw, "{}", codec.info().name);
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
    #[test]
    fn any_bytes_come_back(
        raw in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..600),
        repeats in 1usize..20,
        level in proptest::prelude::any::<i16>(),
    ) {
        let raw = raw.repeat(repeats);
        let mut ws = Workspace::default();
        for codec in all() {
            let mut packed = vec![0; 2 * raw.len() + 1024];
            // The slowest levels would make this the whole of the test run.
            let level = Level(level.min(9));
            let Some(len) = codec.pack(&raw, level, &[], &mut packed, &mut ws) else { continue };
            let mut out = vec![0; raw.len()];
            proptest::prop_assert!(codec.unpack(&packed[..len], &[], &mut out, &mut ws).is_ok());
            proptest::prop_assert_eq!(&out, &raw, "{}", codec.info().name);
        }
    }
}
