//! Trains the codes of LZ-T from pages, and writes them as `kinds.bin`.
//!
//! Pages are sorted into kinds by what they would cost in each, kinds are made of the pages they won, and so on until
//! little changes (k-means with code lengths as distance). Within a kind the 256 bytes that can precede a literal are
//! sorted into contexts in the same way. Then the pages are parsed anew by the prices found, twice.

use super::{
    code::SECOND_BITS,
    kinds::{CONTEXTS, KIND_BYTES, KINDS, Kind, LITERAL_LEN_MAX, Ready, SMALL_MAX, TOKEN_LEN_MAX},
    parse::Parser,
    search::Finder,
    token::{Match, OFFSET_FIRST, TOKENS, shares},
};

/// Rounds of sorting pages into kinds, and of sorting bytes into contexts.
const ROUNDS: usize = 12;
/// Starts of the first sort, of which the best is kept.
const STARTS: u64 = 4;

/// Makes a `kinds.bin`: `header`, a text without zero bytes, and two sets of kinds from `clusters` of up to 16 KiB.
///
/// # Panics
/// If there are fewer than 8 clusters.
#[must_use]
pub fn train(header: &str, clusters: &[Vec<u8>]) -> Vec<u8> {
    let pages: Vec<&[u8]> = clusters
        .iter()
        .flat_map(|cluster| cluster.chunks(SMALL_MAX))
        .collect();
    let clusters: Vec<&[u8]> = clusters
        .iter()
        .map(Vec::as_slice)
        .filter(|cluster| cluster.len() > SMALL_MAX)
        .collect();
    let mut file = header.as_bytes().to_vec();
    file.push(0);
    for pages in [pages, clusters] {
        for kind in train_set(&pages) {
            let start = file.len();
            kind.write(&mut file);
            debug_assert_eq!(file.len() - start, KIND_BYTES);
        }
    }
    file
}

/// What one parse of a page says: pairs of literals with the literal before, and tokens.
struct Sample {
    pairs: Vec<(u8, u8)>,
    tokens: Vec<u16>,
}

impl Sample {
    fn new(page: &[u8], matches: &[Match]) -> Self {
        let mut sample = Self {
            pairs: Vec::new(),
            tokens: Vec::with_capacity(matches.len()),
        };
        let (mut at, mut before, mut literal_before) = (0, OFFSET_FIRST, 0);
        for m in matches {
            sample.literals(&page[at..at + usize::from(m.literals)], &mut literal_before);
            sample.tokens.push(m.coded(before).token);
            before = m.offset;
            at += usize::from(m.literals) + usize::from(m.len);
        }
        sample.literals(&page[at..], &mut literal_before);
        sample
    }

    fn literals(&mut self, literals: &[u8], before: &mut u8) {
        for &literal in literals {
            self.pairs.push((*before, literal));
            *before = literal;
        }
    }
}

fn train_set(pages: &[&[u8]]) -> Vec<Kind> {
    let mut finder = Finder::default();
    let fast: Vec<Sample> = pages
        .iter()
        .map(|page| {
            finder.load(page);
            finder.search(page.len());
            Sample::new(page, finder.matches())
        })
        .collect();
    let (_, mut owner) = (0..STARTS)
        .map(|seed| sort(&fast, first_owners(fast.len(), seed)))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("a start");
    let mut kinds = make_kinds(&fast, &owner);
    let mut parser = Parser::default();
    for _ in 0..2 {
        let ready: Vec<Ready> = kinds
            .iter()
            .map(|kind| Ready::new(kind).expect("complete codes"))
            .collect();
        let strong = pages.iter().zip(&owner).map(|(page, &owner)| {
            finder.load(page);
            parser.parse(finder.page(), page.len(), &ready[owner]);
            Sample::new(page, parser.matches())
        });
        // One set of codes serves both searches, so both teach it.
        let strong: Vec<Sample> = strong.collect();
        let both: Vec<Sample> = fast
            .iter()
            .zip(strong)
            .map(|(fast, strong)| Sample {
                pairs: [&fast.pairs[..], &strong.pairs].concat(),
                tokens: [&fast.tokens[..], &strong.tokens].concat(),
            })
            .collect();
        (_, owner) = sort(&both, owner);
        kinds = make_kinds(&both, &owner);
    }
    kinds
}

