//! The header is current, and C programs work with the library: alone, under AddressSanitizer, and under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLE: &str = "examples/append.c";
/// Versions of the shared library's symbols, which `nm` lists too.
const VERSIONS: [&str; 3] = ["PRECURSOR_1.0", "PRECURSOR_1.1", "PRECURSOR_1.2"];

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_matches_the_code() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut text = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(here().join("src/c_types.rs"))
        .with_src(here().join("src/c.rs"))
        .with_src(here().join("src/c_many.rs"))
        .with_src(here().join("src/c_read.rs"))
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
        "include/precursor.h is stale: run PRECURSOR_WRITE_HEADER=1 cargo test -p precursor --test precursor c_abi::"
    );
}

/// Builds the static library into the folder of the test binaries' profile.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.parent().and_then(Path::parent).unwrap().to_owned();
    // `cargo test` builds only the rlib.
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

fn compile(dir: &Path, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let done = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(flags)
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join(source))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

/// Links the shared library, as `make install` does.
fn shared(dir: &Path) -> PathBuf {
    let done = Command::new(here().join("link.sh")).arg(library()).arg(dir).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    dir.join("libprecursor.so.1")
}

pub fn stdout_of(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args);
    run(command)
}

/// The library exports exactly the committed symbols, with their versions, and the header declares each of them.
#[test]
fn the_shared_library_exports_the_symbols_of_the_version_map() {
    let dir = tempfile::tempdir().unwrap();
    let library = shared(dir.path());
    let library = library.to_str().unwrap();
    let dynamic = stdout_of("readelf", &["-d", library]);
    assert!(dynamic.contains("Library soname: [libprecursor.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "its handlers must outlive dlclose: {dynamic}");
    let listed = stdout_of("nm", &["-D", "--defined-only", "--with-symbol-versions", library]);
    let names = listed.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned());
    let mut found: Vec<String> = names.filter(|name| !VERSIONS.contains(&name.as_str())).collect();
    found.sort();
    let committed = concat!(
        include_str!("abi/precursor-1.0.symbols"),
        include_str!("abi/precursor-1.1.symbols"),
        include_str!("abi/precursor-1.2.symbols")
    );
    let mut expected: Vec<String> = committed.lines().map(str::to_owned).collect();
    expected.sort();
    assert_eq!(
        found, expected,
        "an ABI only grows: add to tests/abi/*.symbols, and to libprecursor.map under a new version"
    );
    let header = std::fs::read_to_string(here().join("include/precursor.h")).unwrap();
    for symbol in &found {
        let name = symbol.split('@').next().unwrap();
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
    let declared = header.matches("\nint precursor_").count()
        + header.matches("\nuint32_t precursor_").count()
        + header.matches("\nuint64_t precursor_").count()
        + header.matches("\nvoid precursor_").count()
        + header.matches("\nconst char *precursor_").count();
    assert_eq!(declared, found.len(), "the header declares functions that are not exported");
}

/// Compiled as C and as C++ and linked to the shared library. The program checks structures of other versions, threads,
/// fork and more.
#[test]
fn c_and_cpp_programs_use_the_whole_interface() {
    let dir = tempfile::tempdir().unwrap();
    let library = shared(dir.path());
    let folder = library.parent().unwrap().to_str().unwrap();
    let include = here().join("include").display().to_string();
    let source = here().join("tests/abi/use.c").display().to_string();
    for (compiler, language, standard) in [("cc", "c", "-std=gnu11"), ("c++", "c++", "-std=c++17")] {
        let program = dir.path().join(format!("use-{language}")).display().to_string();
        let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", standard, "-x", language];
        let rest = [source.as_str(), "-I", &include, "-L", folder, "-lprecursor", "-lpthread", "-o", &program];
        stdout_of(compiler, &[&strict[..], &rest[..]].concat());
        let data = dir.path().join(format!("data-{language}"));
        std::fs::create_dir(&data).unwrap();
        let mut command = Command::new(&program);
        command.arg(&data).env("LD_LIBRARY_PATH", folder);
        assert!(run(command).contains("all as promised"));
        let needed = stdout_of("readelf", &["-d", &program]);
        assert!(needed.contains("Shared library: [libprecursor.so.1]"), "{needed}");
    }
}

/// The C++ wrapper, in a program that is built as a user would: with the installed files, by pkg-config and by CMake.
#[test]
fn a_cpp_program_uses_the_installed_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("prefix").display().to_string();
    let (target, install) = (library(), here().join("install.sh").display().to_string());
    stdout_of(&install, &[target.parent().unwrap().to_str().unwrap(), &prefix, &prefix]);
    let source = here().join("tests/abi/use.cpp").display().to_string();
    let pc = std::fs::read_to_string(format!("{prefix}/lib/pkgconfig/precursor.pc")).unwrap();
    assert!(pc.contains(&format!("prefix={prefix}\n")) && !pc.contains('@'), "{pc}");
    for standard in ["-std=c++17", "-std=c++20"] {
        let program = dir.path().join(format!("use{standard}")).display().to_string();
        let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", standard, &source];
        let (include, lib) = (format!("-I{prefix}/include"), format!("-L{prefix}/lib"));
        let rest = [include.as_str(), &lib, "-lprecursor", "-lpthread", "-o", &program];
        stdout_of("g++", &[&strict[..], &rest[..]].concat());
        let data = dir.path().join(format!("data{standard}"));
        std::fs::create_dir(&data).unwrap();
        let mut command = Command::new(&program);
        command.arg(&data).env("LD_LIBRARY_PATH", format!("{prefix}/lib"));
        assert!(run(command).contains("all as promised"));
    }
    for name in ["precursor-config.cmake", "precursor-config-version.cmake"] {
        let text = std::fs::read_to_string(format!("{prefix}/lib/cmake/precursor/{name}")).unwrap();
        assert!(!text.contains('@'), "{name}: {text}");
    }
    cmake(dir.path(), &prefix, &source);
}

/// Builds the program with `find_package(precursor)`.
fn cmake(dir: &Path, prefix: &str, source: &str) {
    if Command::new("cmake").arg("--version").output().is_err() {
        return needs::skip(needs::Need::Packages, "the CMake package", "cmake is not installed");
    }
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(use CXX)\nset(CMAKE_CXX_STANDARD 17)\n\
         find_package(precursor 0.1 REQUIRED)\nfind_package(Threads REQUIRED)\n\
         add_executable(use {source})\ntarget_link_libraries(use precursor::precursor Threads::Threads)\n"
    );
    std::fs::create_dir(dir.join("cmake")).unwrap();
    std::fs::write(dir.join("cmake/CMakeLists.txt"), text).unwrap();
    let (from, to) = (dir.join("cmake").display().to_string(), dir.join("build").display().to_string());
    stdout_of("cmake", &["-S", &from, "-B", &to, &format!("-DCMAKE_PREFIX_PATH={prefix}")]);
    stdout_of("cmake", &["--build", &to]);
    let data = dir.join("data-cmake");
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new(dir.join("build/use"));
    command.arg(&data).env("LD_LIBRARY_PATH", format!("{prefix}/lib"));
    assert!(run(command).contains("all as promised"));
}

