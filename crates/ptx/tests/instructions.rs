//! Instructions that are more than arithmetic, in kernels written by hand.

mod support;

use narrows_ptx::texture::{AddressMode, Format, Texture};
use support::{Program, Random, Shape};

/// A kernel whose body has `%t` (thread in the block), `%out` and `%in` (64 bits for each thread),
/// some registers and predicates; declarations come before it.
fn program(declarations: &str, body: &str) -> Program {
    let text = format!(
        ".version 8.3\n.target sm_90\n.address_size 64\n{declarations}\n\
         .visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .b16 %rs<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .f64 %fd<9>;\n\
         .reg .pred %p<20>; .reg .b32 %t, %n; .reg .b64 %out, %in; .reg .b128 %q<4>;\n\
         ld.param.u64 %out, [out]; ld.param.u64 %in, [in];\n\
         mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x;\n\
         mad.wide.u32 %out, %t, 8, %out; mad.wide.u32 %in, %t, 8, %in;\n\
         {body}\nret;\n}}\n"
    );
    let program = Program::new(&text);
    let missing: Vec<_> = program.linked.module().unsupported().collect();
    assert!(missing.is_empty(), "{missing:?}");
    program
}

/// Runs one block and returns a number for each thread.
fn run(declarations: &str, body: &str, input: &[u64]) -> Vec<u64> {
    let program = program(declarations, body);
    let threads = input.len();
    let (out, data) = (
        program.arena.put(&vec![0u64; threads]),
        program.arena.put(input),
    );
    let mut shape = Shape::new(1, threads as u32).arg(out).arg(data);
    shape.shared = 1024;
    program.ok("k", &shape);
    program.arena.get::<u64>(out, threads)
}

fn random(seed: u64, count: usize) -> Vec<u64> {
    let mut random = Random(seed);
    (0..count).map(|_| random.next() & 0xffff_ffff).collect()
}

// Goal: each way of shuffling, with segments, and the predicate of range. Method: PTX's formula.
#[test]
fn shuffles() {
    let input = random(1, 64);
    let ways = [
        ("up", 3, 0x0000),
        ("up", 5, 0x1800),
        ("down", 2, 0x001f),
        ("down", 3, 0x181f),
        ("bfly", 5, 0x001f),
        ("bfly", 9, 0x181f),
        ("idx", 7, 0x001f),
        ("idx", 3, 0x181f),
    ];
    for (way, by, c) in ways {
        let body = format!(
            "ld.global.u32 %r1, [%in]; shfl.sync.{way}.b32 %r2|%p1, %r1, {by}, {c}, 0xffffffff;\n\
             selp.u32 %r3, 1, 0, %p1; st.global.v2.u32 [%out], {{%r2, %r3}};"
        );
        let got = run("", &body, &input);
        for thread in 0..64i64 {
            let lane = thread % 32;
            let (segment, clamp) = (c >> 8 & 31, c & 31);
            let most = (lane & segment) | (clamp & !segment & 31);
            let (from, inside) = match way {
                "up" => (lane - by, lane - by >= most),
                "down" => (lane + by, lane + by <= most),
                "bfly" => (lane ^ by, lane ^ by <= most),
                _ => (
                    (lane & segment) | (by & !segment),
                    (lane & segment) | (by & !segment) <= most,
                ),
            };
            let from = if inside { from } else { lane };
            let want = input[(thread - lane + from) as usize] | u64::from(inside) << 32;
            assert_eq!(
                got[thread as usize], want,
                "{way} {by} {c:#x} thread {thread}"
            );
        }
    }
}