/// Each page's first kind: that of a random page it is near to, by the order of `seed`.
fn first_owners(pages: usize, seed: u64) -> Vec<usize> {
    // Neighbours are alike: runs of pages start in one kind.
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut owner = 0;
    (0..pages)
        .map(|page| {
            if page % 64 == 0 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                owner = (state >> 40) as usize % KINDS;
            }
            owner
        })
        .collect()
}

/// Sorts samples into kinds, from the owners given. Returns the bits in all and each sample's kind.
fn sort(samples: &[Sample], mut owners: Vec<usize>) -> (f64, Vec<usize>) {
    let mut total = 0.0;
    for _ in 0..ROUNDS {
        let costs: Vec<(Vec<f32>, Vec<f32>)> = (0..KINDS)
            .map(|kind| {
                let (mut literals, mut tokens) = (vec![0.0; 256], vec![0.0; TOKENS]);
                for (sample, _) in samples
                    .iter()
                    .zip(&owners)
                    .filter(|(_, owner)| **owner == kind)
                {
                    sample
                        .pairs
                        .iter()
                        .for_each(|pair| literals[usize::from(pair.1)] += 1.0);
                    sample
                        .tokens
                        .iter()
                        .for_each(|&token| tokens[usize::from(token)] += 1.0);
                }
                (
                    bits(&literals, &[1.0; 256]),
                    bits(&tokens, &shares(&tokens)),
                )
            })
            .collect();
        total = 0.0;
        for (sample, owner) in samples.iter().zip(&mut owners) {
            let cost = |(literals, tokens): &(Vec<f32>, Vec<f32>)| {
                sample
                    .pairs
                    .iter()
                    .map(|pair| literals[usize::from(pair.1)])
                    .sum::<f32>()
                    + sample
                        .tokens
                        .iter()
                        .map(|&token| tokens[usize::from(token)])
                        .sum::<f32>()
            };
            let best;
            (best, *owner) = costs
                .iter()
                .map(cost)
                .zip(0..)
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .expect("there are kinds");
            total += f64::from(best);
        }
    }
    (total, owners)
}

/// Bits of each symbol by counts, with a little of `prior` added so that none is impossible.
fn bits(counts: &[f32], prior: &[f32]) -> Vec<f32> {
    let smooth = smooth(counts, prior);
    let sum: f32 = smooth.iter().sum();
    smooth.iter().map(|count| (sum / count).log2()).collect()
}

/// Counts and a hundredth of `prior`'s shape, and something for everything.
fn smooth(counts: &[f32], prior: &[f32]) -> Vec<f32> {
    let sum = |of: &[f32]| of.iter().sum::<f32>();
    let scale = (sum(counts) * 0.01 + 1.0) / sum(prior).max(1e-9);
    let floor = (sum(counts) + 1.0) * 1e-6;
    counts
        .iter()
        .zip(prior)
        .map(|(count, prior)| count + prior * scale + floor)
        .collect()
}

fn make_kinds(samples: &[Sample], owners: &[usize]) -> Vec<Kind> {
    (0..KINDS)
        .map(|kind| {
            let mut pairs = vec![0.0; 1 << 16];
            let mut tokens = vec![0.0; TOKENS];
            for (sample, _) in samples
                .iter()
                .zip(owners)
                .filter(|(_, owner)| **owner == kind)
            {
                sample
                    .pairs
                    .iter()
                    .for_each(|&(a, b)| pairs[usize::from(a) << 8 | usize::from(b)] += 1.0);
                sample
                    .tokens
                    .iter()
                    .for_each(|&token| tokens[usize::from(token)] += 1.0);
            }
            let token_lens = code_lens(&smooth(&tokens, &shares(&tokens)), TOKEN_LEN_MAX);
            let (context_of, literal_lens) = contexts(&pairs);
            let cost = std::array::from_fn(|literal| {
                let (mut sum, mut count) = (0.0, 0.0);
                for before in 0..256 {
                    let weight = pairs[before << 8 | literal] + 1e-3;
                    sum +=
                        weight * f32::from(literal_lens[usize::from(context_of[before])][literal]);
                    count += weight;
                }
                (sum / count * 16.0) as u8
            });
            Kind {
                context_of,
                cost,
                literal_lens,
                token_lens: token_lens.try_into().expect("a length each"),
            }
        })
        .collect()
}

