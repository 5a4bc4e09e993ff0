//! Removes what editors, mail programs, browsers and terminals add to a line.

/// HTML entities and their characters.
const ENTITIES: &[(&str, char)] = &[
    ("&lt;", '<'),
    ("&gt;", '>'),
    ("&amp;", '&'),
    ("&quot;", '"'),
    ("&#39;", '\''),
    ("&#x27;", '\''),
    ("&apos;", '\''),
    ("&nbsp;", ' '),
    ("&#160;", ' '),
    ("&#43;", '+'),
    ("&#91;", '['),
    ("&#93;", ']'),
    ("&#124;", '|'),
];

/// Maximum columns between two marks of a quote.
const QUOTE_GAP: usize = 2;

/// Length in bytes of the mail quote (`> `, `>> `, `> > `, `| `) at the start of the line.
#[must_use]
pub fn quote_bytes(line: &str) -> usize {
    let trimmed = line.trim_end();
    // Table rows drawn with bars and the closing bar of a histogram's row are not quotes.
    let barred = trimmed.starts_with("| ") && trimmed.matches('|').count() == 1;
    let mut end = 0;
    // Some mailers name the quoted person: `Jane> [ 1.2] INFO: ...`. Prompts of programs do not have this form.
    if let Some((name, _)) = line.split_once('>') {
        let written = name.len() >= 3
            && name.len() <= 20
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().skip(1).all(|c| c.is_ascii_lowercase());
        if written && line.as_bytes().get(name.len() + 1).is_none_or(|next| *next == b' ') {
            return (name.len() + 2).min(line.len());
        }
    }
    for (at, c) in line.char_indices() {
        match c {
            '>' => end = at + 1,
            '|' if barred => end = at + 1,
            // Manual quotes may have extra columns: `>  > text`.
            ' ' if end > 0
                && at < end + QUOTE_GAP
                && line.get(at..).is_some_and(|rest| rest.trim_start().starts_with('>')) => {}
            ' ' if at == end && at > 0 => {}
            _ => break,
        }
    }
    if end > 0 && line.as_bytes().get(end) == Some(&b' ') { end + 1 } else { end }
}

/// Appends the line without escape sequences and control characters, with blanks for tabs, and with entities and
/// typographic quotes replaced by ASCII. Fences of Markdown and Jira become blank lines. JSON keeps its entities, which
/// belong to strings.
pub fn clean(line: &str, json: bool, out: &mut String) {
    let line = if json { line } else { untagged(line) };
    // JSON has no columns. Elsewhere a tab becomes one blank, so that columns are counted in characters.
    let plain = line.bytes().all(|byte| (b' '..0x7f).contains(&byte) || json && byte == b'\t');
    if plain && (json || !line.contains(['&', '`', '{', '~', '|'])) {
        out.push_str(line);
        return;
    }
    if !json && is_fence(line.trim()) {
        return;
    }
    if !json && is_table_row(line.trim()) {
        let cells = line.replace("**", "").replace('|', " ");
        // Skip the rule under a table's header.
        if !cells.bytes().all(|c| matches!(c, b'-' | b':' | b' ')) {
            out.push_str(&cells);
        }
        return;
    }
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if c == '&'
            && !json
            && let Some((entity, character)) = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity))
        {
            out.push(*character);
            rest = rest.get(entity.len()..).unwrap_or_default();
            continue;
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '\u{1b}' => rest = after_escape(rest),
            '\t' => out.push(if json { '\t' } else { ' ' }),
            // sar and date print narrow and no-break spaces in some locales; web pages pad with wide spaces.
            '\u{a0}' | '\u{202f}' | '\u{feff}' | '\u{2002}'..='\u{200a}' => out.push(' '),
            '\u{200b}'..='\u{200f}' => {}
            '\u{2018}' | '\u{2019}' | '\u{201a}' => out.push('\''),
            '\u{201c}' | '\u{201d}' | '\u{201e}' => out.push('"'),
            '\u{2212}' => out.push('-'),
            '\u{2013}' => out.push_str("--"),
            '\u{2026}' => out.push_str("..."),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
}

