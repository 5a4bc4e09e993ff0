//! Compiles the tracer's kernel side, with the header of constants that the causes' specs give. Without clang the build
//! still succeeds: the tracer then says that it has no object and how to get one, and everything but the tracer works.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

// The source itself, not the crate: a build dependency would compile Arrow a second time.
#[allow(dead_code, reason = "a build needs the brackets only")]
#[path = "../recording/src/cause/mod.rs"]
mod cause;

use cause::{Ends, brackets};

/// The object once for each set of switches (bpf/variant.h), the newest first; `src/tracer/variant.rs` says which kernels
/// need which.
const VARIANTS: &[(&str, &[&str])] = &[
    ("task_storage", &[]),
    ("hash", &["HASH_BY_TID"]),
    ("raw", &["HASH_BY_TID", "PERF_BUFFER", "RAW_TRACEPOINTS"]),
    ("raw_unshared", &["HASH_BY_TID", "PERF_BUFFER", "RAW_TRACEPOINTS", "NO_SHARED_MEMORY"]),
];

/// The same of the second object; `src/waits/object.rs` says which kernels need which.
const WAIT_VARIANTS: &[(&str, &[&str])] = &[("task_storage", &[]), ("hash", &["HASH_BY_TID"])];

fn main() {
    println!("cargo:rerun-if-changed=../recording/src/cause");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=FLATWATER_BPF_OBJECTS");
    println!("cargo:rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(folder.join("causes.h"), causes_header()).expect("OUT_DIR can be written");
    let calls = VARIANTS.iter().map(|&(name, switches)| ("slow_calls", name, switches));
    let waits = WAIT_VARIANTS.iter().map(|&(name, switches)| ("waits", name, switches));
    let empty: (_, _, &[&str]) = ("empty", "any", &[]);
    for (source, name, switches) in calls.chain(waits).chain([empty]) {
        let file = format!("{source}.{name}.bpf.o");
        let out = folder.join(&file);
        if let Some(prebuilt) = env::var_os("FLATWATER_BPF_OBJECTS") {
            let from = Path::new(&prebuilt).join(&file);
            std::fs::copy(&from, &out)
                .unwrap_or_else(|error| panic!("FLATWATER_BPF_OBJECTS: cannot copy {}: {error}", from.display()));
        } else if let Err(why) = compile(source, &out, switches) {
            println!("cargo:warning=the kernel tracer is left out: {why}");
            std::fs::write(&out, []).expect("OUT_DIR can be written");
        }
    }
}

/// The brackets as the kernel side knows them: their numbers, and the programs that need no code of their own.
fn causes_header() -> String {
    let mut text = "/* Made by build.rs from crates/recording/src/cause/table.rs. */\n\
                    #ifndef FLATWATER_CAUSES_H\n#define FLATWATER_CAUSES_H\n\nenum bracket {\n\tB_NONE = 0,\n"
        .to_owned();
    for (number, cause, bracket) in brackets() {
        let _ = writeln!(text, "\tB_{} = {number}, /* {} */", bracket.name, cause.name());
    }
    text.push_str("};\n\n");
    for (list, only_seldom) in [("EACH_BRACKET", false), ("EACH_SELDOM_BRACKET", true)] {
        let _ = writeln!(text, "#define {list}(BRACKET) \\");
        for (_, _, bracket) in brackets().filter(|(_, _, bracket)| bracket.seldom || !only_seldom) {
            if let Ends::Tracepoints { begin, end } = bracket.ends {
                let _ = writeln!(text, "\tBRACKET({begin}, {end}, B_{}) \\", bracket.name);
            }
        }
        text.push('\n');
    }
    text.push_str("#define EACH_FUNCTION(AROUND) \\\n");
    for (_, _, bracket) in brackets() {
        if let Ends::Function(names) = bracket.ends {
            for name in names {
                let _ = writeln!(text, "\tAROUND({name}, B_{}) \\", bracket.name);
            }
        }
    }
    text.push_str("\n#endif\n");
    text
}

fn compile(name: &str, out: &Path, switches: &[&str]) -> Result<(), String> {
    let target = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => return Err(format!("it knows x86_64 and aarch64, not {other:?}")),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let root = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-target", "bpf", "-c", "-o"]).arg(out).arg(format!("bpf/{name}.bpf.c"));
    command.arg("-I").arg(out.with_file_name(""));
    command.arg(format!("-D__TARGET_ARCH_{target}"));
    command.args(switches.iter().map(|switch| format!("-D{switch}")));
    // Debian keeps <asm/types.h> in a folder per architecture, which `-target bpf` does not look into; that of another
    // architecture comes with its cross compiler.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-I/usr/include/{arch}-linux-gnu")).arg(format!("-I/usr/{arch}-linux-gnu/include"));
    // The same bytes from every checkout.
    command.arg(format!("-ffile-prefix-map={}=/out/", out.with_file_name("").display()));
    command.arg(format!("-ffile-prefix-map={root}=/src")).arg("-fdebug-compilation-dir=/src").current_dir(&root);
    let output = command.output().map_err(|error| format!("cannot run {clang}: {error} (apt install clang)"))?;
    if !output.status.success() {
        return Err(format!("{clang} failed: {}", String::from_utf8_lossy(&output.stderr).replace('\n', " | ")));
    }
    // Debug sections are two thirds of the object; BTF, which the loader needs, stays. No harm where it is absent.
    let _ = Command::new("llvm-strip").arg("-g").arg(out).status();
    Ok(())
}