// Goal: votes, matches, reductions over the members. Method: exact, half of a warp apart.
#[test]
fn votes() {
    let input: Vec<u64> = (0..32).map(|i| i % 5).collect();
    let body = "ld.global.u32 %r1, [%in]; setp.lt.u32 %p1, %r1, 3; setp.lt.u32 %p2, %t, 16;
        @!%p2 bra B;
        vote.sync.ballot.b32 %r2, %p1, 0xffff; activemask.b32 %r3; match.any.sync.b32 %r4, %r1, 0xffff;
        redux.sync.add.s32 %r5, %r1, 0xffff; bra.uni J;
        B: vote.sync.ballot.b32 %r2, %p1, 0xffff0000; activemask.b32 %r3;
        match.any.sync.b32 %r4, %r1, 0xffff0000; redux.sync.max.u32 %r5, %r1, 0xffff0000;
        J: xor.b32 %r6, %r2, %r3; xor.b32 %r6, %r6, %r4; st.global.v2.u32 [%out], {%r6, %r5};";
    let got = run("", body, &input);
    for lane in 0..32usize {
        let members: Vec<usize> = if lane < 16 {
            (0..16).collect()
        } else {
            (16..32).collect()
        };
        let set = |f: &dyn Fn(usize) -> bool| {
            members
                .iter()
                .fold(0u64, |all, &m| all | u64::from(f(m)) << m)
        };
        let sum: u64 = members.iter().map(|&m| input[m]).sum();
        let low = set(&|m| input[m] < 3) ^ set(&|_| true) ^ set(&|m| input[m] == input[lane]);
        let high = if lane < 16 { sum } else { 4 };
        assert_eq!(got[lane], low | high << 32, "{lane}");
    }
    let body = "ld.global.u32 %r1, [%in]; setp.lt.u32 %p1, %r1, 9; vote.sync.all.pred %p2, %p1, -1;
        setp.eq.u32 %p3, %r1, 2; vote.sync.any.pred %p4, %p3, -1; vote.sync.uni.pred %p5, %p3, -1;
        match.all.sync.b32 %r2|%p6, %r1, -1; elect.sync %r3|%p7, -1;
        selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 2, 0, %p4; selp.u32 %r6, 4, 0, %p5; selp.u32 %r7, 8, 0, %p6;
        selp.u32 %r8, 16, 0, %p7; or.b32 %r4, %r4, %r5; or.b32 %r4, %r4, %r6; or.b32 %r4, %r4, %r7;
        or.b32 %r4, %r4, %r8; st.global.u32 [%out], %r4;";
    let got = run("", body, &input);
    assert_eq!(got[0], 1 | 2 | 16);
    assert!(got[1..].iter().all(|&x| x == 3));
}

// Goal: shuffles wait for members that took another branch. Method: both halves arrive apart.
#[test]
fn members_that_come_from_another_branch_are_waited_for() {
    let input = random(2, 32);
    let body = "ld.global.u32 %r1, [%in]; and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 0;
        @%p1 bra A; add.u32 %r1, %r1, 7; bra.uni S; A: add.u32 %r1, %r1, 9; bra.uni S; bra.uni S;
        S: shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; bar.warp.sync -1; st.global.u32 [%out], %r3;";
    let got = run("", body, &input);
    for lane in 0..32usize {
        let add = if lane % 2 == 0 { 7 } else { 9 };
        assert_eq!(got[lane], (input[lane ^ 1] + add) & 0xffff_ffff);
    }
}

// Goal: named barriers, producers that only arrive, reductions. Method: 4 warps, two of them wait.
#[test]
fn barriers() {
    let body = "shr.u32 %r1, %t, 5; setp.lt.u32 %p1, %r1, 2; mul.lo.u32 %r2, %t, 4; mov.u32 %r3, s;
        add.u32 %r3, %r3, %r2; @%p1 bra WAIT;
        mul.lo.u32 %r4, %t, 3; st.shared.u32 [%r3], %r4; bar.arrive 3, 128; bra.uni J;
        WAIT: bar.sync 3, 128; ld.shared.u32 %r5, [%r3+256];
        J: setp.gt.u32 %p2, %t, 100; bar.red.popc.u32 %r6, 0, %p2; bar.red.and.pred %p3, 0, %p2;
        bar.red.or.pred %p4, 0, %p2; selp.u32 %r7, 1, 0, %p3; selp.u32 %r8, 2, 0, %p4; or.b32 %r7, %r7, %r8;
        mad.lo.u32 %r6, %r6, 4, %r7; st.global.v2.u32 [%out], {%r5, %r6};";
    let got = run(".shared .align 4 .b8 s[512];", body, &random(3, 128));
    for (thread, got) in got.iter().enumerate() {
        let low = if thread < 64 {
            (thread as u64 + 64) * 3
        } else {
            0
        };
        assert_eq!(*got, low | (27 * 4 + 2) << 32, "{thread}");
    }
}