/// HTML and forum tags that surround a paste or end its lines.
const TAGS: &[&str] = &[
    "code",
    "pre",
    "samp",
    "tt",
    "p",
    "br",
    "div",
    "span",
    "details",
    "summary",
    "blockquote",
    "quote",
    "strong",
    "font",
    "spoiler",
    "log",
];

/// Removes tags at both ends of the line: `[code]`, `<pre class="x">`, `</code></pre>`, `<br/>`.
fn untagged(line: &str) -> &str {
    let mut text = line;
    while let Some(rest) = text.trim_start().strip_prefix(['<', '[']) {
        let closing = if text.trim_start().starts_with('<') { '>' } else { ']' };
        let Some((_, rest)) = rest.split_once(closing).filter(|(tag, _)| is_tag(tag)) else { break };
        text = rest;
    }
    while let Some(inner) = text.trim_end().strip_suffix(['>', ']']) {
        let opening = if text.trim_end().ends_with('>') { '<' } else { '[' };
        let Some((rest, _)) = inner.rsplit_once(opening).filter(|(_, tag)| is_tag(tag)) else { break };
        text = rest;
    }
    text
}

fn is_tag(inner: &str) -> bool {
    let name = inner.trim_matches('/').split([' ', '=', '/']).next().unwrap_or_default();
    let written = name.bytes().all(|c| c.is_ascii_lowercase()) || name.bytes().all(|c| c.is_ascii_uppercase());
    written && TAGS.iter().any(|tag| name.eq_ignore_ascii_case(tag)) && !inner.contains(['[', '<'])
}

/// The text after an ECMA-48 escape sequence: skips parameters, intermediates and the final byte.
fn after_escape(rest: &str) -> &str {
    let Some(inner) = rest.strip_prefix('[') else { return rest };
    let end = inner.find(|c: char| !('\u{20}'..'\u{40}').contains(&c)).unwrap_or(inner.len());
    let tail = inner.get(end..).unwrap_or_default();
    match tail.chars().next() {
        Some(last) if ('\u{40}'..'\u{7f}').contains(&last) => tail.get(1..).unwrap_or_default(),
        _ => tail,
    }
}

/// Whether the line is `| a | b |`, a table row of Markdown or Jira. A histogram's bar has no second cell.
fn is_table_row(text: &str) -> bool {
    text.len() > 2
        && text.starts_with('|')
        && text.ends_with('|')
        && text.matches('|').count() >= 3
        && !text.contains('@')
}

/// Whether the line is ```` ``` ````, ```` ```text ````, `~~~`, `{noformat}` or `{code:title=x}`.
pub fn is_fence(text: &str) -> bool {
    let word = |rest: &str| rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let fenced = text.strip_prefix("```").or(text.strip_prefix("~~~")).is_some_and(word);
    fenced || (text.ends_with('}') && ["{noformat", "{code", "{quote"].iter().any(|start| text.starts_with(start)))
}

/// Length of a line that ends in a soft break (`=`) in quoted-printable mail: 76 at most. No tool prints such lines.
const SOFT_BREAK: std::ops::RangeInclusive<usize> = 56..=76;

/// Whether the text is the raw quoted-printable body of a mail: some line ends in a soft break.
#[must_use]
pub fn is_quoted_printable(raw: &str) -> bool {
    // Other line ends with `=`: arrows, rules, and the sums of the kernel's free lists.
    const OTHERS: &[&str] = &["<=", ">=", "==", "!=", "-=", "kB ="];
    let soft = |line: &str| {
        SOFT_BREAK.contains(&line.len()) && line.ends_with('=') && !OTHERS.iter().any(|end| line.ends_with(end))
    };
    raw.contains('=') && raw.split('\n').take(20_000).any(|line| soft(line.trim_end_matches('\r')))
}