#[test]
fn the_library_may_be_unloaded() {
    let dir = tempfile::tempdir().unwrap();
    let library = shared(dir.path());
    let program = dir.path().join("unload").display().to_string();
    let include = here().join("include").display().to_string();
    let source = here().join("tests/abi/unload.c").display().to_string();
    stdout_of(
        "cc",
        &["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", &source, "-I", &include, "-ldl", "-o", &program],
    );
    let mut command = Command::new(&program);
    command.arg(&library).arg(dir.path().join("journal"));
    assert!(run(command).contains("unloaded"));
}

fn run(mut command: Command) -> String {
    let done = command.output().unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {:?}\n{printed}", done.status);
    printed
}

#[test]
fn the_c_example_runs_in_every_mode_under_address_sanitizer() {
    let dir = tempfile::tempdir().unwrap();
    let plain = compile(dir.path(), EXAMPLE, "append", &[]);
    let checked =
        compile(dir.path(), EXAMPLE, "append-asan", &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]);
    for mode in 0..=4 {
        for program in [&plain, &checked] {
            let file = dir.path().join(format!("journal-{mode}-{}", program.file_name().unwrap().display()));
            let mut command = Command::new(program);
            command.arg(&file).arg(mode.to_string());
            let printed = run(command);
            assert!(printed.contains("appends 1001, durable 248152 of 248152"), "{printed}");
            let bytes = std::fs::read(&file).unwrap();
            assert_eq!(precursor::records(&bytes).count(), 1001);
        }
    }
}

/// A sanitizer's `munlock` does nothing. With it, the pages behind the writer stayed locked, MADV_DONTNEED failed, and
/// so did the appender.
#[test]
fn a_window_moves_on_in_a_program_under_a_sanitizer() {
    let dir = tempfile::tempdir().unwrap();
    // Not under ThreadSanitizer: it replaces the same functions, but reports races all over an uninstrumented library.
    let program = compile(dir.path(), "tests/abi/window.c", "window-asan", &["-fsanitize=address"]);
    let file = dir.path().join("journal");
    let mut command = Command::new(&program);
    command.arg(&file);
    assert!(run(command).contains("8000000 bytes, close 0"));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 8_000_000);
}

#[test]
fn the_c_example_is_clean_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed, so this test checked nothing (apt-get install valgrind)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), EXAMPLE, "append", &[]);
    for mode in ["1", "2", "4"] {
        let file = dir.path().join(format!("journal-{mode}"));
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg(&program).arg(&file).arg(mode);
        run(command);
        assert_eq!(precursor::records(&std::fs::read(&file).unwrap()).count(), 1001);
    }
}
