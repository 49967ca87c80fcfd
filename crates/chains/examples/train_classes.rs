//! Makes `src/steps/classes/tables.rs` from any files: `train_classes TABLES FILE…`, Rust source on stdout.
//!
//! Every page that differences shorten, at some width, gives the counts of its symbols. k-means over these counts, with
//! the bits that a table would take as distance: a page belongs to the table that codes it shortest, and a table is the
//! Huffman code of all counts of its pages together, each page weighing the same.

use std::{env, fs};

use narrows_chains::{PAGE, steps::classes::training};

type Counts = [u32; 32];

/// What a table of its own costs a page of 1000 words.
const OWN_BITS: u32 = 128;

#[allow(clippy::too_many_lines, reason = "a tool's own table or report")]
fn main() {
    let mut args = env::args().skip(1);
    let tables: usize = args
        .next()
        .and_then(|n| n.parse().ok())
        .expect("usage: train_classes TABLES FILE…");
    let files: Vec<String> = args.collect();
    let mut pages: Vec<Counts> = vec![];
    let mut names: Vec<&str> = vec![];
    for path in &files {
        let bytes = fs::read(path).expect("a readable file");
        let all = bytes.as_chunks::<PAGE>().0;
        let mut used = 0;
        // At most 300 pages a file, so that no set outweighs the others by its size.
        for page in all.iter().step_by(all.len() / 300 + 1) {
            if page[..PAGE - 8] == page[8..] {
                continue;
            }
            let of_width = [1, 2, 4, 8].map(|width| {
                let (counts, raw_len) = training::counts(page, width);
                let total: u32 = counts.iter().sum();
                let entropy: f64 = counts
                    .iter()
                    .filter(|&&n| n > 0)
                    .map(|&n| f64::from(n) * (f64::from(total) / f64::from(n)).log2())
                    .sum();
                (raw_len as f64 + entropy / 8.0, counts)
            });
            let best = of_width
                .into_iter()
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .expect("four widths");
            if best.0 < 3000.0 {
                let total: u32 = best.1.iter().sum();
                pages.push(best.1.map(|n| n * 1000 / total.max(1)));
                used += 1;
            }
        }
        if used > 0 {
            names.push(path.rsplit('/').next().expect("a name"));
        }
    }
    let bits = |counts: &Counts, lens: &[u8; 32]| -> u32 {
        counts
            .iter()
            .zip(lens)
            .map(|(&n, &len)| n * u32::from(len))
            .sum()
    };
    // Every symbol has a code in every table: a page may have a word of any class.
    let table = |members: &mut dyn Iterator<Item = &Counts>| -> [u8; 32] {
        let mut sum = [1u32; 32];
        for counts in members {
            sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        training::code_lens(&sum)
    };
    // A page that a table of its own suits better, though the page must carry it, is none of a table's business.
    let own: Vec<u32> = pages
        .iter()
        .map(|page| bits(page, &table(&mut std::iter::once(page))) + OWN_BITS)
        .collect();
    // To begin with, the pages in the order of what they take, cut into as many runs as there are tables.
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by_key(|&n| own[n]);
    let mut lens: Vec<_> = order
        .chunks(pages.len().div_ceil(tables))
        .map(|run| table(&mut run.iter().map(|&n| &pages[n])))
        .collect();
    let mut cost = 0;
    for _ in 0..100 {
        let mut members = vec![vec![]; lens.len()];
        cost = 0;
        for (page, own) in pages.iter().zip(&own) {
            let (bits, t) = (0..lens.len())
                .map(|t| (bits(page, &lens[t]), t))
                .min()
                .expect("a table");
            cost += u64::from(bits.min(*own));
            if bits <= *own {
                members[t].push(page);
            }
        }
        for (lens, members) in lens.iter_mut().zip(members) {
            if !members.is_empty() {
                *lens = table(&mut members.into_iter());
            }
        }
    }
    let own: u64 = own.iter().map(|own| u64::from(own - OWN_BITS)).sum();
    eprintln!(
        "{} pages of {} files; {:.2} % above a table for each page that costs nothing",
        pages.len(),
        names.len(),
        100.0 * (cost as f64 / own as f64 - 1.0)
    );
    lens.sort_unstable();
    println!(
        "//! Code lengths of classes, made by `examples/train_classes.rs` from {} pages of {} files:",
        pages.len(),
        names.len()
    );
    for line in names.chunks(6) {
        println!("//! {}", line.join(", "));
    }
    println!(
        "\nuse super::SYMBOLS;\n\n/// By number of the table. One that was released keeps its number for ever."
    );
    println!("#[rustfmt::skip]\npub(super) const TABLES: [[u8; SYMBOLS]; {tables}] = [");
    for lens in &lens {
        println!("    {lens:?},");
    }
    println!("];");
}
