//! The table of instructions in `docs/specs/ptx.md`, made by parsing one kernel for each form.
//!
//! `UPDATE_DOCS=1 cargo test -p narrows-ptx --test coverage` writes it anew.

use narrows_ptx::{Limits, Module};

/// `{a,b}` stands for either; `$` for a register of the last type named. One instruction a line.
const FORMS: &[(&str, &str)] = &[
    ("Integer arithmetic", "
add.{u16,s16,u32,s32,u64,s64,u16x2,s16x2} $, $, $
add.sat.s32 $, $, $
sub.{u16,s16,u32,s32,u64,s64} $, $, $
mul.{lo,hi}.{u16,s16,u32,s32,u64,s64} $, $, $
mul.wide.{u32,s32} %rd1, $, $
mad.{lo,hi}.{u16,s16,u32,s32,u64,s64} $, $, $, $
mad.wide.{u32,s32} %rd1, $, $, %rd2
mad.hi.sat.s32 $, $, $, $
mul24.{lo,hi}.{u32,s32} $, $, $
mad24.{lo,hi}.{u32,s32} $, $, $, $
sad.{u16,s16,u32,s32,u64,s64} $, $, $, $
div.{u16,s16,u32,s32,u64,s64} $, $, $
rem.{u16,s16,u32,s32,u64,s64} $, $, $
abs.{s16,s32,s64} $, $
neg.{s16,s32,s64} $, $
min.{u16,s16,u32,s32,u64,s64,u16x2,s16x2} $, $, $
max.{u16,s16,u32,s32,u64,s64,u16x2,s16x2} $, $, $
min.relu.{s32,s16x2} $, $, $
popc.{b32,b64} %r1, $
clz.{b32,b64} %r1, $
bfind{,.shiftamt}.{u32,s32,u64,s64} %r1, $
fns.b32 $, $, $, $
brev.{b32,b64} $, $
bfe.{u32,s32,u64,s64} $, $, %r1, %r2
bfi.{b32,b64} $, $, $, %r1, %r2
szext.{wrap,clamp}.{u32,s32} $, $, $
bmsk.{wrap,clamp}.b32 $, $, $
dp4a.{u32,s32}.{u32,s32} $, $, $, $
dp2a.{lo,hi}.{u32,s32}.{u32,s32} $, $, $, $
"),
    ("Extended precision", "
add.cc.{u32,s32,u64,s64} $, $, $
addc{,.cc}.{u32,u64} $, $, $
sub.cc.{u32,s32,u64,s64} $, $, $
subc{,.cc}.{u32,u64} $, $, $
mad.{lo,hi}.cc.{u32,s32,u64,s64} $, $, $, $
madc.{lo,hi}{,.cc}.{u32,s32,u64,s64} $, $, $, $
"),
    ("Floating point", "
add{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 $, $, $
add{,.rn,.rz,.rm,.rp}.{f64,f32x2} $, $, $
add.rn.f32.{f16,bf16} %f1, %rs1, %f2
sub{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 $, $, $
sub{,.rn,.rz,.rm,.rp}.f64 $, $, $
mul{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 $, $, $
mul{,.rn,.rz,.rm,.rp}.{f64,f32x2} $, $, $
fma.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32 $, $, $, $
fma.{rn,rz,rm,rp}.{f64,f32x2} $, $, $, $
mad.{rn,rz,rm,rp}.{f32,f64} $, $, $, $
div.{rn,rz,rm,rp,full,approx}{,.ftz}.f32 $, $, $
div.{rn,rz,rm,rp}.f64 $, $, $
rcp.{rn,rz,rm,rp,approx}{,.ftz}.f32 $, $
rcp.{rn,rz,rm,rp,approx.ftz}.f64 $, $
sqrt.{rn,rz,rm,rp,approx}{,.ftz}.f32 $, $
sqrt.{rn,rz,rm,rp}.f64 $, $
rsqrt.approx{,.ftz}.{f32,f64} $, $
sin.approx{,.ftz}.f32 $, $
cos.approx{,.ftz}.f32 $, $
lg2.approx{,.ftz}.f32 $, $
ex2.approx{,.ftz}.f32 $, $
tanh.approx.{f32,f16,f16x2,bf16,bf16x2} $, $
abs{,.ftz}.f32 $, $
abs.{f64,f16,f16x2,bf16,bf16x2} $, $
neg{,.ftz}.f32 $, $
neg.{f64,f16,f16x2,bf16,bf16x2} $, $
min{,.ftz}{,.NaN}{,.xorsign.abs}.f32 $, $, $
max{,.ftz}{,.NaN}{,.xorsign.abs}.f32 $, $, $
min.{f64,f16,f16x2,bf16,bf16x2} $, $, $
max.{f64,f16,f16x2,bf16,bf16x2} $, $, $
copysign.{f32,f64} $, $, $
testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64} %p1, $
"),
    ("Half precision", "
add{,.rn}{,.ftz}{,.sat}.{f16,f16x2} $, $, $
sub{,.rn}{,.ftz}{,.sat}.{f16,f16x2} $, $, $
mul{,.rn}{,.ftz}{,.sat}.{f16,f16x2} $, $, $
fma.rn{,.ftz}{,.sat,.relu}.{f16,f16x2} $, $, $, $
add.rn.{bf16,bf16x2} $, $, $
mul.rn.{bf16,bf16x2} $, $, $
fma.rn{,.relu}.{bf16,bf16x2} $, $, $, $
ex2.approx.{f16,f16x2,ftz.bf16,ftz.bf16x2} $, $
"),
    ("Comparison and selection", "
setp.{eq,ne,lt,le,gt,ge}.{u16,s16,u32,s32,u64,s64} %p1, $, $
setp.{lo,ls,hi,hs}.{u16,u32,u64} %p1, $, $
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 %p1|%p2, $, $
setp.{eq,lt,ltu,nan}.{f64,f16,bf16} %p1, $, $
setp.lt.{f16x2,bf16x2} %p1|%p2, $, $
setp.lt.{and,or,xor}.s32 %p1|%p2, $, $, !%p3
set.lt.{u32,s32}.{s32,f32,f64} %r1, $, $
set.lt.f32.{s32,f32} %f1, $, $
set.lt.f16x2.f16x2 $, $, $
selp.{b16,b32,b64,u32,f32,f64} $, $, $, %p1
slct.{b32,b64,f32}.s32 $, $, $, %r1
"),
    ("Logic and shift", "
and.{b16,b32,b64,pred} $, $, $
or.{b16,b32,b64,pred} $, $, $
xor.{b16,b32,b64,pred} $, $, $
not.{b16,b32,b64,pred} $, $
cnot.{b16,b32,b64} $, $
lop3.b32 $, $, $, $, 150
lop3.{and,or}.b32 %r1|%p1, $, $, $, 150, %p2
shf.{l,r}.{wrap,clamp}.b32 $, $, $, $
shl.{b16,b32,b64} $, $, %r1
shr.{b16,b32,b64,u32,s16,s32,s64} $, $, %r1
prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} %r1, %r2, %r3, %r4
"),
    ("Moves and conversions", "
mov.{b16,b32,b64,f32,f64,pred} $, $
mov.b64 %rd1, {%r1, %r2}
mov.b128 %q1, {%rd1, %rd2}
cvta.{global,shared,local,const,param}.u64 $, $
cvta.to.{global,shared,local,const,param}.u64 $, $
isspacep.{global,shared,local,const,param} %p1, %rd1
cvt{,.sat}.{u8,s8,u16,s16,u32,s32}.{s16,u32,s32} %r1, $
cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{s32,u32,s64,u64}.f32 %rd1, $
cvt.{rni,rzi,rmi,rpi}.{s32,s64}.{f64,f16,bf16} %rd1, $
cvt.{rn,rz,rm,rp}.f32.{s32,u32,s64,u64} %f1, $
cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64 %f1, $
cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32 $, $
cvt.{rn,rz}{,.relu}.f16.f32 %rs1, $
cvt.{rn,rz}{,.relu}.bf16.f32 %rs1, $
cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32 %r1, %f1, %f2
cvt.f32.{f16,bf16} %f1, $
cvt.{rn,rz,rna}{,.satfinite}.tf32.f32 %r1, $
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 %rs1, %f1, %f2
cvt.rn.satfinite.{e4m3x2,e5m2x2}.f16x2 %rs1, %r1
cvt.rn.f16x2.{e4m3x2,e5m2x2} %r1, %rs1
cvt.rn.satfinite.e2m1x2.f32 %rs1, %f1, %f2
cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2
cvt.pack.sat.{u16,s16}.s32 %r1, %r2, %r3
cvt.pack.sat.{u8,s8}.s32.b32 %r1, %r2, %r3, %r4
"),
    ("Memory", "
ld{,.global,.shared,.local,.const}.{u8,s8,b16,u32,s32,u64,f32,f64} $, [%rd1]
ld.global{,.ca,.cg,.cs,.lu,.cv,.nc,.volatile,.relaxed.gpu,.acquire.sys}.u32 $, [%rd1+8]
ld.global.{v2,v4}.{u8,b16,u32,f32} {%r1, %r2}, [%rd1]
ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1]
ld.global.b128 %q1, [%rd1]
ldu.global.u32 $, [%rd1]
st{,.global,.shared,.local}{,.volatile,.relaxed.gpu,.release.sys,.wb,.cg}.{u8,b16,u32,u64,f32} [%rd1], $
st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4}
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3]
prefetch.global.{L1,L2} [%rd1]
createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000
cp.async.{ca,cg}.shared.global [%r1], [%rd1], 16
cp.async.ca.shared.global [%r1], [%rd1], 4, %r2
cp.async.commit_group
cp.async.wait_group 0
cp.async.wait_all
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3]
atom{,.global,.shared}{,.relaxed.gpu,.acq_rel.sys}.add.{u32,s32,u64,f32,f64} $, [%rd1], $
atom.global.{min,max}.{u32,s32,u64,s64} $, [%rd1], $
atom.global.{and,or,xor,exch}.{b32,b64} $, [%rd1], $
atom.global.{inc,dec}.u32 $, [%rd1], $
atom.global.cas.{b16,b32,b64} $, [%rd1], $, $
atom.global.cas.b128 %q1, [%rd1], %q2, %q3
atom.global.add.noftz.{f16,f16x2,bf16,bf16x2} $, [%rd1], $
atom.global.add.v2.f32 {%f1, %f2}, [%rd1], {%f3, %f4}
red{,.global,.shared}.add.{u32,u64,f32,f64} [%rd1], $
multimem.ld_reduce.global.add.u32 %r1, [%rd1]
suld.b.2d.b32.trap {%r1}, [%rd1, {%r2, %r3}]
sust.b.2d.b32.trap [%rd1, {%r2, %r3}], {%r1}
"),
    ("Textures", "
tex.{1d,2d,3d,a1d,a2d}.v4.{f32,u32,s32}.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%f1, %f2, %f3, %f4}]
tex.{1d,2d}.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2}]
tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2, %f3, %f4}]
tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}], %f3
tld4.{r,g,b,a}.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}]
txq.{width,height,depth,normalized_coords}.b32 %r1, [%rd1]
"),
    ("Control flow", "
bra{,.uni} L
brx.idx %r1, list
call (p0), f, (p1)
call (p0), %rd1, (p1), proto
ret{,.uni}
exit
trap
nanosleep.u32 %r1
"),
    ("Synchronisation and warps", "
bar.sync 0
bar.{sync,arrive} 1, 64
bar.red.popc.u32 %r1, 0, %p1
bar.red.{and,or}.pred %p1, 0, %p2
barrier{,.cta}.sync{,.aligned} 0
barrier.cluster.{arrive,wait}
bar.warp.sync -1
membar.{cta,gl,sys}
fence{,.sc,.acq_rel}.{cta,gpu,sys}
shfl.sync.{up,down,bfly,idx}.b32 %r1|%p1, %r2, 1, 31, -1
shfl.{up,down,bfly,idx}.b32 %r1, %r2, 1, 31
vote.sync.{all,any,uni}.pred %p1, %p2, -1
vote.sync.ballot.b32 %r1, %p1, -1
vote.{all,any,uni}.pred %p1, %p2
match.any.sync.{b32,b64} %r1, $, -1
match.all.sync.{b32,b64} %r1|%p1, $, -1
activemask.b32 %r1
redux.sync.{add,min,max}.{u32,s32} $, $, -1
redux.sync.{and,or,xor}.b32 $, $, -1
redux.sync.{min,max}.f32 $, $, -1
elect.sync %r1|%p1, -1
griddepcontrol.{wait,launch_dependents}
mbarrier.init.shared.b64 [%r1], 1
"),
    ("Matrices", "
ldmatrix.sync.aligned.m8n8.x4{,.trans}.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]
stmatrix.sync.aligned.m8n8.x2{,.trans}.shared.b16 [%r5], {%r1, %r2}
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2
mma.sync.aligned.m16n8k8.row.col.{f32,f16}.f16.f16.{f32,f16} $D, {%r1, %r2}, {%r3}, $C
mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16,bf16.bf16}.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r5}, {%f1, %f2, %f3, %f4}
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}
mma.sync.aligned.m8n8k16.row.col{,.satfinite}.s32.{u8,s8}.{u8,s8}.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2}
mma.sync.aligned.m16n8k32.row.col{,.satfinite}.s32.{u8,s8}.{u8,s8}.s32 {%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r5, %r6}, {%r1, %r2, %r3, %r4}
mma.sync.aligned.m16n8k64.row.col.s32.{u4,s4}.{u4,s4}.s32 {%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r5, %r6}, {%r1, %r2, %r3, %r4}
mma.sync.aligned.m16n8k32.row.col.f32.{e4m3,e5m2}.{e4m3,e5m2}.f32 {%f1, %f2, %f3, %f4}, {%r5, %r6, %r7, %r8}, {%r5, %r6}, {%f1, %f2, %f3, %f4}
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1, %fd2}, {%fd3}, {%fd4}, {%fd1, %fd2}
mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%fd1, %fd2, %fd3, %fd4}, {%fd5, %fd6, %fd7, %fd8}, {%fd5, %fd6}, {%fd1, %fd2, %fd3, %fd4}
mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}
mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4}, %r5, 0
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f2}
wgmma.fence.sync.aligned
tcgen05.fence::before_thread_sync
"),
    ("Video", "
vadd.s32.s32.s32 %r1, %r2, %r3
vadd4.s32.s32.s32.add %r1, %r2, %r3, %r4
"),
];