/// Decodes one quoted-printable line: removes its soft break and decodes `=3D`. Also returns whether it had a soft
/// break.
#[must_use]
pub fn quoted_printable(line: &str) -> (String, bool) {
    let line = line.trim_end_matches('\r');
    let (line, soft) = line.strip_suffix('=').map_or((line, false), |line| (line, true));
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('=') {
        out.push_str(before);
        let coded = after.get(..2).filter(|hex| hex.bytes().all(|c| c.is_ascii_digit() || (b'A'..=b'F').contains(&c)));
        let byte = coded.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            // Bytes beyond ASCII are a mailer's dashes and quotes, or prose.
            Some(byte) if byte.is_ascii() => out.push(char::from(byte)),
            Some(0xa0) => out.push(' '),
            Some(_) => {}
            None => out.push('='),
        }
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out.push_str(rest);
    (out, soft)
}

#[cfg(test)]
mod tests {
    use super::{clean, is_quoted_printable, quote_bytes, quoted_printable};

    #[test]
    fn quoted_printable_bodies_are_found_and_decoded() {
        let broken = "> 1200264 1197433  99%    0.30K  46164       26    369312K =";
        assert!(!is_quoted_printable("vm.swappiness =\n10"), "too short for a break");
        assert!(!is_quoted_printable("DMA: 0*16kB 0*32kB 1*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB =\n68kB"));
        assert!(!is_quoted_printable("336 flush_work+0x5c/0x80 <= xfs_inodegc_flush.part.0+0x3b/0x90 <=\nf+0x1/0x2"));
        assert!(is_quoted_printable(&format!("x\n{broken}\nkmemleak_object\n")));
        assert_eq!(quoted_printable("DISK=3Dnvme=20"), ("DISK=nvme ".to_owned(), false));
        assert_eq!(
            quoted_printable("if=3D/dev/$DISK of=3D/dev/null bs=3D104857="),
            ("if=/dev/$DISK of=/dev/null bs=104857".to_owned(), true)
        );
        assert_eq!(quoted_printable("a=b =E2=80=93 c=A0d").0, "a=b  c d");
    }

    #[test]
    fn additions_of_pages_and_editors_are_removed() {
        for (line, expected) in [
            ("&lt;6&gt;[  1.0] a &amp;&amp; b", "<6>[  1.0] a && b"),
            ("\u{201c}oracle\u{201d}", "\"oracle\""),
            ("```text", ""),
            ("{noformat}", ""),
            ("| %user | **73.91** |", "  %user   73.91  "),
            ("| --- | --- |", ""),
            ("{code:java|title=x}", ""),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("[code]r b swpd", "r b swpd"),
            ("<pre><code class=\"x\">r b", "r b"),
            ("1 0 0<br />", "1 0 0"),
            ("1 0 0</code></pre>", "1 0 0"),
            ("[  1.0]  <TASK>", "[  1.0]  <TASK>"),
            ("[pod/a/b] x [b]", "[pod/a/b] x [b]"),
            ("a\u{2026}", "a..."),
            ("\u{1b}[1;31mred\u{1b}[0m\u{a0}x", "red x"),
        ] {
            let mut out = String::new();
            clean(line, false, &mut out);
            assert_eq!(out, expected, "{line}");
        }
        let mut out = String::new();
        clean("{\"a\": \"&lt;\"}", true, &mut out);
        assert_eq!(out, "{\"a\": \"&lt;\"}", "JSON keeps its strings");
    }

    #[test]
    fn only_mail_quotes_are_quotes() {
        for (line, bytes) in [
            ("> a", 2),
            (">> a", 3),
            ("> > a", 4),
            (">  > a", 5),
            (">     > 4 a", 2),
            ("| a b", 2),
            ("| a | b |", 0),
            ("a > b", 0),
            ("", 0),
            ("Guoqing> [ 1.2] INFO: x", 9),
            ("Jane>", 5),
            ("crash> bt", 0),
            ("SQL> select", 0),
            ("Device>x", 0),
        ] {
            assert_eq!(quote_bytes(line), bytes, "{line}");
        }
    }
}
