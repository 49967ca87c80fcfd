//! Words to four bit streams and back.

use super::{
    CLASSES, CODE_MAX, ESCAPE, SYMBOLS, WINDOW,
    huffman::{self, Choice},
};
use crate::{
    simd::twin,
    step::{BETWEEN_MAX, PageError, Side, SideReader},
    word::Word,
};

/// How words fall into classes.
pub(crate) trait Classes<W: Word>: Copy {
    /// 0 for the word 0, 1 to 64, or 65 for a word without a class.
    fn class(&self, word: W) -> usize;
    /// Bits of a word of this class that its class leaves open. Not asked for class 65.
    fn raw_bits(&self, class: usize) -> u32;
    /// The word of this class whose open bits are zero, which are its lowest. Not asked for class 65.
    fn base(&self, class: usize) -> u64;
}

/// Scratch of one thread.
#[derive(Debug)]
pub(crate) struct Room {
    /// Of each word its class, or where words are bytes the word itself: what [`Code`]s are found by.
    keys: Box<[u8; BETWEEN_MAX]>,
    /// To pack, the streams, each from a multiple of [`LANE`]; to unpack, all of them with room behind.
    streams: Box<[u8; STREAMS * LANE]>,
    table: Box<Table>,
}

/// What each beginning of [`CODE_MAX`] bits means.
type Table = [Entry; 1 << CODE_MAX];

impl Default for Room {
    fn default() -> Self {
        Self {
            keys: Box::new([0; BETWEEN_MAX]),
            streams: Box::new([0; STREAMS * LANE]),
            table: Box::new([Entry::default(); 1 << CODE_MAX]),
        }
    }
}

/// A stream of nothing but the longest codes, with single bytes as words, which is the longest: a quarter of the words,
/// 10 and 8 bits each. And the 9 bytes that are read at once.
const LANE: usize = BETWEEN_MAX / STREAMS * (CODE_MAX as usize + 8) / 8 + 16;
// Where a stream begins within the packed bytes, it may run that far.
const _: () = assert!(BETWEEN_MAX + LANE <= STREAMS * LANE);

const STREAMS: usize = 4;
/// Bytes before the streams.
const HEADER: usize = 2 * (STREAMS - 1);

/// What a key stands for, for packing.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u64,
    len: u32,
    raw: u32,
}

/// Packs `words` into the front of `out` and the table to `side`; returns the packed length or `None` if it does not
/// fit.
pub(crate) fn pack_words<W: Word, C: Classes<W>>(
    words: &[W],
    classes: C,
    out: &mut [u8],
    side: &mut Side,
    room: &mut Room,
) -> Option<usize> {
    let histogram = classify(words, classes, room);
    let raw_bits = std::array::from_fn(|class| {
        if class < CLASSES - 1 {
            classes.raw_bits(class).min(W::BITS)
        } else {
            0
        }
    });
    let choice = huffman::choose(&histogram, &raw_bits, W::BITS);
    if (choice.bits as usize).div_ceil(8) + HEADER > out.len() {
        return None;
    }
    choice.put(side)?;
    let codes = choice.codes();
    let of_class = |class: usize| {
        let symbol = choice.symbol(class);
        let raw = if symbol == ESCAPE {
            W::BITS
        } else {
            raw_bits[class]
        };
        Code {
            bits: codes[symbol],
            len: u32::from(choice.lens[symbol]),
            raw,
        }
    };
    let mut of_key = [Code::default(); 256];
    if W::LEN == 1 {
        for (word, code) in of_key.iter_mut().enumerate() {
            let Code { bits, len, raw } = of_class(classes.class(W::truncate(word as u64)));
            *code = Code {
                bits: bits << raw | word as u64 & ((1 << raw) - 1),
                len: len + raw,
                raw: 0,
            };
        }
    } else {
        of_key[..CLASSES]
            .iter_mut()
            .enumerate()
            .for_each(|(class, code)| *code = of_class(class));
    }
    encode(
        words,
        &room.keys[..words.len()],
        &of_key,
        &mut room.streams,
        out,
    )
}

