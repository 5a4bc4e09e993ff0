//! The header is current, and a C program works against it: alone, under AddressSanitizer, and under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_what_the_code_says() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut text = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(here().join("src/c_types.rs"))
        .with_src(here().join("src/c.rs"))
        .generate()
        .unwrap()
        .write(&mut text);
    let path = here().join("include/precursor.h");
    if std::env::var_os("PRECURSOR_WRITE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read(&path).unwrap();
    assert!(
        committed == text,
        "include/precursor.h is stale: run PRECURSOR_WRITE_HEADER=1 cargo test -p precursor --test c_abi"
    );
}

/// The static library that the test build left beside the test binaries.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.parent().and_then(Path::parent).unwrap().to_owned();
    // `cargo test` builds the rlib only; the staticlib is asked for here, into the same folder.
    let release = profile.ends_with("release");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "-q", "-p", "precursor", "--lib"]).current_dir(here());
    if release {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    let library = profile.join("libprecursor.a");
    assert!(library.exists(), "{}", library.display());
    library
}

fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let done = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(flags)
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join("examples/append.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

fn run(mut command: Command) -> String {
    let done = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {:?}\n{said}", done.status);
    said
}

#[test]
fn the_c_example_runs_in_every_mode_under_address_sanitizer() {
    let dir = tempfile::tempdir().unwrap();
    let plain = compile(dir.path(), "append", &[]);
    let checked = compile(dir.path(), "append-asan", &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]);
    for mode in 0..=4 {
        for program in [&plain, &checked] {
            let file = dir.path().join(format!("journal-{mode}-{}", program.file_name().unwrap().display()));
            let mut command = Command::new(program);
            command.arg(&file).arg(mode.to_string());
            let said = run(command);
            assert!(said.contains("appends 1001, durable 232072 of 232072"), "{said}");
            let bytes = std::fs::read(&file).unwrap();
            assert_eq!(precursor::records(&bytes).count(), 1001);
        }
    }
}

#[test]
fn the_c_example_is_clean_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: this test proved nothing (apt-get install valgrind)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "append", &[]);
    for mode in ["1", "2", "4"] {
        let file = dir.path().join(format!("journal-{mode}"));
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg(&program).arg(&file).arg(mode);
        run(command);
        assert_eq!(precursor::records(&std::fs::read(&file).unwrap()).count(), 1001);
    }
}