/// All texts that a pattern stands for.
fn expand(pattern: &str) -> Vec<String> {
    // Braces of operands hold registers or follow a space; those of alternatives do neither.
    let open = pattern.match_indices('{').find(|&(at, _)| {
        let is_register = pattern[at + 1..].starts_with('%');
        !is_register
    });
    let Some((open, _)) = open else {
        return vec![pattern.to_owned()];
    };
    let close = open + pattern[open..].find('}').expect("a brace closes");
    pattern[open + 1..close]
        .split(',')
        .flat_map(|choice| {
            expand(&format!(
                "{}{choice}{}",
                &pattern[..open],
                &pattern[close + 1..]
            ))
        })
        .collect()
}

/// Puts registers in place of `$`.
fn with_registers(form: &str) -> String {
    let opcode = form.split(' ').next().expect("an opcode");
    let last = opcode.split('.').rev().find(|word| {
        word.starts_with(['u', 's', 'b', 'f', 'p', 't'])
            && word.len() >= 2
            && (word[1..].starts_with(|c: char| c.is_ascii_digit())
                || matches!(*word, "pred" | "bf16" | "bf16x2" | "tf32"))
    });
    let class = match last.unwrap_or("u32") {
        "pred" => "%p",
        "u8" | "s8" | "u16" | "s16" | "b16" | "f16" | "bf16" => "%rs",
        "f32" => "%f",
        "f64" => "%fd",
        "u64" | "s64" | "b64" | "f32x2" => "%rd",
        _ => "%r",
    };
    let accumulator = |ty: Option<&str>| match ty {
        Some("f16") => "{%r1, %r2}",
        _ => "{%f1, %f2, %f3, %f4}",
    };
    let words: Vec<&str> = opcode.split('.').collect();
    let form = form
        .replace("$D", accumulator(words.get(6).copied()))
        .replace("$C", accumulator(words.last().copied()));
    // Vectors of four registers where two are written.
    let form = if form.contains(".v4.") && form.contains("{%r1, %r2}") {
        form.replace("{%r1, %r2}", "{%r1, %r2, %r3, %r4}")
    } else {
        form
    };
    let mut number = 0;
    form.split('$')
        .collect::<Vec<_>>()
        .into_iter()
        .enumerate()
        .fold(String::new(), |mut all, (i, part)| {
            if i > 0 {
                number += 1;
                all += &format!("{class}{number}");
            }
            all + part
        })
}

