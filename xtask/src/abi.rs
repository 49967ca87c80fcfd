//! `cargo xtask abi DIR`: reads NVIDIA's public CUDA driver headers and writes the facts that the GPU crates need.
//!
//! The headers are not ours and never committed. `DIR` is the `include` folder of the package that a developer's pip
//! downloads (`pip download --no-deps nvidia-cuda-runtime`, unzipped). What is written is facts only: names, numbers,
//! and how wide each parameter is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

/// Every header whose functions `libcuda.so.1` exports, and those that carry their versions.
const SOURCE: &str = "#define __CUDA_API_VERSION_INTERNAL
#include \"cuda.h\"
#include \"cudaGL.h\"
#include \"cudaEGL.h\"
#include \"cudaVDPAU.h\"
";
const TYPEDEFS: [&str; 5] = [
    "cudaTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
];
/// Just enough of other people's headers for the above to be read.
const STANDINS: [(&str, &str); 4] = [
    ("GL/gl.h", "typedef unsigned int GLuint; typedef unsigned int GLenum;\n"),
    (
        "EGL/egl.h",
        "typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR; typedef int EGLint;\n",
    ),
    ("EGL/eglext.h", "\n"),
    (
        "vdpau/vdpau.h",
        "typedef unsigned int VdpDevice; typedef unsigned int VdpVideoSurface;
typedef unsigned int VdpOutputSurface; typedef int VdpGetProcAddress(unsigned, unsigned, void **);\n",
    ),
];
/// Declared in a header that no package carries any more, and exported by every driver.
const PROFILER: [(&str, &str); 3] = [
    ("cuProfilerInitialize", "ppw"),
    ("cuProfilerStart", ""),
    ("cuProfilerStop", ""),
];
/// A twin that takes the per-thread default stream where its original takes the shared one.
const TWINS: [&str; 2] = ["_ptds", "_ptsz"];

/// A parameter's passing class and the function's name: all that a stub and a table need.
struct Function {
    name: String,
    shape: String,
}

pub(crate) fn write(include: &Path) -> Result<()> {
    let text = preprocess(include)?;
    let functions = functions(&text);
    ensure!(
        functions.len() > 600,
        "only {} functions found",
        functions.len()
    );
    let versions = versions(include)?;
    let rows = rows(&functions, &versions)?;
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/gpu-abi/src/facts.rs");
    fs::write(&out, render(&text, &rows)?).with_context(|| format!("writing {}", out.display()))?;
    println!(
        "abi: {} symbols, {} with a version",
        rows.len(),
        rows.iter().filter(|row| row.2 > 0).count()
    );
    Ok(())
}

fn preprocess(include: &Path) -> Result<String> {
    let dir = std::env::temp_dir().join(format!("narrows-abi-{}", std::process::id()));
    for (name, text) in STANDINS {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().context("a stand-in has a folder")?)?;
        fs::write(path, text)?;
    }
    let source = dir.join("all.c");
    fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-E", "-P"])
        .arg(format!("-I{}", include.display()))
        .arg(format!("-I{}", dir.display()))
        .arg(&source)
        .output()
        .context("running cc")?;
    fs::remove_dir_all(&dir)?;
    ensure!(
        output.status.success(),
        "cc -E failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" "))
}

fn functions(text: &str) -> Vec<Function> {
    let pointers = pointer_types(text);
    let words = enum_types(text);
    let mut found = BTreeMap::new();
    for piece in text.split("CUresult cu").skip(1) {
        let Some((name, rest)) = piece.split_once('(') else {
            continue;
        };
        if !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let Some((list, _)) = rest.split_once(");") else {
            continue;
        };
        let shape = split_parameters(list)
            .iter()
            .map(|parameter| class(parameter, &pointers, &words))
            .collect();
        found.insert(format!("cu{name}"), shape);
    }
    for (name, shape) in PROFILER {
        found.insert(name.into(), shape.into());
    }
    found
        .into_iter()
        .map(|(name, shape)| Function { name, shape })
        .collect()
}

