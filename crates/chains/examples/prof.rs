use narrows_chains::lzt; use std::time::Instant;
fn main() { let f = std::env::args().nth(1).unwrap(); let d = std::fs::read(f).unwrap();
 let mut ws = lzt::Workspace::default(); let mut out = vec![0; 4096];
 let ps: Vec<&[u8]> = d.chunks_exact(4096).take(256).collect();
 let pk: Vec<Vec<u8>> = ps.iter().filter_map(|p| lzt::pack(p, &mut out, &mut ws).map(|n| out[..n].to_vec())).collect();
 let mut best = [f64::MAX; 2];
 for _ in 0..15 { let t = Instant::now(); for p in &ps { std::hint::black_box(lzt::pack(p, &mut out, &mut ws)); } best[0] = best[0].min(t.elapsed().as_secs_f64());
  let t = Instant::now(); for p in &pk { lzt::unpack(p, &mut out).unwrap(); } best[1] = best[1].min(t.elapsed().as_secs_f64()); }
 println!("pack {:.0} ns/page unpack {:.0} ns/page; len {}", best[0]*1e9/ps.len() as f64, best[1]*1e9/pk.len() as f64, pk.iter().map(|p| p.len()).sum::<usize>() / pk.len());
 lzt::phases(&pk); lzt::phases(&vec![pk[7].clone(); 256]); lzt::phases(&pk.iter().take(8).cloned().collect::<Vec<_>>()); lzt::stats(&ps);
}
