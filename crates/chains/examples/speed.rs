use std::{env, fs, time::Instant};
use narrows_chains::{Chain, PAGE, chain::{self, Scratch}, simulated::*, select::features::look};
fn main() {
    let mut args = env::args().skip(1);
    let set = args.next().unwrap();
    let bytes = if set == "jacobi" { jacobi(1000, Source::Sine, 100) } else { fs::read(set).unwrap() };
    let pages: Vec<&[u8; PAGE]> = bytes.as_chunks::<PAGE>().0.iter().filter(|p| p[..PAGE - 8] != p[8..]).take(256).collect();
    let s = &mut Scratch::default();
    let mbs = |ns: u64| (pages.len() * PAGE) as f64 * 1000.0 / ns as f64;
    let best = |f: &mut dyn FnMut()| (0..30).map(|_| { let t = Instant::now(); f(); t.elapsed().as_nanos() as u64 }).min().unwrap();
    println!("look {:.0}", mbs(best(&mut || for p in &pages { std::hint::black_box(look(p)); })));
    for c in args {
        let c = Chain::parse(&c).unwrap();
        let mut out = [0; PAGE];
        let pk = best(&mut || for p in &pages { std::hint::black_box(c.pack(p, &mut out[..3264], s)); });
        let packed: Vec<Vec<u8>> = pages.iter().filter_map(|p| c.pack(p, &mut out[..3264], s).map(|n| out[..n].to_vec())).collect();
        let up = best(&mut || for p in &packed { chain::unpack(p, &mut out, s).unwrap(); });
        println!("{c}: pack {:.0} unpack {:.0} MB/s, {} of {} pages, mean {}", mbs(pk), mbs(up) * packed.len() as f64 / pages.len() as f64, packed.len(), pages.len(), packed.iter().map(Vec::len).sum::<usize>() / packed.len().max(1));
    }
}