/// Sorts the bytes before a literal into contexts, and codes the literals of each.
fn contexts(pairs: &[f32]) -> ([u8; 256], [[u8; 256]; CONTEXTS]) {
    let row = |before: usize| &pairs[before << 8..(before + 1) << 8];
    let mut all = vec![0.0; 256];
    (0..256).for_each(|before| {
        all.iter_mut()
            .zip(row(before))
            .for_each(|(sum, count)| *sum += count)
    });
    // To begin with, the busiest bytes are dealt round.
    let mut by_count: Vec<usize> = (0..256).collect();
    by_count.sort_by(|&a, &b| row(b).iter().sum::<f32>().total_cmp(&row(a).iter().sum()));
    let mut context_of = [0; 256];
    by_count
        .iter()
        .enumerate()
        .for_each(|(i, &before)| context_of[before] = (i % CONTEXTS) as u8);
    let counts = |context_of: &[u8; 256]| {
        let mut counts = vec![vec![0.0; 256]; CONTEXTS];
        for (before, &context) in context_of.iter().enumerate() {
            counts[usize::from(context)]
                .iter_mut()
                .zip(row(before))
                .for_each(|(sum, count)| *sum += count);
        }
        counts
    };
    for _ in 0..ROUNDS {
        let costs: Vec<Vec<f32>> = counts(&context_of)
            .iter()
            .map(|counts| bits(counts, &all))
            .collect();
        for (before, context) in context_of.iter_mut().enumerate() {
            let cost = |costs: &Vec<f32>| {
                costs
                    .iter()
                    .zip(row(before))
                    .map(|(cost, count)| cost * count)
                    .sum::<f32>()
            };
            *context = (0..CONTEXTS as u8)
                .min_by(|&a, &b| {
                    cost(&costs[usize::from(a)]).total_cmp(&cost(&costs[usize::from(b)]))
                })
                .expect("there are contexts");
        }
    }
    let counts = counts(&context_of);
    let lens = std::array::from_fn(|context| {
        code_lens(&smooth(&counts[context], &all), LITERAL_LEN_MAX)
            .try_into()
            .expect("a length each")
    });
    (context_of, lens)
}

/// Lengths of the best prefix code no longer than `len_max` (package-merge; Larmore and Hirschberg 1990).
pub(super) fn code_lens(counts: &[f32], len_max: u8) -> Vec<u8> {
    debug_assert!(len_max > SECOND_BITS && counts.len() <= 1 << len_max);
    // A node is a weight and the symbols in it, each of which gets a bit longer when the node is taken.
    let mut leaves: Vec<(f64, Vec<u16>)> = counts
        .iter()
        .enumerate()
        .map(|(symbol, &count)| (f64::from(count), vec![symbol as u16]))
        .collect();
    leaves.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut nodes = leaves.clone();
    for _ in 1..len_max {
        let mut merged: Vec<(f64, Vec<u16>)> = nodes
            .chunks_exact(2)
            .map(|pair| (pair[0].0 + pair[1].0, [&pair[0].1[..], &pair[1].1].concat()))
            .collect();
        merged.extend(leaves.iter().cloned());
        merged.sort_by(|a, b| a.0.total_cmp(&b.0));
        nodes = merged;
    }
    let mut lens = vec![0; counts.len()];
    for (_, symbols) in nodes.iter().take(2 * counts.len() - 2) {
        symbols
            .iter()
            .for_each(|&symbol| lens[usize::from(symbol)] += 1);
    }
    lens
}
