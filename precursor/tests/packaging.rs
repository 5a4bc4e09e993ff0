//! The deb and rpm packages of the library: a program is built and run with the files of the debs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_abi::{here, library, stdout_of};

fn packages(out: &Path, which: &str) -> Vec<PathBuf> {
    let script = here().join("../tools/package_library.sh");
    let mut command = Command::new(script);
    command.arg(library()).arg(out).arg("9.8.7").env("FLATWATER_PACKAGES", which);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).lines().map(PathBuf::from).collect()
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

fn contains_all(listed: &str, wanted: &[&str]) {
    for name in wanted {
        assert!(listed.lines().any(|line| line.split(" -> ").next().unwrap().ends_with(name)), "{name}: {listed}");
    }
}

#[test]
fn a_program_is_built_and_runs_with_the_files_of_the_debs() {
    if !has("dpkg-deb") {
        return needs::skip(needs::Need::Packages, "the debs of the library", "dpkg-deb is not installed");
    }
    let out = tempfile::tempdir().unwrap();
    let debs = packages(out.path(), "libdeb");
    let name = |deb: &Path| deb.file_name().unwrap().to_str().unwrap().split('_').next().unwrap().to_owned();
    assert_eq!(debs.iter().map(|deb| name(deb)).collect::<Vec<_>>(), ["libprecursor1", "libprecursor-dev"]);
    let root = out.path().join("root").display().to_string();
    let listed: Vec<String> = debs.iter().map(|deb| stdout_of("dpkg-deb", &["-c", deb.to_str().unwrap()])).collect();
    contains_all(&listed[0], &["/libprecursor.so.1", "/copyright"]);
    assert!(!listed[0].contains("/include/"), "{}", listed[0]);
    contains_all(
        &listed[1],
        &["/precursor.h", "/precursor.hpp", "/libprecursor.so", "/libprecursor.a", "/precursor.pc"],
    );
    contains_all(&listed[1], &["/precursor-config.cmake", "/precursor-config-version.cmake"]);
    assert!(!listed[1].lines().any(|line| line.ends_with("/libprecursor.so.1")), "{}", listed[1]);
    let control = stdout_of("dpkg-deb", &["-f", debs[1].to_str().unwrap()]);
    assert!(control.contains("Depends: libprecursor1 (= 9.8.7)"), "{control}");
    for deb in &debs {
        stdout_of("dpkg-deb", &["-x", deb.to_str().unwrap(), &root]);
    }
    // As an installed package: pkg-config with the root as its system.
    let found = stdout_of("cc", &["-print-multiarch"]);
    let lib = format!("{root}/usr/lib/{}", found.trim());
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "precursor"]).env("PKG_CONFIG_LIBDIR", format!("{lib}/pkgconfig"));
    let Ok(flags) = config.env("PKG_CONFIG_SYSROOT_DIR", &root).output() else {
        return needs::skip(needs::Need::Packages, "the debs of the library", "pkg-config is not installed");
    };
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    assert!(flags.contains("-lprecursor"), "{flags}");
    let program = out.path().join("use").display().to_string();
    let source = here().join("tests/abi/use.c").display().to_string();
    let (include, link) = (format!("-I{root}/usr/include"), format!("-L{lib}"));
    let mut words = vec!["-std=gnu11", &source, &include, &link];
    words.extend(flags.split_whitespace());
    words.extend(["-lpthread", "-o", &program]);
    stdout_of("cc", &words);
    let data = out.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let done = Command::new(&program).arg(&data).env("LD_LIBRARY_PATH", &lib).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stdout).contains("all as promised"), "{done:?}");
}

#[test]
fn the_rpms_hold_the_library_and_its_development_files() {
    if !has("rpmbuild") || !has("rpm") {
        return needs::skip(needs::Need::Packages, "the rpms of the library", "apt-get install rpm");
    }
    let out = tempfile::tempdir().unwrap();
    let rpms = packages(out.path(), "librpm");
    assert_eq!(rpms.len(), 2, "{rpms:?}");
    let of = |name: &str| {
        let rpm = rpms.iter().find(|rpm| rpm.file_name().unwrap().to_str().unwrap().starts_with(name)).unwrap();
        let database = out.path().join("db").display().to_string();
        stdout_of("rpm", &["--dbpath", &database, "-qlp", rpm.to_str().unwrap()])
    };
    contains_all(&of("libprecursor1-"), &["/usr/lib64/libprecursor.so.1"]);
    let dev = of("libprecursor-dev-");
    contains_all(&dev, &["/usr/include/precursor.h", "/usr/include/precursor.hpp", "/usr/lib64/libprecursor.a"]);
    contains_all(&dev, &["/pkgconfig/precursor.pc", "/cmake/precursor/precursor-config.cmake"]);
}