/// Splits at commas outside parentheses.
fn split_parameters(list: &str) -> Vec<String> {
    let mut parameters = vec![String::new()];
    let mut depth = 0;
    for c in list.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parameters.push(String::new());
                continue;
            }
            _ => {}
        }
        parameters.last_mut().expect("there is one").push(c);
    }
    parameters.retain(|text| !matches!(text.trim(), "" | "void"));
    parameters
}

/// Names of types that are pointers: handles and functions.
fn pointer_types(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for piece in text.split("typedef ").skip(1) {
        let declared = piece.split(';').next().unwrap_or_default();
        if declared.contains('{') {
            continue;
        }
        let name = if let Some((_, rest)) = declared.split_once("(*").or(declared.split_once("( *"))
        {
            rest.split(')').next().unwrap_or_default()
        } else if let Some((_, name)) = declared.rsplit_once('*') {
            name
        } else {
            // An alias of one that is known already.
            let mut halves = declared.split_whitespace();
            match (halves.next(), halves.next(), halves.next()) {
                (Some(old), Some(new), None) if names.contains(old) => new,
                _ => continue,
            }
        };
        names.insert(name.trim().to_string());
    }
    names
}

fn enum_types(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for piece in text.split("typedef enum ").skip(1) {
        if let Some((_, rest)) = piece.split_once('}') {
            names.insert(
                rest.split(';')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_string(),
            );
        }
    }
    names
}

/// `p` pointer, `q` 64 bits, `w` up to 32 bits, `f` float, `s` a structure by value.
fn class(parameter: &str, pointers: &BTreeSet<String>, words: &BTreeSet<String>) -> char {
    if parameter.contains(['*', '[']) {
        return 'p';
    }
    let parts: Vec<_> = parameter
        .split_whitespace()
        .filter(|word| *word != "const")
        .collect();
    if parts.iter().any(|word| pointers.contains(*word)) {
        return 'p';
    }
    const LONG: [&str; 7] = [
        "size_t",
        "cuuint64_t",
        "CUdeviceptr",
        "CUtexObject",
        "CUsurfObject",
        "CUgraphConditionalHandle",
        "long",
    ];
    const SHORT: [&str; 12] = [
        "int",
        "unsigned",
        "char",
        "short",
        "CUdevice",
        "cuuint32_t",
        "GLuint",
        "GLenum",
        "EGLint",
        "VdpDevice",
        "VdpVideoSurface",
        "VdpOutputSurface",
    ];
    if parts.iter().any(|word| {
        LONG.contains(word)
            || word.ends_with("ptr_v2")
            || word.ends_with("Object_v1")
            || word.ends_with("AllocationHandle")
            || *word == "CUlogicalEndpointId"
    }) {
        'q'
    } else if parts.contains(&"float") {
        'f'
    } else if parts.iter().any(|word| {
        SHORT.contains(word)
            || words.contains(*word)
            || matches!(*word, "CUdevice_v1" | "CUdeviceptr_v1")
            || word.ends_with("AttrID")
    }) {
        'w'
    } else {
        's'
    }
}

/// Base name to the versions its variants came with, by twin suffix.
fn versions(include: &Path) -> Result<BTreeMap<(String, String), Vec<u32>>> {
    let mut versions = BTreeMap::<_, Vec<u32>>::new();
    for file in TYPEDEFS {
        let path = include.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for piece in text.split("*PFN_").skip(1) {
            let declared = piece.split(')').next().unwrap_or_default();
            let (declared, twin) = TWINS
                .iter()
                .find_map(|twin| Some((declared.strip_suffix(twin)?, *twin)))
                .unwrap_or((declared, ""));
            let Some((base, version)) = declared.rsplit_once("_v") else {
                continue;
            };
            let Ok(version) = version.parse() else {
                continue;
            };
            versions
                .entry((base.to_string(), twin.to_string()))
                .or_default()
                .push(version);
        }
    }
    versions.values_mut().for_each(|list| {
        list.sort_unstable();
        list.dedup();
    });
    Ok(versions)
}

/// Symbol, base name, version, flag, and the typedef that says so.
type Variant = (String, String, u32, u8, String);

