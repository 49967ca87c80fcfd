//! Writes the kernels of the fixtures as seeds for the fuzzer, one a file: `ptx_seeds DIRECTORY`.

use std::path::PathBuf;

const TEXTS: [&str; 3] = [
    include_str!("../fixtures/kernels.clang.ptx"),
    include_str!("../fixtures/kernels.nvcc.ptx"),
    include_str!("../tests/instructions.rs"),
];

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).expect("usage: ptx_seeds DIRECTORY"));
    std::fs::create_dir_all(&directory)?;
    for (number, text) in TEXTS.iter().enumerate() {
        // Bodies of the hand-written tests lie between quotes; they name what compilers seldom do.
        let pieces: Vec<String> = if number == 2 {
            text.split('"')
                .skip(1)
                .step_by(2)
                .map(hand_written)
                .collect()
        } else {
            text.split(".visible .entry")
                .skip(1)
                .map(compiled)
                .collect()
        };
        for (index, piece) in pieces.iter().enumerate() {
            if piece.len() < 4096 {
                std::fs::write(directory.join(format!("seed-{number}-{index}")), piece)?;
            }
        }
    }
    Ok(())
}

const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

fn compiled(kernel: &str) -> String {
    let end = kernel.find("\n}").map_or(kernel.len(), |end| end + 2);
    format!("{HEAD}.visible .entry{}", &kernel[..end])
}

fn hand_written(body: &str) -> String {
    format!(
        "{HEAD}.shared .align 16 .b8 s[512]; .global .u64 g[8]; .global .texref picture;\n\
         .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .b16 %rs<20>; .reg .b32 %r<40>, %t; .reg .b64 %rd<40>, %out, %in; .reg .f32 %f<20>;\n\
         .reg .f64 %fd<9>; .reg .pred %p<20>; .reg .b128 %q<4>;\n\
         ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}
