//! What any codec must keep, one function a promise.

use std::sync::Arc;

use narrows_core::{Codec, Level, Workspace};

use crate::data::{KINDS, Kind, Random, make};

/// The promises, for one codec.
#[derive(Debug, Clone)]
pub struct Suite {
    codec: Arc<dyn Codec>,
    declines_above: usize,
}

impl Suite {
    /// For `codec`, which packs whatever fits.
    #[must_use]
    pub fn new(codec: Arc<dyn Codec>) -> Self {
        Self {
            codec,
            declines_above: usize::MAX,
        }
    }

    /// Allows the codec to decline chunks longer than `bytes`.
    #[must_use]
    pub fn declines_above(self, bytes: usize) -> Self {
        Self {
            declines_above: bytes,
            ..self
        }
    }

    /// Every kind of data at many lengths and a few levels comes back as it was, through one workspace.
    pub fn round_trips(&self) {
        let mut ws = Workspace::default();
        for kind in KINDS {
            for len in (1..=70).chain([
                127, 255, 256, 511, 1000, 4095, 4096, 4097, 65_535, 65_536, 65_537,
            ]) {
                self.round_trip(&make(kind, len, 1), self.default_level(), &[], &mut ws);
            }
            self.round_trip(
                &make(kind, (1 << 20) + 13, 2),
                self.default_level(),
                &[],
                &mut ws,
            );
            for level in self.levels() {
                self.round_trip(&make(kind, 9001, 3), level, &[], &mut ws);
            }
        }
    }

    /// With room for every length below the packed one the answer is `None`; with exactly that, or more, it is the
    /// same bytes, if the codec can do without room to spare.
    pub fn output_too_small_is_none(&self) {
        let mut ws = Workspace::default();
        for kind in [
            Kind::Text,
            Kind::Skewed,
            Kind::Random,
            Kind::Zeros,
            Kind::Floats,
        ] {
            for len in [1, 9, 300, 3000] {
                let raw = make(kind, len, 4);
                let packed = self.packed(&raw, self.default_level(), &[], &mut ws);
                for room in (0..packed.len()).rev().step_by(1 + packed.len() / 200) {
                    let mut out = vec![0; room];
                    let written =
                        self.codec
                            .pack(&raw, self.default_level(), &[], &mut out, &mut ws);
                    // A codec may find a shorter form when pressed. It must be a form of the chunk all the same.
                    if let Some(written) = written {
                        let mut back = vec![0xa5; len];
                        self.codec
                            .unpack(&out[..written], &[], &mut back, &mut ws)
                            .expect("what was packed unpacks");
                        assert_eq!(back, raw, "{kind:?} of {len} in {room}");
                    }
                }
                assert!(
                    self.codec
                        .pack(&raw, self.default_level(), &[], &mut [], &mut ws)
                        .is_none()
                );
            }
        }
    }

    /// A chunk cut anywhere is refused, or at least does not leave old bytes.
    pub fn truncations_are_refused(&self) {
        let mut ws = Workspace::default();
        for (kind, len) in [
            (Kind::Text, 2500),
            (Kind::Floats, 900),
            (Kind::Zeros, 4096),
            (Kind::Random, 300),
        ] {
            let raw = make(kind, len, 5);
            let packed = self.packed(&raw, self.default_level(), &[], &mut ws);
            for cut in 0..packed.len() {
                self.unpack_twice(&packed[..cut], len, &mut ws);
                let mut out = vec![0xa5; len];
                let cut_chunk = self.codec.unpack(&packed[..cut], &[], &mut out, &mut ws);
                // Where the last bytes are mere padding, what comes out must be right.
                assert!(
                    cut_chunk.is_err() || out == raw,
                    "{kind:?} cut at {cut} of {}",
                    packed.len()
                );
            }
        }
    }

    /// A chunk does not unpack to fewer or more bytes than it holds, nor with bytes behind it.
    pub fn other_lengths_are_refused(&self) {
        let mut ws = Workspace::default();
        for (kind, len) in [
            (Kind::Text, 2500),
            (Kind::Doubles, 1000),
            (Kind::Zeros, 4096),
            (Kind::Random, 33),
        ] {
            let raw = make(kind, len, 6);
            let mut packed = self.packed(&raw, self.default_level(), &[], &mut ws);
            for other in [0, 1, len / 2, len - 1, len + 1, len + 8, 2 * len, 100_000] {
                let mut out = vec![0; other];
                let unpacked = self.codec.unpack(&packed, &[], &mut out, &mut ws);
                assert!(unpacked.is_err(), "{kind:?} of {len} unpacked to {other}");
            }
            packed.extend([0x5a; 9]);
            let mut out = vec![0; len];
            assert!(
                self.codec.unpack(&packed, &[], &mut out, &mut ws).is_err(),
                "{kind:?} with bytes behind"
            );
        }
    }

    /// Any flipped bit is refused or gives a whole chunk, right or wrong: never a panic, never old bytes.
    pub fn flipped_bits_never_leave_old_bytes(&self) {
        let mut ws = Workspace::default();
        let mut random = Random(7);
        for (kind, len) in [
            (Kind::Text, 700),
            (Kind::Skewed, 600),
            (Kind::Floats, 400),
            (Kind::Sparse, 4000),
        ] {
            let raw = make(kind, len, 7);
            let mut packed = self.packed(&raw, self.default_level(), &[], &mut ws);
            for bit in 0..8 * packed.len().min(600) {
                packed[bit / 8] ^= 1 << (bit % 8);
                self.unpack_twice(&packed, len, &mut ws);
                packed[bit / 8] ^= 1 << (bit % 8);
            }
            let good = packed.clone();
            for _ in 0..2000 {
                for _ in 0..=random.below(6) {
                    let at = random.below(packed.len());
                    packed[at] = random.next_u64() as u8;
                }
                self.unpack_twice(&packed, len, &mut ws);
                packed.copy_from_slice(&good);
            }
        }
    }

