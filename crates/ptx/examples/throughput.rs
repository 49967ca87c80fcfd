//! Prints thread-instructions per second: `cargo run --release -p narrows-ptx --example throughput`.
//! Two threads share the blocks of each launch, as a server's workers do.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use narrows_ptx::{Budget, Launch, Scratch, run_block};
use support::{Program, Shape};

fn main() {
    let program = Program::new(include_str!("../fixtures/kernels.nvcc.ptx"));
    let arena = &program.arena;
    let n = 1 << 20;
    let (a, b, c) = (arena.alloc(4 * n), arena.alloc(4 * n), arena.alloc(4 * n));
    let args = Shape::new(n as u32 / 256, 256)
        .arg(a)
        .arg(b)
        .arg(c)
        .arg(n as i32);
    measure(&program, "vadd", &args);
    let size = 128u32;
    let tiles = Shape {
        grid: [size / 16, size / 16, 1],
        block: [16, 16, 1],
        ..Shape::default()
    };
    measure(
        &program,
        "sgemm",
        &tiles.arg(a).arg(b).arg(c).arg(size as i32),
    );
    measure(
        &program,
        "softmax",
        &Shape::new(512, 32).arg(a).arg(c).arg(1024i32),
    );
    measure(
        &program,
        "reduce",
        &Shape::new(64, 256).arg(a).arg(c).arg(n as i32),
    );
    measure(
        &program,
        "histogram",
        &Shape::new(64, 256).arg(a).arg(c).arg(n as i32),
    );
    measure(&program, "diverge", &Shape::new(256, 256).arg(a));
    measure(&program, "calls", &Shape::new(64, 128).arg(a).arg(3i32));
    measure(&program, "bitonic", &Shape::new(256, 256).arg(a));
}

fn measure(program: &Program, name: &str, shape: &Shape) {
    let kernel = program
        .linked
        .module()
        .kernel(name)
        .expect("in the fixture");
    let mut best = 0f64;
    for _ in 0..3 {
        let budget = Budget::new(1 << 40);
        let launch = Launch {
            linked: &program.linked,
            kernel,
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: 0,
            params: &shape.params,
            budget: &budget,
            start_ns: 0,
        };
        let blocks: u32 = shape.grid.iter().product();
        let (next, done) = (AtomicU32::new(0), AtomicU64::new(0));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut scratch = Scratch::default();
                    loop {
                        let block = next.fetch_add(1, Relaxed);
                        if block >= blocks {
                            break;
                        }
                        let at = [block % shape.grid[0], block / shape.grid[0], 0];
                        let stats = run_block(&launch, at, &program.arena, &mut scratch)
                            .unwrap_or_else(|error| panic!("{error}"));
                        done.fetch_add(stats.thread_instructions, Relaxed);
                    }
                });
            }
        });
        best = best.max(done.load(Relaxed) as f64 / begin.elapsed().as_secs_f64());
    }
    println!("{name:10} {:8.0} M thread-instructions/s", best / 1e6);
}