// Goal: exited threads are not waited for. Method: most threads leave before the barrier.
#[test]
fn a_barrier_does_not_wait_for_exited_threads() {
    let body = "setp.ge.u32 %p1, %t, 40; @%p1 exit; bar.sync 0; st.global.u32 [%out], 5;";
    let got = run("", body, &[0; 96]);
    assert!(
        got.iter()
            .enumerate()
            .all(|(i, &x)| x == if i < 40 { 5 } else { 0 })
    );
}

// Goal: a warp that spins on what another warp writes. Method: the first warps wait for the last.
#[test]
fn warps_that_spin_let_others_run() {
    let body = "mov.u32 %r3, s; setp.ge.u32 %p1, %t, 64; @%p1 bra SET;
        SPIN: ld.volatile.shared.u32 %r4, [%r3]; setp.eq.u32 %p2, %r4, 0; @%p2 bra SPIN; bra.uni J;
        SET: nanosleep.u32 100; st.volatile.shared.u32 [%r3], 77; mov.u32 %r4, 77;
        J: st.global.u32 [%out], %r4;";
    assert_eq!(run(".shared .u32 s;", body, &[0; 96]), [77; 96]);
}

// Goal: every atomic in shared and global memory. Method: sums and extremes over all threads.
/// Name, start, and what an atomic stores for the old value and the operand.
type AtomicCase = (&'static str, u64, fn(u64, u64) -> u64);

#[test]
fn atomics() {
    let cases: [AtomicCase; 10] = [
        ("add.u32", 5, |a, b| (a + b) & 0xffff_ffff),
        ("min.u32", 0x8000_0000, u64::min),
        ("max.u32", 7, u64::max),
        ("min.s32", 7, |a, b| (a as i32).min(b as i32) as u32 as u64),
        ("max.s32", 0x8000_0000, |a, b| {
            (a as i32).max(b as i32) as u32 as u64
        }),
        ("and.b32", 0xffff_ffff, |a, b| a & b),
        ("or.b32", 0, |a, b| a | b),
        ("xor.b32", 1, |a, b| a ^ b),
        ("inc.u32", 5, |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", 5, |a, b| if a == 0 || a > b { b } else { a - 1 }),
    ];
    let input = random(4, 64);
    for (name, start, of) in cases {
        let body = format!(
            "mov.u32 %r9, s; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [%r9], {start}; bar.sync 0;\n\
             ld.global.u32 %r1, [%in]; atom.shared.{name} %r2, [%r9], %r1; bar.sync 0;\n\
             mov.u64 %rd1, g; atom.global.{name} %r3, [%rd1], %r1; red.global.add.u32 [%rd1+4], 1;\n\
             ld.shared.u32 %r4, [%r9]; st.global.u32 [%out], %r4;"
        );
        let globals = format!(".shared .u32 s; .global .u32 g[2] = {{{start}, 0}};");
        let program = program(&globals, &body);
        let (out, data) = (program.arena.put(&[0u64; 64]), program.arena.put(&input));
        program.ok("k", &Shape::new(1, 64).arg(out).arg(data));
        let want = input.iter().fold(start, |old, &value| of(old, value));
        assert_eq!(
            program.arena.get::<u64>(out, 64),
            [want; 64],
            "{name} in shared memory"
        );
        let got = program.arena.get::<u32>(program.addresses[0], 2);
        assert_eq!(got, [want as u32, 64], "{name} in global memory");
    }
}

// Goal: atomics on floats and 64 bits, exchange and compare. Method: whole numbers are exact.
#[test]
fn atomics_of_other_types() {
    let body = "mov.u64 %rd1, g; cvt.rn.f32.u32 %f1, %t; red.global.add.f32 [%rd1], %f1;
        cvt.rn.f64.u32 %fd1, %t; atom.global.add.f64 %fd2, [%rd1+8], %fd1;
        atom.global.add.noftz.f16x2 %r1, [%rd1+16], 0x3c004000; cvt.u64.u32 %rd2, %t;
        atom.global.max.u64 %rd3, [%rd1+24], %rd2;
        LOOP: ld.global.u64 %rd4, [%rd1+32]; add.u64 %rd5, %rd4, 3;
        atom.global.cas.b64 %rd6, [%rd1+32], %rd4, %rd5; setp.ne.u64 %p1, %rd6, %rd4; @%p1 bra LOOP;
        red.global.add.v2.f32 [%rd1+40], {%f1, 0f3F800000};
        atom.global.cas.b16 %rs1, [%rd1+48], 0, 9; atom.global.exch.b32 %r2, [%rd1+52], 6;
        st.global.u32 [%out], %r2;";
    let program = program(".global .align 16 .b64 g[8];", body);
    let (out, data) = (
        program.arena.put(&[0u64; 64]),
        program.arena.put(&[0u64; 64]),
    );
    program.ok("k", &Shape::new(1, 64).arg(out).arg(data));
    let g = program.arena.get::<u64>(program.addresses[0], 8);
    assert_eq!(g[0], u64::from(2016f32.to_bits()));
    assert_eq!(g[1], 2016f64.to_bits());
    assert_eq!(g[2], 0x5400_5800, "64 and 128 in f16");
    assert_eq!((g[3], g[4]), (63, 192));
    assert_eq!(
        g[5],
        u64::from(2016f32.to_bits()) | u64::from(64f32.to_bits()) << 32
    );
    assert_eq!(g[6], 9 | 6 << 32);
}

// Goal: generic addresses of each space, and what isspacep says. Method: a store through each.
#[test]
fn spaces() {
    let body = ".local .align 8 .b8 l[64]; mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1;
        mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; mul.wide.u32 %rd5, %t, 8; add.u64 %rd4, %rd4, %rd5;
        mov.u64 %rd6, g; cvta.global.u64 %rd6, %rd6; add.u64 %rd6, %rd6, %rd5;
        cvt.u64.u32 %rd7, %t; st.u64 [%rd2+8], %rd7; st.u64 [%rd4], %rd7; st.u64 [%rd6], %rd7;
        ld.local.u64 %rd8, [%rd1+8]; cvta.to.shared.u64 %rd9, %rd4; cvt.u32.u64 %r1, %rd9;
        ld.shared.u64 %rd10, [%r1]; ld.global.u64 %rd11, [%rd6]; mov.u64 %rd12, out; cvta.param.u64 %rd12, %rd12;
        ld.u64 %rd13, [%rd12]; ld.param.u64 %rd14, [out]; sub.u64 %rd13, %rd13, %rd14;
        ld.const.u64 %rd15, [c+8]; add.u64 %rd8, %rd8, %rd10; add.u64 %rd8, %rd8, %rd11; add.u64 %rd8, %rd8, %rd13;
        add.u64 %rd8, %rd8, %rd15; isspacep.shared %p1, %rd4; isspacep.local %p2, %rd2; isspacep.global %p3, %rd6;
        isspacep.global %p4, %rd4; selp.u64 %rd16, 1000, 0, %p1; selp.u64 %rd17, 2000, 0, %p2;
        selp.u64 %rd18, 4000, 0, %p3; selp.u64 %rd19, 8000, 0, %p4; add.u64 %rd8, %rd8, %rd16;
        add.u64 %rd8, %rd8, %rd17; add.u64 %rd8, %rd8, %rd18; add.u64 %rd8, %rd8, %rd19; st.global.u64 [%out], %rd8;";
    let declarations =
        ".shared .align 8 .b8 s[512]; .global .align 8 .b8 g[512]; .const .u64 c[2] = {1, 100};";
    let got = run(declarations, body, &[0; 64]);
    for (thread, got) in got.iter().enumerate() {
        assert_eq!(*got, 3 * thread as u64 + 100 + 7000, "{thread}");
    }
}

// Goal: elements narrower than registers, vectors, 128 bits. Method: known bytes.
#[test]
fn widths() {
    let body = "ld.global.v4.s8 {%r1, %r2, %r3, %r4}, [%in]; add.s32 %r5, %r1, %r2; add.s32 %r5, %r5, %r3;
        add.s32 %r5, %r5, %r4; ld.global.s16 %rd1, [%in+2]; ld.global.u8 %rs1, [%in]; cvt.u32.u16 %r6, %rs1;
        ld.global.v2.b16 {%rs2, _}, [%in+4]; cvt.s32.s16 %r7, %rs2; add.s32 %r5, %r5, %r6; add.s32 %r5, %r5, %r7;
        cvt.u32.u64 %r8, %rd1; add.s32 %r5, %r5, %r8; mov.b128 %q1, {%rd1, %rd1}; mov.b128 {%rd2, %rd3}, %q1;
        sub.u64 %rd4, %rd2, %rd3; cvt.u32.u64 %r9, %rd4; add.s32 %r5, %r5, %r9; st.global.u32 [%out], %r5;";
    let input = random(5, 32)
        .iter()
        .map(|x| x * 0x1_0001_0001)
        .collect::<Vec<_>>();
    for (word, got) in input.iter().zip(run("", body, &input)) {
        let bytes = word.to_le_bytes();
        let halves = |at: usize| i32::from(i16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let sum: i32 = bytes[..4].iter().map(|&b| i32::from(b as i8)).sum();
        let want = sum + i32::from(bytes[0]) + halves(4) + halves(2);
        assert_eq!(got, u64::from(want as u32));
    }
}

// Goal: jumps through a list, calls with register parameters, an alias. Method: exact.
#[test]
fn indexed_branches_and_register_calls() {
    let declarations =
        ".func (.reg .u32 %res) f(.reg .u32 %a, .reg .u32 %b) { mad.lo.u32 %res, %a, %b, 1; ret; }
        .alias g, f;";
    let body = "list: .branchtargets A, B, C; rem.u32 %r1, %t, 3; brx.idx %r1, list;
        A: mov.u32 %r2, 10; bra.uni J; B: call (%r2), f, (%t, 5); bra.uni J; C: call.uni (%r2), g, (%t, %t);
        J: st.global.u32 [%out], %r2;";
    for (t, got) in run(declarations, body, &[0; 64]).iter().enumerate() {
        let t = t as u64;
        assert_eq!(*got, [10, t * 5 + 1, t * t + 1][(t % 3) as usize]);
    }
}

// Goal: labels and registers belong to their braces. Method: the same names twice.
#[test]
fn scopes() {
    let body = "mov.u32 %r1, 0; { .reg .u32 x; mov.u32 x, 5; L: add.u32 %r1, %r1, x; setp.lt.u32 %p1, %r1, 20; @%p1 bra L; }
        { .reg .u64 x; cvt.u64.u32 x, %r1; L: add.u64 x, x, 1; setp.lt.u64 %p1, x, 25; @%p1 bra L; cvt.u32.u64 %r1, x; }
        st.global.u32 [%out], %r1;";
    assert_eq!(run("", body, &[0; 32]), [25; 32]);
}

// Goal: the registers that say where a thread is. Method: a block of three dimensions.
#[test]
fn special_registers() {
    let body = "mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %laneid; mov.u32 %r4, %warpid;
        mov.u32 %r5, %lanemask_lt; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %nctaid.z; mov.u32 %r8, %dynamic_smem_size;
        popc.b32 %r9, %r5; mov.u32 %r10, %ntid.y; mad.lo.u32 %r11, %r2, %r10, %r1; mov.u32 %r12, %ntid.x;
        mad.lo.u32 %r11, %r11, %r12, %t; mad.lo.u32 %r13, %r4, 32, %r3; sub.u32 %r14, %r11, %r13; sub.u32 %r15, %r9, %r3;
        or.b32 %r14, %r14, %r15; mad.lo.u32 %r16, %r6, 100, %r7; add.u32 %r16, %r16, %r8; ld.param.u64 %rd1, [out];
        mad.wide.u32 %rd1, %r11, 8, %rd1; st.global.v2.u32 [%rd1], {%r14, %r16};";
    let program = program("", body);
    let out = program.arena.put(&[0u64; 60]);
    let shape = Shape {
        grid: [1, 3, 2],
        block: [5, 4, 3],
        shared: 64,
        ..Shape::default()
    };
    program.ok("k", &shape.arg(out).arg(out));
    assert_eq!(
        program.arena.get::<u64>(out, 60),
        [(200 + 2 + 64) << 32; 60]
    );
}

// Goal: copies with zeros at the end, and matrices moved and stored. Method: a warp's identity.
#[test]
fn asynchronous_copies_and_matrices() {
    let body = "mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %t, 16, %rd1;
        cp.async.cg.shared.global [%r2], [%rd1], 16, 12; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];
        movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r3; movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r7;
        stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r2], {%r3, %r4, %r5, %r6};
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r3, %r4}, [%r2];
        st.global.v2.u32 [%out], {%r3, %r4};";
    let program = program(".shared .align 16 .b8 s[512];", body);
    let input: Vec<u16> = (0..256).map(|i| i * 3 + 1).collect();
    let (out, data) = (program.arena.put(&[0u64; 32]), program.arena.put(&input));
    program.ok("k", &Shape::new(1, 32).arg(out).arg(data));
    let got = program.arena.get::<u16>(out, 128);
    for (lane, got) in got.chunks(4).enumerate() {
        for (matrix, pair) in got.chunks(2).enumerate() {
            for (half, value) in pair.iter().enumerate() {
                let column = lane % 4 * 2 + half;
                let at = matrix * 64 + lane / 4 * 8 + column;
                let want = if column < 6 { input[at] } else { 0 };
                assert_eq!(*value, want, "lane {lane}");
            }
        }
    }
}

