//! The words of tests/style-words.txt, which a reader has to decode, are not used in comments, texts, identifiers and
//! docs.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Files with these extensions below the root, without builds and recorded data.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let left_out = name.starts_with('.') || ["target", "node_modules", "fixtures", "corpus"].contains(&&*name);
            if path.is_dir() && !left_out {
                folders.push(path);
            } else if path.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The comments and string literals of a Rust file, then its identifiers with spaces for underscores.
fn texts(source: &str) -> String {
    let (bytes, mut found, mut identifiers, mut at) = (source.as_bytes(), String::new(), String::new(), 0);
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => source[at..].find('\n').map_or(bytes.len(), |length| at + length),
            b'"' => {
                let mut end = at + 1;
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                end + 1
            }
            // A quote as a character, so that it begins no string.
            b'\'' if bytes[at..].starts_with(b"'\"'") => at + 3,
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let length =
                    bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                // The word `_` keeps neighbours apart.
                identifiers.push_str(&source[at..at + length].replace('_', " "));
                identifiers.push_str(" _ ");
                at += length;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        if bytes[at] != b'\'' {
            found.push_str(source.get(at..end.min(bytes.len())).unwrap_or_default());
            found.push('\n');
        }
        at = end;
    }
    found + &identifiers
}

/// The lower-case words of a text, separated by single spaces, with a space at both ends.
fn normalised(text: &str) -> String {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let mut all = String::from(" ");
    for word in words {
        all.push_str(&word.to_lowercase());
        // Twice, so that one word can end a match and begin the next.
        all.push_str("  ");
    }
    all
}

/// The words of the list that the text contains, once for each use.
fn uses<'a>(text: &str, words: &'a [String]) -> Vec<&'a str> {
    let text = normalised(text);
    words.iter().flat_map(|word| text.matches(&listed(word)).map(move |_| word.as_str()).collect::<Vec<_>>()).collect()
}

/// A line of the list in the form of `normalised`.
fn listed(word: &str) -> String {
    format!(" {} ", word.split(' ').collect::<Vec<_>>().join("  "))
}

#[test]
fn no_word_of_the_list_is_used() {
    let list = fs::read_to_string(root().join("tests/style-words.txt")).expect("the list");
    let words: Vec<String> = list.lines().map(str::to_owned).collect();
    assert!(words.len() > 10);
    let mut found = Vec::new();
    for path in files(&["rs", "md"]) {
        let source = fs::read_to_string(&path).expect("readable");
        let text = if path.extension().is_some_and(|extension| extension == "rs") { texts(&source) } else { source };
        let shown = path.strip_prefix(root()).unwrap_or(&path).display();
        found.extend(uses(&text, &words).iter().map(|word| format!("'{word}' in {shown}")));
    }
    assert!(found.is_empty(), "{} words of tests/style-words.txt:\n{}", found.len(), found.join("\n"));
}

#[test]
fn words_are_found_in_comments_strings_and_identifiers() {
    let words = ["plum".to_owned(), "old pear".to_owned()];
    let source =
        "// plum, old\n// pear\nfn a_plum_falls() { let a = \"An old pear.\"; let b = '\"'; old.pear; plums; }";
    assert_eq!(uses(&texts(source), &words), ["plum", "plum", "old pear", "old pear"]);
}
