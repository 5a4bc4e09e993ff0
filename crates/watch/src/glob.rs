//! Patterns of names and cgroup paths: `*` stands for any text, also for none; `?` for one character.

/// Whether the whole text fits the pattern. Linear in text times pattern at worst, so that no pattern can hang us.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read) = (0, 0);
    // Where the last star was, and how much of the text it had swallowed when it was last tried.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(one) if *one == '?' || *one == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((place, swallowed)) = star else { return false };
                star = Some((place, swallowed + 1));
                at = place + 1;
                read = swallowed + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, text) in [
            ("*", ""),
            ("postgres", "postgres"),
            ("*postgres*", "/system.slice/postgresql@16-main.service"),
            ("/kubepods*/pod?-*", "/kubepods.slice/x/pod7-a"),
            ("a*b*c", "a-b-b-c"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("postgres", "postgresql"), ("a?", "a"), ("*b", "abc")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_made_to_backtrack_ends() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!fits(&pattern, &"a".repeat(4096)));
    }
}
