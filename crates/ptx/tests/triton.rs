//! Matrix multiplications that Triton made (`fixtures/matmul.py`): `mma`, `ldmatrix`, `cp.async`.

mod support;

use support::{Plain, Program, Random, Shape};

const M: usize = 128;
const N: usize = 64;
const K: usize = 96;

/// Small whole numbers, whose sums are exact in every type.
fn matrix(seed: u64, len: usize) -> Vec<i32> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(5) as i32 - 2).collect()
}

fn multiply<T: Plain>(text: &str, of: impl Fn(i32) -> T) -> (Program, u64, Vec<i32>) {
    let program = Program::new(text);
    let missing: Vec<_> = program.linked.module().unsupported().collect();
    assert!(missing.is_empty(), "{missing:?}");
    let (a, b) = (matrix(1, M * K), matrix(2, K * N));
    let put = |values: &[i32]| {
        program
            .arena
            .put(&values.iter().map(|&x| of(x)).collect::<Vec<_>>())
    };
    let (da, db, dc) = (put(&a), put(&b), program.arena.alloc(4 * M * N));
    let shape = Shape {
        grid: [(M / 64) as u32, (N / 32) as u32, 1],
        block: [128, 1, 1],
        shared: 48 << 10,
        ..Shape::default()
    };
    let shape = shape
        .arg(da)
        .arg(db)
        .arg(dc)
        .arg(M as i32)
        .arg(N as i32)
        .arg(K as i32);
    program.ok("matmul", &shape.arg(0u64).arg(0u64));
    let want = (0..M * N)
        .map(|i| (0..K).map(|k| a[i / N * K + k] * b[k * N + i % N]).sum())
        .collect();
    (program, dc, want)
}

fn floats<T: Plain>(text: &str, of: impl Fn(i32) -> T) {
    let (program, dc, want) = multiply(text, of);
    let want: Vec<f32> = want.iter().map(|&x| x as f32).collect();
    assert_eq!(program.arena.get::<f32>(dc, M * N), want);
}

// Goal: m16n8k16 of f16. Method: bits of -2..2 in f16.
#[test]
fn halves() {
    let of = |x: i32| [0xc000u16, 0xbc00, 0, 0x3c00, 0x4000][(x + 2) as usize];
    floats(include_str!("../fixtures/matmul.fp16.ptx"), of);
}

// Goal: m16n8k8 of tf32. Method: whole numbers are exact in tf32.
#[test]
fn tf32() {
    floats(include_str!("../fixtures/matmul.fp32.ptx"), |x| x as f32);
}

// Goal: m16n8k32 of s8. Method: exact.
#[test]
fn bytes() {
    let (program, dc, want) = multiply(include_str!("../fixtures/matmul.i8.ptx"), |x| x as i8);
    assert_eq!(program.arena.get::<i32>(dc, M * N), want);
}

// Goal: m16n8k32 of e4m3. Method: bits of -2..2 in e4m3.
#[test]
fn eights() {
    let of = |x: i32| [0xc0u8, 0xb8, 0, 0x38, 0x40][(x + 2) as usize];
    floats(include_str!("../fixtures/matmul.fp8e4nv.ptx"), of);
}
