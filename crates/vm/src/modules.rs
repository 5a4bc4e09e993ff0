//! The modules of a guest: their names, their order and their content.
//!
//! Dependencies come from the modules themselves (section .modinfo), because Debian's packages contain no modules.dep
//! until depmod has run.

use std::fs;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;

/// Maximum depth of dependencies, ten times that of any module used here. Stops at a damaged module that depends on
/// itself.
const CHAIN_MAX: usize = 64;

/// Paths of a module and its dependencies in load order; empty if it is built in.
pub fn chain(modules: &Path, name: &str) -> Result<Vec<PathBuf>, VmError> {
    let missing = || VmError::MissingModule { module: name.to_owned(), modules: modules.display().to_string() };
    let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
    if builtin.lines().any(|line| is_module(line, name)) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let path = find_file(modules, name).ok_or_else(missing)?;
    add(modules, &path, &mut found, 0)?;
    Ok(found)
}

fn add(modules: &Path, path: &Path, found: &mut Vec<PathBuf>, depth: usize) -> Result<(), VmError> {
    if found.iter().any(|known| known == path) || depth > CHAIN_MAX {
        return Ok(());
    }
    let content = content(path)?;
    // A name without a file is built in, like all names in modules.builtin.
    for need in needs(&content) {
        if let Some(path) = find_file(modules, &need) {
            add(modules, &path, found, depth + 1)?;
        }
    }
    found.push(path.to_owned());
    Ok(())
}

/// Names from `depends=` and `softdep=pre:`. `crypto-crc32c` is an alias of crc32c_generic.
fn needs(module: &[u8]) -> Vec<String> {
    let strings = module.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let mut names = Vec::new();
    for text in strings {
        if let Some(list) = text.strip_prefix("depends=") {
            names.extend(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
        } else if let Some(list) = text.strip_prefix("softdep=pre:") {
            let pre = list.split_whitespace().take_while(|name| !name.ends_with(':'));
            names.extend(
                pre.map(|name| name.strip_prefix("crypto-").map_or(name.to_owned(), |a| format!("{a}_generic"))),
            );
        }
    }
    names
}

/// Content of a module, decompressed, because not every kernel can decompress modules.
pub fn content(path: &Path) -> Result<Vec<u8>, VmError> {
    let failed = || VmError::prepare(path.display().to_string());
    let packed = fs::read(path).map_err(failed())?;
    match path.extension().and_then(|end| end.to_str()) {
        Some("zst") => zstd::stream::decode_all(packed.as_slice()).map_err(failed()),
        Some("gz") => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut plain).map_err(failed())?;
            Ok(plain)
        }
        Some("xz") => {
            let done = Command::new("xz").arg("-dc").arg(path).output().map_err(failed())?;
            let bad = || io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned());
            if done.status.success() { Ok(done.stdout) } else { Err(failed()(bad())) }
        }
        _ => Ok(packed),
    }
}

/// Name of the module in the guest, without the suffix of a compression.
pub fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split(".ko").next().map_or(name.clone(), |stem| format!("{stem}.ko"))
}

fn is_module(path: &str, name: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or_default().split(".ko").next().unwrap_or_default();
    stem.replace('-', "_") == name.replace('-', "_")
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let file = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if let Some(found) = find_file(&path, name) {
                return Some(found);
            }
        } else if file.contains(".ko") && is_module(&file, name) {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{VmError, chain, plain_name};

    #[test]
    fn dependencies_precede_a_module_under_any_compression() {
        let scratch = tempfile::tempdir().expect("a directory");
        let folder = scratch.path();
        fs::write(folder.join("modules.builtin"), "kernel/lib/crc16.ko\n").expect("written");
        fs::write(folder.join("ext4.ko"), b"ELF\0softdep=pre: crypto-crc32c\0depends=jbd2,crc16\0").expect("written");
        let jbd2 = zstd::stream::encode_all(b"ELF\0depends=\0".as_slice(), 1).expect("packed");
        fs::write(folder.join("jbd2.ko.zst"), jbd2).expect("written");
        fs::write(folder.join("crc32c_generic.ko"), b"ELF\0depends=ext4\0").expect("written");
        let names: Vec<String> = chain(folder, "ext4").expect("found").iter().map(|path| plain_name(path)).collect();
        assert_eq!(names.last().map(String::as_str), Some("ext4.ko"), "{names:?}");
        assert!(names.contains(&"jbd2.ko".to_owned()) && names.contains(&"crc32c_generic.ko".to_owned()), "{names:?}");
        assert_eq!(chain(folder, "crc16").expect("built in"), Vec::<std::path::PathBuf>::new());
        assert!(matches!(chain(folder, "xfs"), Err(VmError::MissingModule { .. })));
    }
}
