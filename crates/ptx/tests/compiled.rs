//! Kernels that compilers made of `fixtures/kernels.cu`, against the same computation in Rust.

mod support;

use support::{Program, Random, Shape};

const TEXTS: [(&str, &str); 2] = [
    ("clang", include_str!("../fixtures/kernels.clang.ptx")),
    ("nvcc", include_str!("../fixtures/kernels.nvcc.ptx")),
];

fn each(test: impl Fn(&Program)) {
    for (compiler, text) in TEXTS {
        println!("{compiler}");
        let program = Program::new(text);
        let missing: Vec<_> = program.linked.module().unsupported().collect();
        assert!(missing.is_empty(), "{compiler}: {missing:?}");
        test(&program);
    }
}

fn floats(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.unit()).collect()
}

// Goal: guarded accesses at a ragged end. Method: a length that is no multiple of the block.
#[test]
fn vadd() {
    each(|p| {
        let n = 1000;
        let (a, b) = (floats(1, n), floats(2, n));
        let (da, db, dc) = (p.arena.put(&a), p.arena.put(&b), p.arena.alloc(4 * n));
        p.ok(
            "vadd",
            &Shape::new(8, 128).arg(da).arg(db).arg(dc).arg(n as i32),
        );
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(p.arena.get::<f32>(dc, n), want);
    });
}

// Goal: a grid-stride loop with a fused multiply-add. Method: exact, compilers contract it.
#[test]
fn saxpy() {
    each(|p| {
        let n = 5000;
        let (x, y) = (floats(3, n), floats(4, n));
        let (dx, dy) = (p.arena.put(&x), p.arena.put(&y));
        p.ok(
            "saxpy",
            &Shape::new(3, 96).arg(1.7f32).arg(dx).arg(dy).arg(n as i32),
        );
        let want: Vec<f32> = x
            .iter()
            .zip(&y)
            .map(|(x, y)| 1.7f32.mul_add(*x, *y))
            .collect();
        assert_eq!(p.arena.get::<f32>(dy, n), want);
    });
}

// Goal: shared memory and barriers. Method: sums in the kernel's order are exact.
#[test]
fn reduce() {
    each(|p| {
        let n = 10_000;
        let input = floats(5, n);
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(64));
        p.ok(
            "reduce",
            &Shape::new(4, 256).arg(din).arg(dout).arg(n as i32),
        );
        for block in 0..4 {
            let mut part: Vec<f32> = (0..256)
                .map(|t| {
                    (block * 256 + t..n)
                        .step_by(1024)
                        .fold(0.0, |sum, i| sum + input[i])
                })
                .collect();
            let mut step = 128;
            while step > 0 {
                for t in 0..step {
                    part[t] += part[t + step];
                }
                step /= 2;
            }
            assert_eq!(p.arena.get::<f32>(dout, 4)[block], part[0]);
        }
    });
}

// Goal: two-dimensional blocks and tiles in shared memory. Method: fused sums in order of k.
#[test]
fn sgemm() {
    each(|p| {
        let n = 64;
        let (a, b) = (floats(6, n * n), floats(7, n * n));
        let (da, db, dc) = (p.arena.put(&a), p.arena.put(&b), p.arena.alloc(4 * n * n));
        let shape = Shape {
            grid: [4, 4, 1],
            block: [16, 16, 1],
            ..Shape::default()
        };
        p.ok("sgemm", &shape.arg(da).arg(db).arg(dc).arg(n as i32));
        let got = p.arena.get::<f32>(dc, n * n);
        for row in 0..n {
            for column in 0..n {
                let want = (0..n).fold(0f32, |sum, k| {
                    a[row * n + k].mul_add(b[k * n + column], sum)
                });
                assert_eq!(got[row * n + column], want, "{row} {column}");
            }
        }
    });
}

// Goal: shuffles and approximate functions. Method: within 4 units of the last place of 1.
#[test]
fn softmax() {
    each(|p| {
        let (rows, n) = (6, 100);
        let input: Vec<f32> = floats(8, rows * n).iter().map(|x| x * 9.0).collect();
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(4 * rows * n));
        p.ok(
            "softmax",
            &Shape::new(rows as u32, 32).arg(din).arg(dout).arg(n as i32),
        );
        let got = p.arena.get::<f32>(dout, rows * n);
        for (row, got) in input.chunks(n).zip(got.chunks(n)) {
            let most = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
            for (x, got) in row.iter().zip(got) {
                let want = f64::from(x - most).exp() / sum;
                assert!((f64::from(*got) - want).abs() < 5e-7, "{got} {want}");
            }
        }
    });
}

// Goal: atomics in shared and global memory. Method: exact counts.
#[test]
fn histogram() {
    each(|p| {
        let n = 20_000;
        let mut random = Random(9);
        let input: Vec<u8> = (0..n)
            .map(|_| (random.next() as u8) & (random.next() as u8))
            .collect();
        let (din, dbins) = (p.arena.put(&input), p.arena.put(&[0u32; 256]));
        p.ok("histogram", &Shape::new(5, 256).arg(din).arg(dbins).arg(n));
        let mut want = [0u32; 256];
        input.iter().for_each(|&byte| want[byte as usize] += 1);
        assert_eq!(p.arena.get::<u32>(dbins, 256), want);
    });
}

