//! The packaging: the sandbox of the systemd unit, the Kubernetes manifests, and (in `make test-long`) a deb, an rpm
//! and an image that are built, installed, started, upgraded, removed and purged in separate root directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use needs::{Need, skip};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const EXPOSURE_MAX: f64 = 3.0;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the output of a command, standard error included. Panics with it if the command fails.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let both = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{both}", output.status);
    both
}

fn has(tools: &[&str]) -> bool {
    tools.iter().all(|tool| Command::new(tool).arg("--version").output().is_ok())
}

#[test]
fn the_unit_is_valid_and_its_sandbox_is_tight() {
    if !has(&["systemd-analyze"]) {
        return skip(Need::Systemd, "the unit", "systemd-analyze is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    let unit = place.path().join("flatwater-watch.service");
    // `verify` requires that the command exists.
    let shipped = text("packaging/systemd/flatwater-watch.service");
    let ours = shipped.replace("/usr/bin/flatwater", env!("CARGO_BIN_EXE_flatwater"));
    assert_ne!(shipped, ours);
    fs::write(&unit, ours).expect("write");
    let verified = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    let of_ours: Vec<&str> = verified.lines().filter(|line| line.contains("flatwater")).collect();
    assert!(of_ours.is_empty(), "{verified}");
    let judged = run(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(&unit));
    let exposure = judged.lines().find_map(|line| line.split("Overall exposure level for").nth(1)?.split(": ").nth(1));
    let exposure: f64 = exposure.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a level");
    assert!(exposure <= EXPOSURE_MAX, "{exposure}: {judged}");
}

/// The manifest's capabilities are those of the unit, each with a reason, and nothing is privileged.
#[test]
fn a_pod_has_the_capabilities_of_the_unit() {
    let manifest = text("packaging/kubernetes/flatwater.yaml");
    let unit = text("packaging/systemd/flatwater-watch.service");
    let bounds = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("a bounding set");
    let of_unit: BTreeSet<String> = bounds.split(' ').map(|name| name.replace("CAP_", "")).collect();
    let add = manifest.split("              add:\n").nth(1).expect("capabilities");
    let lines: Vec<&str> = add.lines().take_while(|line| line.trim_start().starts_with("- ")).collect();
    let of_pod: BTreeSet<String> =
        lines.iter().map(|line| line.trim_start()[2..].split(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(of_unit, of_pod);
    assert!(lines.iter().all(|line| line.contains(" # ")), "each with its reason: {lines:?}");
    assert!(of_unit.iter().all(|name| unit.contains(&format!("CAP_{name}"))));
    for needed in ["privileged: false", "drop: [\"ALL\"]", "allowPrivilegeEscalation: false", "hostPID: true"] {
        assert!(manifest.contains(needed), "{needed}");
    }
    assert!(!manifest.contains("privileged: true") && manifest.contains("readOnlyRootFilesystem: true"));
    let all: Vec<&str> = manifest.lines().collect();
    for (at, line) in all.iter().enumerate().filter(|(_, line)| line.contains("hostPath:") || line.contains("hostPID:"))
    {
        let before = all[..at].iter().rev().take(3);
        assert!(before.into_iter().any(|above| above.trim_start().starts_with('#')), "without a reason: {line}");
    }
    // The daemon accepts the configuration in the manifest.
    let config =
        manifest.split("  watch.toml: |\n").nth(1).expect("a configuration").split("---").next().expect("its end");
    let config: String = config.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("watch.toml");
    fs::write(&file, config).expect("write");
    run(Command::new(env!("CARGO_BIN_EXE_flatwater")).args(["watch", "--check", "-c"]).arg(&file));
}

/// The manual page of each verb, which `make install` and the packages install.
#[test]
fn each_verb_has_a_manual_page_that_is_installed() {
    let place = tempfile::tempdir().expect("a directory");
    run(Command::new(env!("CARGO_BIN_EXE_flatwater")).args(["completions", "man", "-o"]).arg(place.path()));
    let pages: BTreeSet<String> = fs::read_dir(place.path())
        .expect("readable")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for verb in flatwater::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        assert!(pages.contains(&format!("flatwater-{}.1", verb.get_name())), "{}: {pages:?}", verb.get_name());
    }
    assert!(pages.contains("flatwater.1"));
    for script in ["tools/install.sh", "tools/package.sh"] {
        assert!(text(script).contains("completions man -o"), "{script}");
    }
    assert!(text("packaging/rpm/flatwater.spec.in").contains("/usr/share/man/man1/flatwater-*.1.gz"));
}

/// A package that starts a daemon says so, and one that does not says that too.
#[test]
fn the_descriptions_say_whether_the_daemon_is_started() {
    let (control, postinst) = (text("packaging/deb/control.in"), text("packaging/deb/postinst"));
    assert!(postinst.contains("deb-systemd-invoke") && control.contains("Installing starts the daemon"));
    assert!(control.contains("systemctl mask flatwater-watch") && !control.contains("localhost"), "{control}");
    let spec = text("packaging/rpm/flatwater.spec.in");
    assert!(spec.contains("Installing does not start the daemon") && !spec.contains("systemctl start"), "{spec}");
}

#[test]
fn each_manifest_names_licence_repository_keywords_and_categories() {
    let mut found = 0;
    for place in fs::read_dir(Path::new(ROOT).join("crates")).expect("readable").flatten() {
        let manifest = place.path().join("Cargo.toml");
        let Ok(manifest) = fs::read_to_string(&manifest) else { continue };
        found += 1;
        for key in ["license", "repository", "keywords", "categories", "description"] {
            let has = manifest
                .lines()
                .any(|line| line.starts_with(&format!("{key} =")) || line.starts_with(&format!("{key}.")));
            assert!(has, "{}: {key}", place.path().display());
        }
    }
    assert!(found > 10, "{found}");
}

/// Builds packages of the binary under test; `which`: deb, rpm or oci.
fn packages(out: &Path, version: &str, which: &str) -> PathBuf {
    let mut command = Command::new("tools/package.sh");
    command.arg(env!("CARGO_BIN_EXE_flatwater")).arg(out).arg(version).current_dir(ROOT);
    let output = run(command.env("FLATWATER_PACKAGES", which));
    PathBuf::from(output.lines().rfind(|line| line.starts_with('/')).expect("a path"))
}

/// A root directory with the distribution's essential packages; unmounted and removed on drop.
struct Root {
    _place: tempfile::TempDir,
    path: PathBuf,
}

impl Root {
    fn debian() -> Root {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let path = place.path().join("root");
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("bookworm");
        run(Command::new("mmdebstrap")
            .args(["--variant=apt", "--include=libgcc-s1,init-system-helpers", suite])
            .arg(&path));
        for what in ["proc", "sys", "dev"] {
            run(Command::new("mount").args(["--rbind", "--make-rslave", &format!("/{what}")]).arg(path.join(what)));
        }
        Root { _place: place, path }
    }

    fn inside(&self, words: &[&str]) -> String {
        run(Command::new("chroot").arg(&self.path).args(words))
    }

    fn has(&self, path: &str) -> bool {
        self.path.join(path).symlink_metadata().is_ok()
    }

    /// Copies a file into the root, and returns its path there.
    fn bring(&self, file: &Path) -> String {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        fs::copy(file, self.path.join("tmp").join(&name)).expect("copy");
        format!("/tmp/{name}")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for what in ["proc", "sys", "dev"] {
            let _ = Command::new("umount").args(["--recursive", "--lazy"]).arg(self.path.join(what)).status();
        }
    }
}

fn can_make_roots(test: &str, tools: &[&str]) -> bool {
    let able = rustix::process::geteuid().is_root() && has(tools);
    if !able {
        skip(Need::Packages, test, format!("needs root and {}: apt-get install mmdebstrap rpm", tools.join(", ")));
    }
    able
}

/// Checks that the installed daemon starts, answers, and ends on SIGTERM.
fn starts(root: &Root) {
    let script = "flatwater watch & pid=$!; for _ in $(seq 300); do flatwater watch status && break; sleep 0.2; done; \
                  kill $pid; wait $pid";
    let output = root.inside(&["sh", "-c", script]);
    assert!(output.contains("\"calls_seen\":"), "{output}");
}

#[test]
#[ignore = "downloads a Debian: make test-long"]
fn a_deb_is_installed_started_upgraded_removed_and_purged() {
    if !can_make_roots("a deb in its own root", &["mmdebstrap", "dpkg-deb", "chroot"]) {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let old = packages(out.path(), "0.2.0", "deb");
    let new = packages(out.path(), "0.2.1", "deb");
    let root = Root::debian();
    root.inside(&["dpkg", "-i", &root.bring(&old)]);
    for file in [
        "usr/bin/flatwater",
        "usr/lib/systemd/system/flatwater-watch.service",
        "etc/flatwater/watch.toml",
        "usr/share/man/man1/flatwater.1.gz",
        "usr/share/bash-completion/completions/flatwater",
        "usr/share/doc/flatwater/copyright",
        "usr/share/doc/flatwater/THIRD-PARTY-LICENCES.txt",
    ] {
        assert!(root.has(file), "{file}");
    }
    assert!(root.inside(&["flatwater", "--version"]).contains("flatwater"));
    assert!(root.has("etc/systemd/system/multi-user.target.wants/flatwater-watch.service"), "enabled");
    starts(&root);
    // An upgrade keeps the administrator's changes and the recordings.
    let config = root.path.join("etc/flatwater/watch.toml");
    fs::write(&config, "threshold = \"7ms\"\n").expect("change");
    fs::create_dir_all(root.path.join("var/lib/flatwater/recordings/kept")).expect("create");
    root.inside(&["dpkg", "-i", "--force-confold", &root.bring(&new)]);
    assert!(root.inside(&["dpkg-query", "-W", "-f", "${Version}", "flatwater"]).contains("0.2.1"));
    assert_eq!(fs::read_to_string(&config).expect("readable"), "threshold = \"7ms\"\n");
    starts(&root);
    root.inside(&["dpkg", "--remove", "flatwater"]);
    assert!(!root.has("usr/bin/flatwater") && root.has("etc/flatwater/watch.toml"));
    assert!(root.has("var/lib/flatwater/recordings/kept"), "recordings outlive the package until it is purged");
    root.inside(&["dpkg", "--purge", "flatwater"]);
    for gone in
        ["etc/flatwater", "var/lib/flatwater", "etc/systemd/system/multi-user.target.wants/flatwater-watch.service"]
    {
        assert!(!root.has(gone), "{gone} is left");
    }
    assert!(
        run(Command::new("chroot").arg(&root.path).args(["dpkg", "-l"]))
            .lines()
            .all(|line| !line.contains("flatwater"))
    );
}

#[test]
#[ignore = "makes packages: make test-long"]
fn an_rpm_is_installed_upgraded_and_erased() {
    if !can_make_roots("an rpm in its own root", &["rpm", "rpmbuild"]) {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let old = packages(out.path(), "0.2.0", "rpm");
    let new = packages(out.path(), "0.2.1", "rpm");
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let root = place.path().join("root");
    fs::create_dir(&root).expect("create");
    let rpm = |words: &[&str]| run(Command::new("rpm").arg("--root").arg(&root).args(words));
    // The root is empty: without a C library and a shell, dependencies and scripts (which only call systemd) must be
    // skipped.
    let bare = ["--nodeps", "--noscripts"];
    rpm(&["-i", bare[0], bare[1], &old.display().to_string()]);
    assert!(root.join("usr/bin/flatwater").exists());
    let listed = rpm(&["-qlc", "flatwater"]);
    assert_eq!(listed.trim(), "/etc/flatwater/watch.toml", "the only file marked as configuration");
    assert!(rpm(&["-qR", "flatwater"]).contains("libc.so.6(GLIBC_"));
    assert!(rpm(&["-V", bare[0], "flatwater"]).trim().is_empty(), "no file differs from the package");
    let config = root.join("etc/flatwater/watch.toml");
    fs::write(&config, "threshold = \"7ms\"\n").expect("change");
    rpm(&["-U", bare[0], bare[1], &new.display().to_string()]);
    assert!(rpm(&["-q", "flatwater"]).contains("0.2.1"));
    assert_eq!(fs::read_to_string(&config).expect("readable"), "threshold = \"7ms\"\n");
    rpm(&["-e", bare[0], bare[1], "flatwater"]);
    assert!(!root.join("usr/bin/flatwater").exists() && !config.exists());
    assert!(root.join("etc/flatwater/watch.toml.rpmsave").exists(), "the administrator's configuration is kept");
}

#[test]
#[ignore = "makes an image: make test-long"]
fn an_image_is_complete_reproducible_and_its_command_runs() {
    if !can_make_roots("an image", &["python3", "chroot"]) {
        return;
    }
    let out = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = packages(out.path(), "0.2.0", "oci");
    let again = packages(&out.path().join("again"), "0.2.0", "oci");
    assert!(fs::read(&image).expect("readable") == fs::read(&again).expect("readable"), "the image is reproducible");
    let layout = out.path().join("layout");
    fs::create_dir(&layout).expect("create");
    run(Command::new("tar").arg("-xf").arg(&image).arg("-C").arg(&layout));
    let json = |path: &Path| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(path).expect("readable")).expect("JSON")
    };
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let blob = |digest: &serde_json::Value| -> PathBuf {
        let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest");
        let path = layout.join("blobs/sha256").join(digest);
        assert!(run(Command::new("sha256sum").arg(&path)).starts_with(digest), "{digest}");
        path
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]["digest"]));
    let config = json(&blob(&manifest["config"]["digest"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/flatwater");
    let root = out.path().join("root");
    fs::create_dir(&root).expect("create");
    let layer = blob(&manifest["layers"][0]["digest"]);
    run(Command::new("tar").arg("-xzf").arg(&layer).arg("-C").arg(&root));
    // Running it shows that the image has all libraries.
    let output = run(Command::new("chroot").arg(&root).args(["/usr/bin/flatwater", "--version"]));
    assert!(output.contains("flatwater"), "{output}");
    assert!(root.join("usr/share/doc/flatwater/THIRD-PARTY-LICENCES.txt").exists());
}