/// Fills `words` from `packed` and what `side` says.
pub(crate) fn unpack_words<W: Word, C: Classes<W>>(
    packed: &[u8],
    classes: C,
    words: &mut [W],
    side: &mut SideReader<'_>,
    room: &mut Room,
) -> Result<(), PageError> {
    let choice = Choice::take(side)?;
    let mut bases = [0u64; SYMBOLS];
    let mut raws = [0u32; SYMBOLS];
    for symbol in 0..SYMBOLS {
        let class = choice.class(symbol);
        if symbol == ESCAPE {
            raws[symbol] = W::BITS;
        } else if (0..CLASSES as i32 - 1).contains(&class) {
            raws[symbol] = classes.raw_bits(class as usize).min(W::BITS);
            bases[symbol] = classes.base(class as usize);
        }
    }
    decode(packed, &choice.lens, &bases, &raws, words, room)
}

twin! { fn classify<W: Word, C: Classes<W>>(words: &[W], classes: C, room: &mut Room) -> [u32; CLASSES] = classify_portable; }
twin! {
    fn encode<W: Word>(words: &[W], keys: &[u8], codes: &[Code; 256], lanes: &mut [u8; STREAMS * LANE], out: &mut [u8]) -> Option<usize> = encode_portable;
}
twin! {
    fn decode<W: Word>(packed: &[u8], lens: &[u8; SYMBOLS], bases: &[u64; SYMBOLS], raws: &[u32; SYMBOLS], words: &mut [W], room: &mut Room) -> Result<(), PageError> = decode_portable;
}

/// Notes the key of each word and counts the classes.
#[inline(always)]
fn classify_portable<W: Word, C: Classes<W>>(
    words: &[W],
    classes: C,
    room: &mut Room,
) -> [u32; CLASSES] {
    let key = |word: W| {
        if W::LEN == 1 {
            word.wide() as u8
        } else {
            classes.class(word) as u8
        }
    };
    // Four counts, since most words are of few classes and each addition would wait for the last.
    let mut counts = [[0u32; 256]; 4];
    let noted = &mut room.keys[..words.len()];
    let (fours, rest) = words.as_chunks::<4>();
    let (noted_fours, noted_rest) = noted.as_chunks_mut::<4>();
    for (words, noted) in fours.iter().zip(noted_fours) {
        *noted = words.map(key);
        noted
            .iter()
            .zip(&mut counts)
            .for_each(|(key, counts)| counts[usize::from(*key)] += 1);
    }
    for (word, noted) in rest.iter().zip(noted_rest) {
        *noted = key(*word);
        counts[0][usize::from(*noted)] += 1;
    }
    let of_key = |key: usize| counts.iter().map(|counts| counts[key]).sum::<u32>();
    if W::LEN > 1 {
        return std::array::from_fn(of_key);
    }
    let mut of_class = [0; CLASSES];
    (0..256).for_each(|key| of_class[classes.class(W::truncate(key as u64))] += of_key(key));
    of_class
}

#[inline(always)]
fn encode_portable<W: Word>(
    words: &[W],
    keys: &[u8],
    codes: &[Code; 256],
    lanes: &mut [u8; STREAMS * LANE],
    out: &mut [u8],
) -> Option<usize> {
    let (header, data) = out.split_at_mut_checked(HEADER)?;
    let mut at = 0;
    for (pair, lanes) in lanes
        .as_chunks_mut::<{ 2 * LANE }>()
        .0
        .iter_mut()
        .enumerate()
    {
        let (first, second) = lanes.split_at_mut(LANE);
        let lens = encode_pair(words, keys, codes, 2 * pair, [&mut *first, &mut *second]);
        for ((len, lane), stream) in lens.into_iter().zip([first, second]).zip(2 * pair..) {
            if let Some(to) = header.get_mut(2 * stream..2 * stream + 2) {
                to.copy_from_slice(&(len as u16).to_le_bytes());
            }
            data.get_mut(at..at + len)?.copy_from_slice(&lane[..len]);
            at += len;
        }
    }
    Some(HEADER + at)
}