// Goal: shuffles up with their predicate of range. Method: exact sums.
#[test]
fn scan() {
    each(|p| {
        let mut random = Random(10);
        let input: Vec<i32> = (0..512).map(|_| random.next() as i32 >> 12).collect();
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(2048));
        p.ok("scan", &Shape::new(2, 256).arg(din).arg(dout));
        let got = p.arena.get::<i32>(dout, 512);
        for block in 0..2 {
            let mut sum = 0i32;
            for i in block * 256..(block + 1) * 256 {
                sum = sum.wrapping_add(input[i]);
                assert_eq!(got[i], sum, "{i}");
            }
        }
    });
}

// Goal: many barriers between divergent exchanges. Method: the result is sorted.
#[test]
fn bitonic() {
    each(|p| {
        let mut random = Random(11);
        let input: Vec<u32> = (0..1024).map(|_| random.next() as u32).collect();
        let data = p.arena.put(&input);
        p.ok("bitonic", &Shape::new(2, 256).arg(data));
        let got = p.arena.get::<u32>(data, 1024);
        for block in 0..2 {
            let mut want = input[block * 512..][..512].to_vec();
            want.sort_unstable();
            assert_eq!(got[block * 512..][..512], want);
        }
    });
}

// Goal: constant memory with initial values. Method: fused sums in order.
#[test]
fn stencil() {
    each(|p| {
        let n = 700usize;
        let input = floats(12, n);
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(4 * n));
        p.ok(
            "stencil",
            &Shape::new(6, 128).arg(din).arg(dout).arg(n as i32),
        );
        let weights = [0.05f32, 0.25, 0.4, 0.25, 0.05];
        let got = p.arena.get::<f32>(dout, n);
        for (i, got) in got.iter().enumerate() {
            let want = (0..5).fold(0f32, |sum, d| {
                let j = (i as i64 + d as i64 - 2).clamp(0, n as i64 - 1) as usize;
                weights[d].mul_add(input[j], sum)
            });
            assert_eq!(*got, want, "{i}");
        }
    });
}

// Goal: recursion, structures by value, function pointers. Method: exact.
#[test]
fn calls() {
    each(|p| {
        let dout = p.arena.alloc(8 * 64);
        p.ok("calls", &Shape::new(1, 64).arg(dout).arg(9i32));
        let fib = |n: u32| (0..n).fold((0i64, 1i64), |(a, b), _| (b, a + b)).0;
        let got = p.arena.get::<i64>(dout, 64);
        for i in 0..64i64 {
            let (mut a, mut b) = (i as f64 * 0.5, i);
            if i % 3 == 0 {
                (a, b) = (a * 3.0, b + 3);
            }
            let last = if i % 2 == 0 { i + 9 } else { i * 9 };
            assert_eq!(
                got[i as usize],
                fib(i as u32 % 12) + a as i64 + b + last,
                "{i}"
            );
        }
    });
}

// Goal: branches of very different lengths come together. Method: exact.
#[test]
fn diverge() {
    each(|p| {
        let n = 300usize;
        let dout = p.arena.alloc(4 * n);
        p.ok("diverge", &Shape::new(3, 100).arg(dout));
        let got = p.arena.get::<i32>(dout, n);
        for i in 0..n as i32 {
            let want = match i % 7 {
                0 => 10,
                1 => (0..i).map(|k| k ^ i).sum(),
                2 => {
                    if i & 8 != 0 {
                        -i
                    } else {
                        i * i
                    }
                }
                3 => 107,
                4 => 100,
                5 => {
                    let (mut x, mut steps) = (i + 1, 0);
                    while x != 1 {
                        x = if x & 1 != 0 { 3 * x + 1 } else { x / 2 };
                        steps += 1;
                    }
                    steps
                }
                _ => 1,
            };
            assert_eq!(got[i as usize], want, "{i}");
        }
    });
}

// Goal: a lock that lanes of one warp fight for is released. Method: every thread counts once.
#[test]
fn spin() {
    each(|p| {
        let (lock, counter) = (p.arena.put(&[0u32]), p.arena.put(&[0u32]));
        p.ok("spin", &Shape::new(2, 64).arg(lock).arg(counter));
        assert_eq!(p.arena.get::<u32>(counter, 1), [128]);
    });
}

// Goal: arrays in local memory. Method: exact.
#[test]
fn local() {
    each(|p| {
        let (threads, n) = (64usize, 20usize);
        let mut random = Random(13);
        let input: Vec<i32> = (0..threads * n)
            .map(|_| random.below(1000) as i32)
            .collect();
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(4 * threads));
        p.ok("local", &Shape::new(1, 64).arg(din).arg(dout).arg(n as i32));
        let got = p.arena.get::<i32>(dout, threads);
        for (row, got) in input.chunks(n).zip(got) {
            let mut counts = [0; 16];
            row.iter()
                .for_each(|x| counts[((x * 5) & 15) as usize] += 1);
            let best = (1..16).fold(0, |best, k| if counts[k] > counts[best] { k } else { best });
            assert_eq!(got, best as i32 * 1000 + counts[best]);
        }
    });
}

// Goal: double precision and its conversions. Method: exact, with contraction as compiled.
#[test]
fn doubles() {
    each(|p| {
        let input: Vec<f64> = floats(14, 200)
            .iter()
            .map(|x| f64::from(*x) * 30.0 + 0.001)
            .collect();
        let (din, dout) = (p.arena.put(&input), p.arena.alloc(1600));
        p.ok(
            "doubles",
            &Shape::new(2, 128).arg(din).arg(dout).arg(200i32),
        );
        for (x, got) in input.iter().zip(p.arena.get::<f64>(dout, 200)) {
            let want = x.mul_add(*x, 1.0 / x) / (x - 0.5) - (x * 1000.0) as i64 as f64;
            assert_eq!(got, want, "{x}");
        }
    });
}
