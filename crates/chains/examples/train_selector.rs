//! Makes `src/select/model.rs` from any files, each a set of its own: `train_selector FILE…`, Rust source on stdout, errors on stderr.
//!
//! For every page: what [`narrows_chains::select::features`] sees, and its packed size under every chain. A split is chosen so
//! that the best single chain of either side stores fewest bytes; a leaf lists chains so that each adds most to those before.
//! The error printed is that of a set under a tree made without it: bytes stored above those of the best chain for
//! each page.

use std::{env, fs};

use narrows_chains::{
    Chain, PAGE, Profile,
    chain::Scratch,
    select::{
        features::{FEATURES, Features, look},
        numeric,
    },
};

struct Page {
    set: usize,
    features: Features,
    /// Stored bytes under each chain.
    sizes: Vec<u16>,
    /// Stored bytes under the chain of [`numeric`], which is tried before any tree is asked: packed, and coded.
    numeric: [u16; 2],
}

enum Tree {
    Split(u8, u8, Box<Tree>, Box<Tree>),
    Leaf(Vec<u8>),
}

/// What a profile may use.
struct Rules {
    profile: Profile,
    name: &'static str,
    chains: Vec<usize>,
    /// Chains of a leaf.
    list: usize,
    depth: usize,
}

fn main() {
    let files: Vec<String> = env::args().skip(1).collect();
    let pages = measure(&files);
    let chains = Chain::builtins();
    // What is dear is not for every profile: entropy coders not for the fast one, zstd's and libdeflate's not where they would be
    // slower than what is promised.
    let having = |no: &[&str]| -> Vec<usize> {
        (0..chains.len()).filter(|&n| !no.iter().any(|no| chains[n].to_string().contains(no))).collect()
    };
    let rules = [
        Rules { profile: Profile::Fast, name: "FAST", chains: having(&["zstd", "deflate", "ce", "ex", "lag", "bt", "lzts"]), list: 1, depth: 6 },
        Rules { profile: Profile::Balanced, name: "BALANCED", chains: having(&["zstd", "deflate", "lag", "bt", "lzts"]), list: 1, depth: 8 },
        Rules { profile: Profile::Ratio, name: "RATIO", chains: having(&[]), list: 6, depth: 8 },
    ];
    println!("//! Made by `examples/train_selector.rs` from {} pages of these sets:", pages.len());
    let names: Vec<&str> = files.iter().map(|path| path.rsplit('/').next().expect("a name")).collect();
    for line in names.chunks(6) {
        println!("//! {}", line.join(", "));
    }
    println!("//! Chains by number: `docs/specs/chain.md`.\n\nuse super::tree::{{Node, Node::{{Leaf, Split}}}};");
    for rules in &rules {
        let all: Vec<&Page> = pages.iter().collect();
        let tree = grow(&all, rules, rules.depth);
        let (seen, best) = stored(&all, &tree, rules);
        let (mut unseen, mut worst) = (0, (0.0, ""));
        for (set, name) in names.iter().enumerate() {
            let (test, train): (Vec<&Page>, Vec<&Page>) = all.iter().partition(|page| page.set == set);
            if test.is_empty() { continue; }
            let (got, best) = stored(&test, &grow(&train, rules, rules.depth), rules);
            unseen += got;
            let over = got as f64 / best as f64 - 1.0;
            if env::var("VERBOSE").is_ok() { eprintln!("  {:?} {name}: {:+.2} %", rules.profile, 100.0 * over); }
            if over > worst.0 {
                worst = (over, name);
            }
        }
        let over = |bytes: usize| 100.0 * (bytes as f64 / best as f64 - 1.0);
        eprintln!("{:?}: {:+.2} % on what it was made from; {:+.2} % leaving one set out, worst {} {:+.1} %", rules.profile, over(seen), over(unseen), worst.1, 100.0 * worst.0);
        let mut nodes = vec![];
        print(&tree, &mut nodes);
        println!("\n#[rustfmt::skip]\npub(super) const {}: &[Node] = &[", rules.name);
        nodes.iter().for_each(|node| println!("    {node},"));
        println!("];");
    }
}

fn measure(files: &[String]) -> Vec<Page> {
    const PAGES: usize = 160;
    let scratch = &mut Scratch::default();
    let mut pages = vec![];
    for (set, path) in files.iter().enumerate() {
        let bytes = fs::read(path).expect("a readable file");
        let all = bytes.as_chunks::<PAGE>().0;
        for page in all.iter().step_by(all.len() / PAGES + 1) {
            if page[..PAGE - 8] == page[8..] {
                continue;
            }
            let mut out = [0; PAGE];
            let mut size = |chain: &Chain| chain.pack(page, &mut out[..3264], scratch).unwrap_or(PAGE) as u16;
            let sizes: Vec<u16> = Chain::builtins().iter().map(&mut size).collect();
            let features = look(page);
            let numeric = [Profile::Fast, Profile::Ratio].map(|profile| sizes[usize::from(numeric(profile, &features))]);
            pages.push(Page { set, features, sizes, numeric });
        }
    }
    pages
}