/// A fragment's element: row or column and k of register `r`, element `e` of a lane.
type Place = fn(lane: usize, r: usize, e: usize) -> (usize, usize);

// Goal: shapes of mma that Triton's fixtures lack. Method: fragments spelled out from PTX's tables.
#[allow(clippy::too_many_lines, reason = "one kernel a shape")]
#[test]
fn matrices_of_other_shapes() {
    struct Case {
        name: &'static str,
        counts: [usize; 3],
        bits: u32,
        a: Place,
        b: Place,
        k: usize,
        m: usize,
    }
    let cases = [
        Case {
            name: "m8n8k16.row.col.s32.s8.s8.s32",
            counts: [1, 1, 2],
            bits: 8,
            k: 16,
            m: 8,
            a: |l, _, e| (l / 4, l % 4 * 4 + e),
            b: |l, _, e| (l / 4, l % 4 * 4 + e),
        },
        Case {
            name: "m16n8k16.row.col.s32.s8.s8.s32",
            counts: [2, 1, 4],
            bits: 8,
            k: 16,
            m: 16,
            a: |l, r, e| (l / 4 + 8 * r, l % 4 * 4 + e),
            b: |l, _, e| (l / 4, l % 4 * 4 + e),
        },
        Case {
            name: "m16n8k64.row.col.s32.s4.s4.s32",
            counts: [4, 2, 4],
            bits: 4,
            k: 64,
            m: 16,
            a: |l, r, e| (l / 4 + 8 * (r % 2), l % 4 * 8 + e + 32 * (r / 2)),
            b: |l, r, e| (l / 4, l % 4 * 8 + e + 32 * r),
        },
        Case {
            name: "m8n8k32.row.col.s32.s4.s4.s32",
            counts: [1, 1, 2],
            bits: 4,
            k: 32,
            m: 8,
            a: |l, _, e| (l / 4, l % 4 * 8 + e),
            b: |l, _, e| (l / 4, l % 4 * 8 + e),
        },
    ];
    for case in cases {
        let [na, nb, nc] = case.counts;
        let list = |from: usize, count: usize| {
            let names: Vec<String> = (from..from + count).map(|i| format!("%r{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let mut body = String::from(
            "ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %t, 48, %rd1; ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %t, 16, %rd2;\n",
        );
        for i in 0..na + nb + nc {
            body += &format!("ld.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
        }
        let (a, b, c) = (list(0, na), list(na, nb), list(na + nb, nc));
        body += &format!(
            "mma.sync.aligned.{} {}, {a}, {b}, {c};\n",
            case.name,
            list(20, nc)
        );
        for i in 0..nc {
            body += &format!("st.global.u32 [%rd2+{}], %r{};\n", 4 * i, 20 + i);
        }
        let program = program("", &body);
        let words: Vec<u32> = random(6, 12 * 32).iter().map(|&x| x as u32).collect();
        let (out, data) = (program.arena.put(&[0u32; 128]), program.arena.put(&words));
        program.ok("k", &Shape::new(1, 32).arg(out).arg(data));
        let per = (32 / case.bits) as usize;
        let fill = |place: Place, first: usize, count: usize| {
            let mut matrix = vec![0i64; 16 * case.k];
            for lane in 0..32 {
                for r in 0..count {
                    for e in 0..per {
                        let (row, k) = place(lane, r, e);
                        let word = words[lane * 12 + first + r] >> (case.bits as usize * e);
                        let shift = 32 - case.bits;
                        matrix[row * case.k + k] = i64::from((word << shift) as i32 >> shift);
                    }
                }
            }
            matrix
        };
        let (left, right) = (fill(case.a, 0, na), fill(case.b, na, nb));
        let got = program.arena.get::<i32>(out, 128);
        for lane in 0..32 {
            for r in 0..nc {
                let (row, column) = (lane / 4 + 8 * (r / 2), lane % 4 * 2 + r % 2);
                assert!(row < case.m);
                let sum: i64 = (0..case.k)
                    .map(|k| left[row * case.k + k] * right[column * case.k + k])
                    .sum();
                let want = (sum as i32).wrapping_add(words[lane * 12 + na + nb + r] as i32);
                assert_eq!(
                    got[lane * 4 + r],
                    want,
                    "{} lane {lane} register {r}",
                    case.name
                );
            }
        }
    }
}

// Goal: products of doubles. Method: fused in order of k, as PTX leaves no other rounding.
#[test]
fn matrices_of_doubles() {
    let body = "ld.param.u64 %rd1, [in]; mad.wide.u32 %rd1, %t, 32, %rd1; ld.param.u64 %rd2, [out]; mad.wide.u32 %rd2, %t, 16, %rd2;
        ld.global.f64 %fd1, [%rd1]; ld.global.f64 %fd2, [%rd1+8]; ld.global.f64 %fd3, [%rd1+16]; ld.global.f64 %fd4, [%rd1+24];
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd5, %fd6}, {%fd1}, {%fd2}, {%fd3, %fd4};
        st.global.v2.f64 [%rd2], {%fd5, %fd6};";
    let program = program("", body);
    let mut random = Random(7);
    let input: Vec<f64> = (0..128).map(|_| f64::from(random.unit())).collect();
    let (out, data) = (program.arena.put(&[0f64; 64]), program.arena.put(&input));
    program.ok("k", &Shape::new(1, 32).arg(out).arg(data));
    let got = program.arena.get::<f64>(out, 64);
    for lane in 0..32 {
        for r in 0..2 {
            let (row, column) = (lane / 4, lane % 4 * 2 + r);
            let start = input[lane * 4 + 2 + r];
            let want = (0..4).fold(start, |sum, k| {
                input[(row * 4 + k) * 4].mul_add(input[(column * 4 + k) * 4 + 1], sum)
            });
            assert_eq!(got[lane * 2 + r], want);
        }
    }
}

// Goal: texture fetches: formats, filters, edges. Method: a texture of 8 by 4 texels.
#[test]
fn textures() {
    let body = "ld.global.v2.f32 {%f1, %f2}, [%in]; ld.param.u64 %rd1, [in]; ld.global.u64 %rd2, [%rd1+512];
        tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}]; st.global.v2.f32 [%out], {%f3, %f4};";
    let points: Vec<(f32, f32)> = vec![
        (0.0, 0.0),
        (0.5, 0.5),
        (3.5, 2.5),
        (3.75, 2.25),
        (7.9, 3.9),
        (-1.0, 1.0),
        (9.0, 5.0),
        (2.0, 1.5),
    ];
    let texel = |x: i64, y: i64| (y.clamp(0, 3) * 8 + x.clamp(0, 7)) as f64 * 7.0;
    for (linear, normalized, mode) in [
        (false, false, AddressMode::Clamp),
        (true, false, AddressMode::Clamp),
        (false, true, AddressMode::Clamp),
        (false, false, AddressMode::Border),
        (false, true, AddressMode::Wrap),
    ] {
        let mut program = program("", body);
        let texels: Vec<u8> = (0..64)
            .map(|i| if i % 2 == 0 { i / 2 * 7 } else { 255 })
            .collect();
        let address = program.arena.put(&texels);
        program.arena.textures.push(Texture {
            address,
            width: 8,
            height: 4,
            depth: 1,
            pitch: 16,
            slice: 0,
            format: Format::U8,
            channels: 2,
            address_mode: [mode; 3],
            linear,
            normalized,
            as_integer: false,
        });
        let mut input = Vec::new();
        for i in 0..64 {
            let (x, y) = points[i % points.len()];
            let (x, y) = if normalized {
                (x / 8.0, y / 4.0)
            } else {
                (x, y)
            };
            input.push(u64::from(x.to_bits()) | u64::from(y.to_bits()) << 32);
        }
        input.push(1);
        let (out, data) = (program.arena.put(&[0u64; 64]), program.arena.put(&input));
        program.ok("k", &Shape::new(1, 64).arg(out).arg(data));
        let got = program.arena.get::<f32>(out, 128);
        for (i, pair) in got.chunks(2).enumerate() {
            let (x, y) = points[i % points.len()];
            let (x, y) = (f64::from(x), f64::from(y));
            let outside = x < 0.0 || y < 0.0 || x >= 8.0 || y >= 4.0;
            let (want, second) = if mode == AddressMode::Border && outside {
                (0.0, 0.0)
            } else if mode == AddressMode::Wrap {
                let (x, y) = (x.rem_euclid(8.0), y.rem_euclid(4.0));
                (texel(x as i64, y as i64) / 255.0, 1.0)
            } else if linear {
                let (bx, by) = ((x - 0.5).floor(), (y - 0.5).floor());
                let (wx, wy) = (x - 0.5 - bx, y - 0.5 - by);
                let at = |dx: i64, dy: i64| texel(bx as i64 + dx, by as i64 + dy);
                let top = at(0, 0) * (1.0 - wx) + at(1, 0) * wx;
                let bottom = at(0, 1) * (1.0 - wx) + at(1, 1) * wx;
                ((top * (1.0 - wy) + bottom * wy) / 255.0, 1.0)
            } else {
                (texel(x.floor() as i64, y.floor() as i64) / 255.0, 1.0)
            };
            let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 3e-3;
            assert!(
                near(pair[0], want) && near(pair[1], second),
                "{linear} {normalized} {mode:?} ({x}, {y}): {pair:?}, want {want}"
            );
        }
    }
}

