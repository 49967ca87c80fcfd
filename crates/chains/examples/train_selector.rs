//! Makes `src/select/model.rs` from any sets, files or names of [`simulated::named`]: `train_selector SET…`, Rust
//! source on stdout, errors on stderr (those of every set with `VERBOSE` in the environment).
//!
//! For every page: what [`narrows_chains::select::features`] sees, and its packed size under every chain. A split is
//! chosen so that the best single chain of either side stores fewest bytes; a leaf lists chains so that each adds most
//! to those before. The error printed is that of a set under a tree made without it: bytes stored above those of the
//! best chain for each page.

use std::{env, fs};

use narrows_chains::{
    Chain, PAGE, Profile,
    chain::Scratch,
    select::{
        BY_WIDTH, by_width,
        features::{FEATURES, Features, look},
    },
    simulated,
};

struct Page {
    set: usize,
    features: Features,
    /// Stored bytes under each chain.
    sizes: Vec<u16>,
    /// Stored bytes under the best of them.
    least: u16,
}

enum Tree {
    Split(u8, u8, Box<Tree>, Box<Tree>),
    Leaf(Vec<u8>),
}

/// What a profile may use.
struct Rules {
    profile: Profile,
    name: &'static str,
    chains: Vec<u8>,
    /// Most chains of a leaf.
    list: usize,
    /// A leaf's chain must save this share of the bytes, in thousandths, beside those before it.
    gain: u64,
    depth: usize,
}

impl Rules {
    fn new(
        profile: Profile,
        name: &'static str,
        without: &[&str],
        list: usize,
        gain: u64,
        depth: usize,
    ) -> Self {
        let fits = |chain: &&Chain| {
            let name = chain.to_string();
            !name
                .split('-')
                .any(|step| without.iter().any(|without| step.starts_with(without)))
        };
        let mut chains: Vec<u8> = Chain::builtins()
            .iter()
            .filter(fits)
            .filter_map(Chain::builtin)
            .collect();
        chains.push(BY_WIDTH);
        Self {
            profile,
            name,
            chains,
            list,
            gain,
            depth,
        }
    }

    /// Bytes stored of a page under a chain.
    fn size(&self, page: &Page, chain: u8) -> u16 {
        let chain = if chain == BY_WIDTH {
            by_width(self.profile, &page.features).chain
        } else {
            chain
        };
        page.sizes[usize::from(chain)]
    }

    /// What these bytes weigh: ratios are what is promised, of every set, so a byte weighs more in a page that packs
    /// well.
    fn weight(page: &Page, size: u16) -> u64 {
        u64::from(size) * 4096 / (u64::from(page.least) + 256)
    }
}

fn main() {
    let files: Vec<String> = env::args().skip(1).collect();
    let pages = measure(&files);
    // What is dear is not for every profile: entropy coders not for the fast one, libdeflate not where it would be
    // slower than what is promised.
    let rules = [
        Rules::new(
            Profile::Fast,
            "FAST",
            &[
                "zstd", "deflate", "ce", "ex", "lag", "im", "num", "bt", "lzts", "mk1",
            ],
            1,
            30,
            7,
        ),
        Rules::new(
            Profile::Balanced,
            "BALANCED",
            &["deflate", "lag", "im", "num", "bt", "lzts"],
            2,
            20,
            8,
        ),
        Rules::new(Profile::Ratio, "RATIO", &[], 5, 1, 8),
    ];
    println!(
        "//! Made by `examples/train_selector.rs` from {} pages of these sets:",
        pages.len()
    );
    let names: Vec<&str> = files
        .iter()
        .map(|path| path.rsplit('/').next().expect("a name"))
        .collect();
    for line in names.chunks(6) {
        println!("//! {}", line.join(", "));
    }
    println!("//! Chains by number: `docs/specs/chain.md`; 255: by the widths of differences.");
    println!("\nuse super::tree::{{\n    Node,\n    Node::{{Leaf, Split}},\n}};");
    for rules in &rules {
        let all: Vec<&Page> = pages.iter().collect();
        let tree = grow(&all, rules, rules.depth);
        report(&all, &tree, rules, &names);
        let mut nodes = vec![];
        print(&tree, &mut nodes);
        println!(
            "\n#[rustfmt::skip]\npub(super) const {}: &[Node] = &[",
            rules.name
        );
        nodes.iter().for_each(|node| println!("    {node},"));
        println!("];");
    }
}

fn measure(files: &[String]) -> Vec<Page> {
    const PAGES: usize = 160;
    let scratch = &mut Scratch::default();
    let mut pages = vec![];
    for (set, path) in files.iter().enumerate() {
        let bytes =
            simulated::named(path).unwrap_or_else(|| fs::read(path).expect("a readable file"));
        let all = bytes.as_chunks::<PAGE>().0;
        for page in all
            .iter()
            .step_by(all.len() / PAGES + 1)
            .filter(|page| page[..PAGE - 8] != page[8..])
        {
            let mut out = [0; PAGE];
            let size =
                |chain: &Chain| chain.pack(page, &mut out[..3264], scratch).unwrap_or(PAGE) as u16;
            let sizes: Vec<u16> = Chain::builtins().iter().map(size).collect();
            let least = *sizes.iter().min().expect("some chains");
            pages.push(Page {
                set,
                features: look(page),
                sizes,
                least,
            });
        }
    }
    pages
}