/// Writes two streams, since what is done for one waits for its last word and not for the other's. Returns their
/// lengths.
#[inline(always)]
fn encode_pair<W: Word>(
    words: &[W],
    keys: &[u8],
    codes: &[Code; 256],
    first: usize,
    lanes: [&mut [u8]; 2],
) -> [usize; 2] {
    // So many words are sure to fit between two flushes.
    let group = (Bits::MOST / (CODE_MAX + W::BITS)).max(1) as usize;
    let mut streams = lanes.map(|out| Bits {
        out,
        at: 0,
        held: 0,
        fill: 0,
    });
    let (rounds, rest) = words.as_chunks::<STREAMS>();
    let (rounds_keys, rest_keys) = keys.as_chunks::<STREAMS>();
    for (words, keys) in rounds.chunks(group).zip(rounds_keys.chunks(group)) {
        for (words, keys) in words.iter().zip(keys) {
            for (n, bits) in streams.iter_mut().enumerate() {
                bits.put_word(words[first + n], &codes[usize::from(keys[first + n])]);
            }
        }
        streams.iter_mut().for_each(Bits::flush);
    }
    for (n, bits) in streams.iter_mut().enumerate() {
        if let (Some(word), Some(key)) = (rest.get(first + n), rest_keys.get(first + n)) {
            bits.put_word(*word, &codes[usize::from(*key)]);
            bits.flush();
        }
    }
    streams.map(Bits::finish)
}

/// Bits into bytes, highest first.
struct Bits<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Bits not yet passed by `at`, from the highest down: fewer than 8 after a flush.
    held: u64,
    fill: u32,
}

impl Bits<'_> {
    /// Most bits put between two flushes.
    const MOST: u32 = 56;

    #[inline(always)]
    fn put_word<W: Word>(&mut self, word: W, code: &Code) {
        let raw = if W::BITS == 64 && code.raw == 64 {
            word.wide()
        } else {
            word.wide() & ((1 << code.raw) - 1)
        };
        if W::BITS <= 32 || code.len + code.raw <= Self::MOST {
            self.put(code.bits << code.raw | raw, code.len + code.raw);
        } else {
            let half = code.raw / 2;
            self.put(code.bits, code.len);
            self.flush();
            self.put(raw >> half, code.raw - half);
            self.flush();
            self.put(raw & ((1 << half) - 1), half);
        }
    }

    /// Appends `count` bits, at least one.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) {
        self.fill += count;
        self.held |= bits << (64 - self.fill);
    }

    #[inline(always)]
    fn flush(&mut self) {
        // A lane has room for the longest stream and this.
        if let Some(to) = self.out.get_mut(self.at..self.at + 8) {
            to.copy_from_slice(&self.held.to_be_bytes());
        }
        let whole = self.fill & !7;
        self.at += (whole / 8) as usize;
        self.held <<= whole;
        self.fill -= whole;
    }

    /// Bytes written, after the last flush.
    #[inline(always)]
    fn finish(self) -> usize {
        self.at + usize::from(self.fill > 0)
    }
}

/// What the next [`CODE_MAX`] bits begin with.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Bits of code and raw bits together.
    total: u8,
    len: u8,
    raw: u8,
    symbol: u8,
}

