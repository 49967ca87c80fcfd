use narrows_chains::lzt;
fn main() { let f = std::env::args().nth(1).unwrap(); let d = std::fs::read(f).unwrap();
 let mut ws = lzt::Workspace::default(); let mut out = vec![0; 4096];
 let ps: Vec<&[u8]> = d.chunks_exact(4096).take(256).collect();
 for _ in 0..300 { for p in &ps { std::hint::black_box(lzt::pack(p, &mut out, &mut ws)); } }
}