/// The error on what the tree was made from, and of each set under a tree made without it.
fn report(all: &[&Page], tree: &Tree, rules: &Rules, names: &[&str]) {
    let (seen, best) = stored(all, tree, rules);
    let (mut unseen, mut worst) = (0, (0.0, ""));
    for (set, name) in names.iter().enumerate() {
        let (test, train): (Vec<&Page>, Vec<&Page>) = all.iter().partition(|page| page.set == set);
        if test.is_empty() {
            continue;
        }
        let (got, best) = stored(&test, &grow(&train, rules, rules.depth), rules);
        unseen += got;
        let over = 100.0 * (got as f64 / best as f64 - 1.0);
        if env::var_os("VERBOSE").is_some() {
            eprintln!("  {name}: {over:+.2} %");
        }
        if over > worst.0 {
            worst = (over, name);
        }
    }
    let over = |bytes: usize| 100.0 * (bytes as f64 / best as f64 - 1.0);
    let (seen, unseen) = (over(seen), over(unseen));
    let (over, set) = worst;
    let profile = rules.profile;
    eprintln!(
        "{profile:?}: {seen:+.2} % on what it was made from; {unseen:+.2} % leaving one set out, worst {set} {over:+.1} %"
    );
}

/// Bytes stored when the chains of each leaf are tried, and when all are.
fn stored(pages: &[&Page], tree: &Tree, rules: &Rules) -> (usize, usize) {
    let least = |page: &Page, chains: &[u8]| {
        usize::from(
            chains
                .iter()
                .map(|&chain| rules.size(page, chain))
                .min()
                .expect("a chain or more"),
        )
    };
    let got = pages
        .iter()
        .map(|page| least(page, leaf(tree, &page.features)))
        .sum();
    (
        got,
        pages.iter().map(|page| least(page, &rules.chains)).sum(),
    )
}

fn leaf<'a>(tree: &'a Tree, features: &Features) -> &'a [u8] {
    match tree {
        Tree::Leaf(chains) => chains,
        Tree::Split(feature, at_most, below, above) => leaf(
            if features[usize::from(*feature)] <= *at_most {
                below
            } else {
                above
            },
            features,
        ),
    }
}

/// Fewer pages than this are not split.
const FEW: usize = 24;

fn grow(pages: &[&Page], rules: &Rules, depth: usize) -> Tree {
    let sums = |pages: &mut dyn Iterator<Item = &&Page>| -> Vec<u64> {
        let mut sums = vec![0u64; rules.chains.len()];
        for page in pages {
            for (sum, &chain) in sums.iter_mut().zip(&rules.chains) {
                *sum += Rules::weight(page, rules.size(page, chain));
            }
        }
        sums
    };
    let cost = |sums: &[u64]| *sums.iter().min().expect("a chain or more");
    let totals = sums(&mut pages.iter());
    let mut best = (cost(&totals), 0, 0);
    if depth > 0 && pages.len() >= 2 * FEW {
        for feature in 0..FEATURES {
            let mut sorted = pages.to_vec();
            sorted.sort_by_key(|page| page.features[feature]);
            let mut count = 0;
            let mut below = vec![0u64; rules.chains.len()];
            for run in sorted.chunk_by(|a, b| a.features[feature] == b.features[feature]) {
                count += run.len();
                below
                    .iter_mut()
                    .zip(sums(&mut run.iter()))
                    .for_each(|(sum, run)| *sum += run);
                if count < FEW || pages.len() - count < FEW {
                    continue;
                }
                let above: Vec<u64> = totals
                    .iter()
                    .zip(&below)
                    .map(|(total, below)| total - below)
                    .collect();
                let split = cost(&below) + cost(&above);
                if split < best.0 {
                    best = (split, feature as u8, run[0].features[feature] + 1);
                }
            }
        }
    }
    let (split, feature, past) = best;
    // A split must be worth something, or it fits noise.
    if past == 0 || (cost(&totals) - split) * 1000 < cost(&totals) {
        return Tree::Leaf(cover(pages, rules));
    }
    let (below, above): (Vec<&Page>, Vec<&Page>) = pages
        .iter()
        .partition(|page| page.features[usize::from(feature)] < past);
    Tree::Split(
        feature,
        past - 1,
        Box::new(grow(&below, rules, depth - 1)),
        Box::new(grow(&above, rules, depth - 1)),
    )
}

/// Chains that together store least, the first alone storing least.
fn cover(pages: &[&Page], rules: &Rules) -> Vec<u8> {
    let mut held = vec![PAGE as u16; pages.len()];
    let mut list = vec![];
    let mut before = u64::MAX;
    while list.len() < rules.list {
        let weigh = |chain: u8| -> u64 {
            pages
                .iter()
                .zip(&held)
                .map(|(page, &held)| Rules::weight(page, rules.size(page, chain).min(held)))
                .sum()
        };
        let (after, chain) = rules
            .chains
            .iter()
            .map(|&chain| (weigh(chain), chain))
            .min()
            .expect("a chain or more");
        if !list.is_empty() && (before - after) * 1000 < before * rules.gain {
            break;
        }
        before = after;
        list.push(chain);
        held.iter_mut()
            .zip(pages)
            .for_each(|(held, page)| *held = (*held).min(rules.size(page, chain)));
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
            nodes[at] = format!(
                "Split {{ feature: {feature}, at_most: {at_most}, above: {} }}",
                nodes.len()
            );
            print(above, nodes);
        }
    }
}
