//! Compiles the tracer's kernel side. Without clang the build still
//! succeeds: the tracer then says that it has no object and how to get one, and everything but the tracer works.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for file in ["slow_calls.bpf.c", "slow_calls.h", "kernel_types.h", "state.h", "foreign.h", "latency.h"] {
        println!("cargo:rerun-if-changed=bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=FLATWATER_BPF_OBJECT");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("slow_calls.bpf.o");
    if let Some(prebuilt) = env::var_os("FLATWATER_BPF_OBJECT") {
        std::fs::copy(&prebuilt, &out).unwrap_or_else(|error| {
            panic!("FLATWATER_BPF_OBJECT: cannot copy {}: {error}", Path::new(&prebuilt).display());
        });
        return;
    }
    if let Err(why) = compile(&out) {
        println!("cargo:warning=the kernel tracer is left out: {why}");
        std::fs::write(&out, []).expect("OUT_DIR can be written");
    }
}

fn compile(out: &Path) -> Result<(), String> {
    let target = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => return Err(format!("it knows x86_64 and aarch64, not {other:?}")),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let root = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-target", "bpf", "-c", "-o"]).arg(out).arg("bpf/slow_calls.bpf.c");
    command.arg(format!("-D__TARGET_ARCH_{target}"));
    // Debian keeps <asm/types.h> in a folder per architecture, which `-target bpf` does not look into.
    command.arg(format!("-I/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default()));
    // The same bytes from every checkout.
    command.arg(format!("-ffile-prefix-map={root}=/src")).arg("-fdebug-compilation-dir=/src").current_dir(&root);
    let output = command.output().map_err(|error| format!("cannot run {clang}: {error} (apt install clang)"))?;
    if !output.status.success() {
        return Err(format!("{clang} failed: {}", String::from_utf8_lossy(&output.stderr).replace('\n', " | ")));
    }
    // Debug sections are two thirds of the object; BTF, which the loader needs, stays. No harm where it is absent.
    let _ = Command::new("llvm-strip").arg("-g").arg(out).status();
    Ok(())
}