    /// Bytes that nobody packed.
    pub fn garbage_never_panics(&self) {
        let mut ws = Workspace::default();
        let mut random = Random(8);
        self.unpack_twice(&[], 100, &mut ws);
        for kind in KINDS {
            for _ in 0..200 {
                let packed = make(kind, 1 + random.below(400), random.next_u64());
                let len = 1 + random.below(6000);
                self.unpack_twice(&packed, len, &mut ws);
            }
        }
    }

    /// Packing depends on nothing but its arguments: a used workspace gives the bytes of a new one.
    pub fn same_input_same_output(&self) {
        let mut used = Workspace::default();
        for kind in KINDS {
            for len in [70_000, 3000, 100] {
                let raw = make(kind, len, 9);
                let level = self.default_level();
                if len <= self.declines_above {
                    let fresh = self.packed(&raw, level, &[], &mut Workspace::default());
                    assert_eq!(
                        self.packed(&raw, level, &[], &mut used),
                        fresh,
                        "{kind:?} of {len}"
                    );
                }
            }
        }
    }

    /// With history a chunk comes back; where it repeats its history, it packs better than without.
    pub fn history_round_trips(&self) {
        if !self.codec.info().history {
            return;
        }
        let mut ws = Workspace::default();
        for history_len in [1, 7, 8, 100, 4096, 65_536, 200_000] {
            for kind in KINDS {
                let bytes = make(kind, history_len + 20_000, 10);
                let (history, raw) = bytes.split_at(history_len);
                self.round_trip(raw, self.default_level(), history, &mut ws);
                for level in self.levels() {
                    self.round_trip(&raw[..3000], level, history, &mut ws);
                }
            }
            // History that looks like a trained zstd dictionary is history all the same.
            let mut history = vec![0x37, 0xa4, 0x30, 0xec];
            history.resize(history_len.max(8), 1);
            self.round_trip(
                &make(Kind::Text, 500, 11),
                self.default_level(),
                &history,
                &mut ws,
            );
        }
        let history = make(Kind::Random, 30_000, 12);
        let level = self.default_level();
        // A copy: no channel has its history overlap the chunk in memory, and zstd would forget what overlaps.
        let raw = history[10_000..].to_vec();
        let with = self.packed(&raw, level, &history, &mut ws);
        assert!(
            with.len() < 1000,
            "20000 bytes of history packed to {}",
            with.len()
        );
        let mut out = vec![0xa5; 20_000];
        let other = make(Kind::Random, 30_000, 13);
        let unpacked = self.codec.unpack(&with, &other, &mut out, &mut ws);
        assert!(
            unpacked.is_err() || out != raw,
            "another history gave the same chunk"
        );
        assert!(
            self.codec.unpack(&with, &[], &mut out, &mut ws).is_err(),
            "without its history"
        );
    }

    /// One chunk there and back.
    ///
    /// # Panics
    /// Where it does not come back.
    pub fn round_trip(&self, raw: &[u8], level: Level, history: &[u8], ws: &mut Workspace) {
        let mut packed = vec![0; room_for(raw.len())];
        let name = self.codec.info().name;
        let Some(len) = self.codec.pack(raw, level, history, &mut packed, ws) else {
            assert!(
                raw.len() > self.declines_above,
                "{name} declined {} bytes at level {level}",
                raw.len()
            );
            return;
        };
        let mut back = vec![0xa5; raw.len()];
        let unpacked = self.codec.unpack(&packed[..len], history, &mut back, ws);
        unpacked
            .unwrap_or_else(|error| panic!("{name}, {} bytes, level {level}: {error}", raw.len()));
        assert!(
            back == raw,
            "{name}, {} bytes, level {level}, history {}",
            raw.len(),
            history.len()
        );
    }

    fn packed(&self, raw: &[u8], level: Level, history: &[u8], ws: &mut Workspace) -> Vec<u8> {
        let mut packed = vec![0; room_for(raw.len())];
        let len = self
            .codec
            .pack(raw, level, history, &mut packed, ws)
            .expect("room enough");
        packed.truncate(len);
        packed
    }

    /// Unpacks over two different backgrounds: on `Ok` none of either may be left.
    fn unpack_twice(&self, packed: &[u8], len: usize, ws: &mut Workspace) {
        let (mut first, mut second) = (vec![0x00; len], vec![0xff; len]);
        let a = self.codec.unpack(packed, &[], &mut first, ws);
        let b = self.codec.unpack(packed, &[], &mut second, ws);
        assert_eq!(
            a.is_ok(),
            b.is_ok(),
            "the answer depends on what was in `out`"
        );
        if a.is_ok() {
            assert!(first == second, "`Ok`, but old bytes are left");
        }
    }

    fn default_level(&self) -> Level {
        Level(self.codec.info().level_default)
    }

    /// Both ends, beyond both ends, and some between.
    fn levels(&self) -> impl Iterator<Item = Level> + use<> {
        let (low, high) = (
            *self.codec.info().levels.start(),
            *self.codec.info().levels.end(),
        );
        let step =
            usize::try_from((i32::from(high) - i32::from(low)) / 6 + 1).expect("levels in order");
        (low..=high)
            .step_by(step)
            .chain([high, i16::MIN, i16::MAX])
            .map(Level)
    }
}

/// More than any codec needs for `len` bytes.
fn room_for(len: usize) -> usize {
    2 * len + 1024
}