#[inline(always)]
fn decode_portable<W: Word>(
    packed: &[u8],
    lens: &[u8; SYMBOLS],
    bases: &[u64; SYMBOLS],
    raws: &[u32; SYMBOLS],
    words: &mut [W],
    room: &mut Room,
) -> Result<(), PageError> {
    const SHORT: PageError = PageError::Corrupt("streams are cut short");
    fill(&mut room.table, lens, raws)?;
    let (header, data) = packed.split_at_checked(HEADER).ok_or(SHORT)?;
    if data.len() > BETWEEN_MAX {
        return Err(PageError::Corrupt("streams longer than they can be"));
    }
    room.streams[..data.len()].copy_from_slice(data);
    // In bits. No stream can run further than `LANE` from where it starts, so that no place need be checked on the way;
    // whether each ended where the next begins is checked behind.
    let mut ends = [0; STREAMS];
    let mut places = [0; STREAMS];
    let mut end = 0;
    for stream in 0..STREAMS {
        places[stream] = 8 * end;
        end = match header.get(2 * stream..2 * stream + 2) {
            Some(len) => end + usize::from(u16::from_le_bytes([len[0], len[1]])),
            None => data.len(),
        };
        if end > data.len() {
            return Err(SHORT);
        }
        ends[stream] = end;
    }
    let (streams, table) = (&*room.streams, &*room.table);
    assert!(
        words.len() <= BETWEEN_MAX / W::LEN,
        "as many words as there may be between two steps"
    );
    let next = |place: &mut usize| -> W {
        let load = |at: usize| {
            debug_assert!(at + 8 <= streams.len());
            // SAFETY: `place` starts within `BETWEEN_MAX` bytes and moves on by at most `CODE_MAX + W::BITS` bits a word, at
            // most `BETWEEN_MAX / W::LEN / 4 + 1` times: at most `LANE - 16` bytes and one word further. 9 bytes are
            // read.
            u64::from_be(unsafe { streams.as_ptr().add(at).cast::<u64>().read_unaligned() })
        };
        let top = load(*place / 8) << (*place % 8);
        let entry = table[(top >> (64 - CODE_MAX)) as usize];
        let at = *place + usize::from(entry.len);
        *place += usize::from(entry.total);
        let raw_bits = u32::from(entry.raw);
        let raw = if W::BITS <= 32 {
            // Code and raw bits together are within the 57 bits read above.
            (top << entry.len >> 1) >> (63 - raw_bits)
        } else {
            let mut top = load(at / 8) << (at % 8);
            // SAFETY: as above.
            top |= u64::from(unsafe { *streams.as_ptr().add(at / 8 + 8) }) >> (8 - at % 8);
            if raw_bits == 64 {
                top
            } else {
                (top >> 1) >> (63 - raw_bits)
            }
        };
        W::truncate(bases[usize::from(entry.symbol) % SYMBOLS] | raw)
    };
    let (rounds, rest) = words.as_chunks_mut::<STREAMS>();
    let [mut a, mut b, mut c, mut d] = places;
    for round in rounds {
        *round = [next(&mut a), next(&mut b), next(&mut c), next(&mut d)];
    }
    places = [a, b, c, d];
    for (word, place) in rest.iter_mut().zip(&mut places) {
        *word = next(place);
    }
    if places.map(|place| place.div_ceil(8)) == ends {
        Ok(())
    } else {
        Err(PageError::Corrupt("a stream of another length"))
    }
}

/// Makes the table for these codes. Bits that begin no code mean an escape, of the longest code.
#[inline(always)]
fn fill(table: &mut Table, lens: &[u8; SYMBOLS], raws: &[u32; SYMBOLS]) -> Result<(), PageError> {
    let none = Entry {
        total: (CODE_MAX + raws[ESCAPE]) as u8,
        len: CODE_MAX as u8,
        raw: raws[ESCAPE] as u8,
        symbol: ESCAPE as u8,
    };
    // Where the codes of each length begin, shorter ones before longer.
    let mut at = [0usize; CODE_MAX as usize + 2];
    for &len in lens {
        at[usize::from(len) + 1] += if len == 0 {
            0
        } else {
            1 << (CODE_MAX - u32::from(len))
        };
    }
    for len in 1..at.len() {
        at[len] += at[len - 1];
    }
    if at[CODE_MAX as usize + 1] > 1 << CODE_MAX {
        return Err(PageError::Corrupt("too many short codes"));
    }
    for (symbol, &len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
        let raw = raws[symbol] as u8;
        let start = &mut at[usize::from(len)];
        let run = 1 << (CODE_MAX - u32::from(len));
        table[*start..*start + run].fill(Entry {
            total: len + raw,
            len,
            raw,
            symbol: symbol as u8,
        });
        *start += run;
    }
    // Codes lie one behind the other, so what is left is at the end.
    table[at[CODE_MAX as usize]..].fill(none);
    Ok(())
}

const _: () = assert!(WINDOW + 2 == SYMBOLS);