/// Bytes stored when the first chains of each leaf are tried, and when all are.
fn stored(pages: &[&Page], tree: &Tree, rules: &Rules) -> (usize, usize) {
    let least = |page: &Page, of: &mut dyn Iterator<Item = usize>| of.map(|chain| usize::from(page.sizes[chain])).min().unwrap_or(PAGE).min(usize::from(rules.numeric(page)));
    let got = |page: &&&Page| least(page, &mut leaf(tree, &page.features).iter().map(|&chain| usize::from(chain)));
    (pages.iter().map(|page| got(&page)).sum(), pages.iter().map(|page| least(page, &mut rules.chains.iter().copied())).sum())
}

fn leaf<'a>(tree: &'a Tree, features: &Features) -> &'a [u8] {
    match tree {
        Tree::Leaf(chains) => chains,
        Tree::Split(feature, at_most, below, above) => {
            leaf(if features[usize::from(*feature)] <= *at_most { below } else { above }, features)
        }
    }
}

/// Fewer pages than this are not split.
const FEW: usize = 24;

fn grow(pages: &[&Page], rules: &Rules, depth: usize) -> Tree {
    let chains = Chain::builtins().len();
    // Weighed so that each set counts about the same per page, but a page that packs well counts in what it is worth.
    let cost = |sums: &[u64]| rules.chains.iter().map(|&chain| sums[chain]).min().unwrap_or(0);
    let mut totals = vec![0u64; chains];
    for page in pages {
        add(&mut totals, page, rules);
    }
    let mut best = (cost(&totals), 0, 0);
    if depth > 0 && pages.len() >= 2 * FEW {
        for feature in 0..FEATURES {
            let mut bins = vec![(0usize, vec![0u64; chains]); 256];
            for page in pages {
                let bin = &mut bins[usize::from(page.features[feature])];
                bin.0 += 1;
                add(&mut bin.1, page, rules);
            }
            let (mut count, mut below) = (0, vec![0u64; chains]);
            for (at_most, bin) in bins.iter().enumerate() {
                if bin.0 == 0 {
                    continue;
                }
                count += bin.0;
                below.iter_mut().zip(&bin.1).for_each(|(sum, bin)| *sum += bin);
                if count < FEW || pages.len() - count < FEW {
                    continue;
                }
                let above: Vec<u64> = totals.iter().zip(&below).map(|(total, below)| total - below).collect();
                let split = cost(&below) + cost(&above);
                if split < best.0 {
                    best = (split, feature as u8, at_most as u8 + 1);
                }
            }
        }
    }
    let (split, feature, past) = best;
    // A split must be worth something, or it fits noise.
    if past == 0 || (cost(&totals) - split) * 1000 < cost(&totals) {
        return Tree::Leaf(cover(pages, rules));
    }
    let (below, above): (Vec<&Page>, Vec<&Page>) = pages.iter().partition(|page| page.features[usize::from(feature)] < past);
    Tree::Split(feature, past - 1, Box::new(grow(&below, rules, depth - 1)), Box::new(grow(&above, rules, depth - 1)))
}

impl Rules {
    fn numeric(&self, page: &Page) -> u16 {
        page.numeric[usize::from(self.profile != Profile::Fast)]
    }
}

fn add(sums: &mut [u64], page: &Page, rules: &Rules) {
    // Ratios are what is promised, of every set: so a byte weighs more in a page that packs well.
    let best = u64::from(*page.sizes.iter().min().expect("some chains"));
    for (sum, &size) in sums.iter_mut().zip(&page.sizes) {
        *sum += u64::from(size.min(rules.numeric(page))) * 4096 / (best + 256);
    }
}

/// Chains that together store least, the first alone storing least.
fn cover(pages: &[&Page], rules: &Rules) -> Vec<u8> {
    let mut held: Vec<u16> = pages.iter().map(|page| rules.numeric(page)).collect();
    let mut list = vec![];
    while list.len() < rules.list {
        let worth = |chain: usize| -> u64 {
            pages.iter().zip(&held).map(|(page, &held)| {
                let best = u64::from(*page.sizes.iter().min().expect("some chains"));
                u64::from(page.sizes[chain].min(held)) * 4096 / (best + 256)
            }).sum()
        };
        let before: u64 = worth(rules.chains[0]).max(rules.chains.iter().map(|&c| worth(c)).max().unwrap_or(0));
        let Some((after, chain)) = rules.chains.iter().map(|&chain| (worth(chain), chain)).min() else { break };
        if !list.is_empty() && (before - after) * 2000 < before {
            break;
        }
        list.push(chain as u8);
        held.iter_mut().zip(pages).for_each(|(held, page)| *held = (*held).min(page.sizes[chain]));
    }
    list
}

fn print(tree: &Tree, nodes: &mut Vec<String>) {
    match tree {
        Tree::Leaf(chains) => nodes.push(format!("Leaf(&{chains:?})")),
        Tree::Split(feature, at_most, below, above) => {
            let at = nodes.len();
            nodes.push(String::new());
            print(below, nodes);
            nodes[at] = format!("Split {{ feature: {feature}, at_most: {at_most}, above: {} }}", nodes.len());
            print(above, nodes);
        }
    }
}