/// Why a form is not supported.
fn missing(form: &str) -> Option<String> {
    let text = format!(
        ".version 8.6\n.target sm_100\n.address_size 64\n\
         .func (.param .u32 r) f(.param .u32 a) {{ ret; }}\n\
         .entry k() {{\n.reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;\n\
         .reg .pred %p<9>; .reg .b128 %q<9>; .param .u32 p0; .param .u32 p1;\n\
         proto: .callprototype (.param .u32 _) _ (.param .u32 _);\nlist: .branchtargets L;\nL: {};\n}}",
        with_registers(form)
    );
    match Module::parse(&text, &Limits::default()) {
        Ok(module) => module.unsupported().next().map(|(_, what)| what.to_owned()),
        Err(error) => panic!("{form}: {error}"),
    }
}

fn table() -> String {
    let (mut out, mut supported, mut all) = (String::new(), 0, 0);
    for (group, patterns) in FORMS {
        out += &format!("\n### {group}\n\n| form | runs |\n|---|---|\n");
        for pattern in patterns.lines().filter(|line| !line.is_empty()) {
            let forms = expand(pattern);
            let lacking: Vec<&String> = forms
                .iter()
                .filter(|form| missing(form).is_some())
                .collect();
            all += forms.len();
            supported += forms.len() - lacking.len();
            let opcode = pattern.split(' ').next().expect("an opcode");
            let status = if lacking.is_empty() {
                "yes".to_owned()
            } else if lacking.len() == forms.len() {
                "no".to_owned()
            } else {
                let names: Vec<String> = lacking
                    .iter()
                    .map(|form| format!("`{}`", form.split(' ').next().expect("an opcode")))
                    .collect();
                format!("all but {}", names.join(", "))
            };
            out += &format!("| `{opcode}` | {status} |\n");
        }
    }
    format!("{supported} of {all} forms run.\n{out}")
}

const BEGIN: &str = "<!-- made by crates/ptx/tests/coverage.rs -->\n";

// Goal: the page says what the code does. Method: make the table, compare it with the page.
#[test]
fn the_page_lists_what_runs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/specs/ptx.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let (before, after) = page.split_once(BEGIN).expect("the page has the mark");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}")).expect("the page can be written");
    } else {
        assert!(
            after == table,
            "docs/specs/ptx.md is old: run this test with UPDATE_DOCS=1"
        );
    }
}