/// (symbol, base, version, twin flag, shape). Sorted by version, the typedefs of one name are its variants in order.
fn rows(
    functions: &[Function],
    versions: &BTreeMap<(String, String), Vec<u32>>,
) -> Result<Vec<Variant>> {
    let mut groups = BTreeMap::<(String, String), Vec<(u32, &Function)>>::new();
    for function in functions {
        let (name, twin) = TWINS
            .iter()
            .find_map(|twin| Some((function.name.strip_suffix(twin)?, *twin)))
            .unwrap_or((&function.name, ""));
        let (base, variant) = match name.rsplit_once("_v") {
            Some((base, digits)) if digits.parse::<u32>().is_ok() => (base, digits.parse()?),
            _ => (name, 1),
        };
        groups
            .entry((base.to_string(), twin.to_string()))
            .or_default()
            .push((variant, function));
    }
    let mut rows = Vec::new();
    let mut misaligned = Vec::new();
    for ((base, twin), mut variants) in groups {
        variants.sort_by_key(|(variant, _)| *variant);
        let known = versions
            .get(&(base.clone(), twin.clone()))
            .map_or(&[][..], Vec::as_slice);
        if !known.is_empty() && known.len() != variants.len() {
            misaligned.push(format!(
                "{base}{twin}: {known:?} for {} variants",
                variants.len()
            ));
        }
        for (at, (_, function)) in variants.iter().enumerate() {
            let since = known.get(at).copied().unwrap_or(0);
            let flag = u8::from(!twin.is_empty());
            rows.push((
                function.name.clone(),
                base.clone(),
                since,
                flag,
                function.shape.clone(),
            ));
        }
    }
    if !misaligned.is_empty() {
        bail!(
            "versions and symbols do not line up:\n  {}",
            misaligned.join("\n  ")
        );
    }
    rows.sort();
    Ok(rows)
}

/// `NAME = value` of an enumeration; a member without a value is one more than the last.
fn members(text: &str, name: &str) -> Result<Vec<(String, u32)>> {
    let (_, rest) = text
        .split_once(&format!("typedef enum {name}"))
        .with_context(|| format!("no {name}"))?;
    let (_, rest) = rest.split_once('{').context("its members")?;
    let (list, _) = rest.split_once('}').context("its end")?;
    let mut next = 0;
    let mut found: Vec<(String, u32)> = Vec::new();
    for member in list
        .split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
    {
        let (name, value) = member
            .split_once('=')
            .map_or((member, None), |(name, value)| (name, Some(value)));
        let value = match value.map(str::trim) {
            None => next,
            Some(value) => match value
                .strip_prefix("0x")
                .map_or(value.parse(), |hex| u32::from_str_radix(hex, 16))
            {
                Ok(value) => value,
                // An alias of an earlier member.
                Err(_) => match found.iter().find(|(known, _)| known == value) {
                    Some((_, value)) => *value,
                    None => continue,
                },
            },
        };
        next = value + 1;
        found.push((name.trim().to_string(), value));
    }
    Ok(found)
}

fn render(text: &str, rows: &[(String, String, u32, u8, String)]) -> Result<String> {
    let mut out = String::from(
        "//! Facts of the CUDA driver's ABI, made by `cargo xtask abi` from its public headers. Do not edit.\n\n\
         use crate::Symbol;\n\n",
    );
    writeln!(
        out,
        "/// Every function that a driver exports, sorted by name.\n#[rustfmt::skip]\npub static SYMBOLS: &[Symbol] = &["
    )?;
    for (name, base, since, flag, shape) in rows {
        let per_thread = *flag == 1;
        writeln!(
            out,
            "    Symbol::new({name:?}, {base:?}, {since}, {per_thread}, {shape:?}),"
        )?;
    }
    out.push_str("];\n\n");
    for (constant, name, doc) in [
        ("RESULTS", "cudaError_enum", "Results: number and name."),
        (
            "DEVICE_ATTRIBUTES",
            "CUdevice_attribute_enum",
            "Attributes of a device: number and name.",
        ),
    ] {
        writeln!(
            out,
            "/// {doc}\n#[rustfmt::skip]\npub static {constant}: &[(u32, &str)] = &["
        )?;
        let mut seen = BTreeSet::new();
        for (name, value) in members(text, name)? {
            if seen.insert(value) && !name.ends_with("_MAX") {
                writeln!(out, "    ({value}, {name:?}),")?;
            }
        }
        out.push_str("];\n\n");
    }
    Ok(out)
}