// Goal: integers as they are, through a name. Method: a texture declared in the module.
#[test]
fn named_textures() {
    let body = "cvt.rn.f32.u32 %f1, %t; tex.1d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [picture, {%f1}];
        txq.width.b32 %r5, [picture]; add.u32 %r1, %r1, %r5; st.global.u32 [%out], %r1;";
    let mut program = program(".global .texref picture;", body);
    let texels: Vec<u16> = (0..40).map(|i| i * 1000).collect();
    let address = program.arena.put(&texels);
    program.arena.textures.push(Texture {
        address,
        width: 40,
        height: 1,
        depth: 1,
        pitch: 80,
        slice: 0,
        format: Format::U16,
        channels: 1,
        address_mode: [AddressMode::Clamp; 3],
        linear: false,
        normalized: false,
        as_integer: true,
    });
    let out = program.arena.put(&[0u64; 32]);
    program.ok("k", &Shape::new(1, 32).arg(out).arg(out));
    let want: Vec<u64> = (0..32).map(|i| i * 1000 + 40).collect();
    assert_eq!(program.arena.get::<u64>(out, 32), want);
}

// Goal: approximations keep PTX's bounds. Method: against double precision, 4 units in the last place.
#[test]
fn approximations() {
    type Case = (&'static str, fn(f64) -> f64);
    let cases: [Case; 7] = [
        ("ex2.approx.f32", f64::exp2),
        ("lg2.approx.f32", |x| x.abs().log2()),
        ("sin.approx.f32", f64::sin),
        ("cos.approx.f32", f64::cos),
        ("tanh.approx.f32", f64::tanh),
        ("rsqrt.approx.f32", |x| 1.0 / x.abs().sqrt()),
        ("rcp.approx.ftz.f32", |x| 1.0 / x),
    ];
    let mut random = Random(8);
    let input: Vec<u64> = (0..256)
        .map(|_| u64::from((random.unit() * 9.0).to_bits()))
        .collect();
    for (name, of) in cases {
        let abs = if name.starts_with("lg2") || name.starts_with("rsqrt") {
            "abs.f32 %f1, %f1;"
        } else {
            ""
        };
        let body =
            format!("ld.global.f32 %f1, [%in]; {abs} {name} %f2, %f1; st.global.f32 [%out], %f2;");
        for (bits, got) in input.iter().zip(run("", &body, &input)) {
            let want = of(f64::from(f32::from_bits(*bits as u32)));
            let got = f64::from(f32::from_bits(got as u32));
            let unit = f64::from((want as f32).abs().max(f32::MIN_POSITIVE)) * 2f64.powi(-23);
            assert!((got - want).abs() <= 4.0 * unit, "{name}: {got} {want}");
        }
    }
}
