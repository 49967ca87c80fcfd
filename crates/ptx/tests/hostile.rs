//! Kernels and texts that do wrong: every one ends with an error that says where and why.

mod support;

use std::sync::Arc;

use narrows_ptx::{
    Budget, ErrorKind, KernelError, Launch, Limits, Linked, Module, Scratch, run_block,
};
use support::{Arena, BASE, Program, Shape};

const HEAD: &str = ".version 8.3\n.target sm_80\n.address_size 64\n";

fn text(declarations: &str, body: &str) -> String {
    format!(
        "{HEAD}{declarations}\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .b32 %t;\n\
         ld.param.u64 %rd0, [out]; mov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}

fn fail(declarations: &str, body: &str, threads: u32) -> KernelError {
    let program = Program::new(&text(declarations, body));
    let out = program.arena.alloc(256);
    let shape = Shape::new(1, threads).arg(out);
    program
        .run_within("k", &shape, 10_000_000)
        .expect_err("the kernel does wrong")
}

// Goal: every access is checked, in each space. Method: one access beyond each end.
#[test]
fn accesses_out_of_bounds() {
    let cases = [
        ("st.global.u32 [%rd0+256], 1;", "global", BASE + 256),
        ("ld.global.u32 %r1, [%rd0-4];", "global", BASE - 4),
        ("mov.u64 %rd1, 0; ld.u64 %rd2, [%rd1];", "global", 0),
        (
            "mov.u64 %rd1, -8; st.global.u64 [%rd1], 1;",
            "global",
            u64::MAX - 7,
        ),
        ("mov.u32 %r1, s; st.shared.u32 [%r1+64], 1;", "shared", 64),
        ("mov.u64 %rd1, 64; ld.shared.u32 %r1, [%rd1];", "shared", 64),
        (
            "mov.u64 %rd1, 4294967296; ld.shared.u32 %r1, [%rd1];",
            "shared",
            1 << 32,
        ),
        (
            ".local .b8 l[16]; mov.u64 %rd1, l; ld.local.u32 %r1, [%rd1+16];",
            "local",
            16,
        ),
        ("ld.param.u64 %rd1, [out+8];", "param", 8),
        (
            "mov.u64 %rd1, out; cvta.param.u64 %rd1, %rd1; st.u32 [%rd1], 5;",
            "param",
            0,
        ),
        (
            "atom.global.add.u32 %r1, [%rd0+256], 1;",
            "global",
            BASE + 256,
        ),
        ("atom.shared.add.u32 %r1, [s+64], 1;", "shared", 64),
        (
            "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+256];",
            "global",
            BASE + 256,
        ),
    ];
    for (body, space, address) in cases {
        let error = fail(".shared .align 4 .b8 s[64];", body, 32);
        match error.kind {
            ErrorKind::Address {
                address: found,
                space: place,
                ..
            } => {
                assert_eq!((place, found), (space, address), "{body}");
            }
            other => panic!("{body}: {other}"),
        }
        assert_eq!(error.kind.cuda(), 700);
        assert_eq!(error.thread, Some([0, 0, 0]), "{body}");
    }
}

// Goal: the report names thread, line, source and instruction. Method: thread 37 of a block alone.
#[test]
fn a_report_says_where() {
    let declarations = ".file 1 \"good.cu\"";
    let body = "setp.eq.u32 %p1, %t, 37;\n.loc 1 42 7\n@%p1 st.global.u32\n[%rd0+1024],   %r1;";
    let error = fail(declarations, body, 64);
    assert_eq!(error.thread, Some([37, 0, 0]));
    assert_eq!(error.source, Some(("good.cu".into(), 42)));
    assert_eq!(error.line, 11);
    assert_eq!(error.instruction, "@%p1 st.global.u32 [%rd0+1024], %r1");
    let shown = error.to_string();
    assert_eq!(
        shown,
        "kernel k: illegal address 0x700000000400, 4 bytes of global memory, block (0,0,0), \
         thread (37,0,0), PTX line 11 (good.cu:42): @%p1 st.global.u32 [%rd0+1024], %r1"
    );
}

// Goal: alignment is that of a device. Method: scalar, vector, atomic, shared.
#[test]
fn misaligned_accesses() {
    for body in [
        "ld.global.u32 %r1, [%rd0+2];",
        "ld.global.v2.u32 {%r1, %r2}, [%rd0+4];",
        "atom.global.add.u32 %r1, [%rd0+1], 1;",
        "mov.u32 %r1, s; st.shared.u64 [%r1+4], 1;",
    ] {
        let error = fail(".shared .align 8 .b8 s[64];", body, 32);
        assert!(
            matches!(error.kind, ErrorKind::Misaligned { .. }),
            "{body}: {error}"
        );
        assert_eq!(error.kind.cuda(), 716);
    }
}

// Goal: nothing runs for ever. Method: loops, locks never released, barriers nobody reaches.
#[test]
fn kernels_without_end() {
    let error = fail("", "L: bra L;", 64);
    assert_eq!(error.kind, ErrorKind::Budget);
    let error = fail("", "L: atom.global.cas.b32 %r1, [%rd0], 5, 6; bra L;", 64);
    assert_eq!(error.kind, ErrorKind::Budget);
    let error = fail(
        "",
        "setp.lt.u32 %p1, %t, 32; @%p1 bra W; bar.sync 1; ret; W: bar.sync 2;",
        64,
    );
    assert_eq!(error.kind, ErrorKind::Deadlock);
    assert!(error.instruction.starts_with("bar.sync"), "{error}");
    let error = fail("", "bar.sync 3, 128;", 96);
    assert!(matches!(error.kind, ErrorKind::Deadlock), "{error}");
}

// Goal: calls end. Method: recursion without end, targets that are no function, a trap.
#[test]
fn calls_that_go_wrong() {
    let recursive = ".func f() { call f; ret; }";
    assert_eq!(fail(recursive, "call f;", 64).kind, ErrorKind::Stack);
    let body = "{ .reg .u64 x; mov.u64 x, 99; proto: .callprototype _ (); call x, (), proto; }";
    assert_eq!(fail("", body, 32).kind, ErrorKind::Target(99));
    let body = "list: .branchtargets A; brx.idx %t, list; A:";
    assert_eq!(fail("", body, 32).kind, ErrorKind::Target(1));
    assert!(matches!(fail("", "trap;", 32).kind, ErrorKind::Trap(_)));
    let declarations = ".extern .func other (.param .u64 a);";
    let body = "{ .param .u64 p; st.param.u64 [p], %rd0; call other, (p); }";
    let error = fail(declarations, body, 32);
    assert!(
        error.to_string().contains("function other has no body"),
        "{error}"
    );
}

// Goal: an assertion's message is shown. Method: what nvcc makes of assert.
#[test]
fn assertions() {
    let declarations = ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
        .global .b8 m[6] = {120, 32, 62, 32, 48}; .global .b8 f[5] = {97, 46, 99, 117};";
    let body = "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %rd1, m; mov.u64 %rd2, f;
        st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 12;
        call.uni __assertfail, (a, b, c, d, e); }";
    let error = fail(declarations, body, 32);
    assert!(
        error
            .to_string()
            .contains("assertion x > 0 failed at a.cu:12"),
        "{error}"
    );
}

// Goal: an instruction that is not there hurts only the kernel that runs it, and only then.
#[test]
fn unsupported_instructions_are_named_when_they_run() {
    let body = "setp.eq.u32 %p1, %t, 99; @%p1 wgmma.fence.sync.aligned; @%p1 frob.b32 %r1, {%r2}, [%rd0 %r1]; ret;
        add.f99 %r1, %r1, %r1;";
    let program = Program::new(&text("", body));
    let out = program.arena.alloc(256);
    program.ok("k", &Shape::new(1, 64).arg(out));
    let names: Vec<String> = program
        .linked
        .module()
        .unsupported()
        .map(|(_, what)| what.to_owned())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let error = fail("", "wgmma.fence.sync.aligned;", 32);
    assert_eq!(error.kind.cuda(), 801);
    assert!(
        error.to_string().contains("wgmma.fence.sync.aligned"),
        "{error}"
    );
    // A modifier that is not known is not ignored.
    let error = fail("", "add.frob.u32 %r1, %r1, %r1;", 32);
    assert!(error.to_string().contains(".frob"), "{error}");
}

// Goal: texts that are not PTX are refused with a place. Method: one mistake each.
#[test]
fn texts_that_do_not_parse() {
    let kernel = |body: &str| format!("{HEAD}.entry k() {{ {body} }}");
    let cases = [
        (String::new(), "begins with .version"),
        ("\u{7f}ELF".into(), "begins with .version"),
        (format!("{HEAD}hello"), "expected a directive"),
        (format!("{HEAD}.entry k("), "expected .param"),
        (kernel("mov.u32 %r1, 5"), "expected ','"),
        (kernel("bra L;"), "label L is not defined"),
        (kernel("L: L: ret;"), "defined twice"),
        (kernel("@%p1 ret;"), "%p1 is no predicate"),
        (kernel("/* "), "comment without end"),
        (kernel(".reg .b32 %r<99999999999>;"), "too many"),
        (
            kernel(".local .b8 l[99999999];"),
            "local variables take more memory",
        ),
        (
            kernel(".shared .b8 l[99999999];"),
            "shared variables take more memory",
        ),
        (
            format!("{HEAD}.global .b8 g[99999999999999999999];"),
            "no number",
        ),
        (
            format!("{HEAD}.global .b8 g[9999999999999];"),
            "more memory than allowed",
        ),
        (format!("{HEAD}.global .u64 g = h;"), "h has no address"),
        (
            format!("{HEAD}.global .u32 g[1] = {{{{{{{{{{{{{{{{{{{{{{1}}}}}}}}}}}}}}}}}}}}}};"),
            "nest too deep",
        ),
        (
            format!("{HEAD}.entry k() {{}} .entry k() {{}}"),
            "defined twice",
        ),
        (format!("{HEAD}.address_size 32"), "64 bits"),
    ];
    for (text, what) in cases {
        let error = Module::parse(&text, &Limits::default()).expect_err(&text);
        assert!(error.to_string().contains(what), "{text}: {error}");
        assert!(error.line >= 1 && error.column >= 1);
    }
    let deep = kernel(&format!(
        "mov.u32 %r1, {}1{};",
        "{".repeat(5000),
        "}".repeat(5000)
    ));
    let module = Module::parse(&deep, &Limits::default()).expect("an odd operand only");
    assert_eq!(module.unsupported().count(), 1);
}

// Goal: what a launch gives is checked. Method: one thing wrong each.
#[test]
fn launches_that_do_not_fit() {
    let text = format!(
        "{HEAD}.entry k(.param .u64 a, .param .u32 b) .reqntid 64, 1, 1 {{ .shared .b8 s[1000]; .reg .u32 %r<2>; mov.u32 %r1, s; ret; }}"
    );
    let program = Program::new(&text);
    let good = Shape::new(1, 64).arg(1u64).arg(2u32);
    program.ok("k", &good);
    let wrong = [
        Shape {
            block: [32, 1, 1],
            ..good.clone()
        },
        Shape {
            block: [64, 2, 1],
            ..good.clone()
        },
        Shape {
            block: [0, 1, 1],
            ..good.clone()
        },
        Shape {
            block: [u32::MAX; 3],
            ..good.clone()
        },
        Shape {
            params: vec![0; 11],
            ..good.clone()
        },
        Shape {
            shared: u32::MAX,
            ..good.clone()
        },
        Shape {
            shared: 233_000,
            ..good.clone()
        },
    ];
    for shape in wrong {
        let error = program.run("k", &shape).expect_err("does not fit");
        assert!(matches!(error.kind, ErrorKind::Launch(_)), "{error}");
    }
    let other = Program::new(&text.replace(" k(", " j("));
    let budget = Budget::new(1000);
    let launch = Launch {
        linked: &other.linked,
        kernel: program.linked.module().kernel("k").expect("there"),
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared: 0,
        params: &good.params,
        budget: &budget,
        start_ns: 0,
    };
    let error = run_block(&launch, [0; 3], &other.arena, &mut Scratch::default());
    assert!(matches!(
        error.expect_err("of another module").kind,
        ErrorKind::Launch(_)
    ));
}

// Goal: one launch sees nothing of another's registers, shared or local memory.
#[test]
fn scratch_is_cleared_between_launches() {
    let secret = text(
        "",
        ".shared .b8 s[64]; .local .b8 l[64]; mov.u64 %rd1, l; mov.u32 %r1, s; mov.u32 %r2, 12345; mov.u32 %r3, 12345;\n\
         st.shared.u32 [%r1], %r2; st.local.u32 [%rd1], %r2; setp.eq.u32 %p1, %r2, %r2;",
    );
    let spy = text(
        "",
        ".shared .b8 s[64]; .local .b8 l[64]; ld.shared.u32 %r1, [s]; ld.local.u32 %r2, [l]; or.b32 %r1, %r1, %r2;\n\
         or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4; @%p1 add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;",
    );
    let arena = Arena::new(4096);
    let out = arena.alloc(256);
    let mut scratch = Scratch::default();
    for text in [&secret, &spy] {
        let module = Module::parse(text, &Limits::default()).expect("parses");
        let linked = Linked::new(Arc::new(module), &[], &[]);
        let budget = Budget::new(10_000);
        let launch = Launch {
            linked: &linked,
            kernel: linked.module().kernel("k").expect("there"),
            grid: [1; 3],
            block: [32, 1, 1],
            dynamic_shared: 0,
            params: &out.to_le_bytes(),
            budget: &budget,
            start_ns: 0,
        };
        run_block(&launch, [0; 3], &arena, &mut scratch).expect("runs");
    }
    assert_eq!(arena.get::<u32>(out, 1), [0]);
}

// Goal: garbage never panics. Method: fixtures with bytes changed, cut and doubled, parsed and run.
#[test]
fn damaged_texts_parse_or_fail() {
    let whole = include_str!("../fixtures/kernels.nvcc.ptx");
    let begin = whole
        .find(".visible .entry bitonic")
        .expect("in the fixture");
    let end = whole[begin..].find("\n}").expect("its end") + begin + 2;
    let text = format!("{HEAD}{}", &whole[begin..end]);
    let mut random = support::Random(99);
    let (mut parsed, mut ran) = (0, 0);
    for _ in 0..400 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = 0x20 + random.below(95) as u8,
                1 => drop(bytes.remove(at)),
                2 => {
                    let other = random.below(bytes.len() as u64) as usize;
                    bytes[at] = bytes[other];
                }
                _ => {
                    let len = random.below(40).min((bytes.len() - at) as u64) as usize;
                    let copy = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let Ok(module) = Module::parse(&text, &Limits::default()) else {
            continue;
        };
        parsed += 1;
        let arena = Arena::new(1 << 16);
        let data = arena.alloc(1 << 15);
        let linked = Linked::new(Arc::new(module), &[], &[]);
        let Some(kernel) = linked.module().kernels().next() else {
            continue;
        };
        let budget = Budget::new(100_000);
        let launch = Launch {
            linked: &linked,
            kernel,
            grid: [1; 3],
            block: [64, 1, 1],
            dynamic_shared: 0,
            params: &data.to_le_bytes(),
            budget: &budget,
            start_ns: 0,
        };
        ran += u32::from(run_block(&launch, [0; 3], &arena, &mut Scratch::default()).is_ok());
    }
    assert!(parsed > 20 && ran > 5, "{parsed} parsed, {ran} ran");
}
