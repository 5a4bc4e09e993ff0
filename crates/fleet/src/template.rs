//! Fills templates in a single pass: values, which come from hosts, are never searched for marks.

/// Replaces each `open NAME close` in the template by the value of that name. Marks without a value stay unchanged.
pub fn fill(template: &str, (open, close): (&str, &str), value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find(open) {
        let (before, from_mark) = rest.split_at(at);
        out.push_str(before);
        let inside = &from_mark[open.len()..];
        let name = inside.split(close).next().filter(|name| name.len() < inside.len());
        match name.and_then(|name| Some((name, value(name)?))) {
            Some((name, value)) => {
                out.push_str(&value);
                rest = &inside[name.len() + close.len()..];
            }
            // Another mark may begin within these characters.
            None => {
                out.push_str(&from_mark[..1]);
                rest = &from_mark[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// HTML that is safe between tags and, if made by `text`, in an attribute in double quotes.
#[derive(Clone, Debug)]
pub struct Markup(String);

impl Markup {
    /// Escapes text from any source.
    pub fn text(text: &str) -> Markup {
        Markup(crate::ask::escaped(text))
    }

    /// A value for a `<script type="application/json">`; it cannot contain an end tag or the start of a comment.
    pub fn json(value: &serde_json::Value) -> Markup {
        Markup(value.to_string().replace('<', "\\u003c"))
    }

    /// Markup of this program; text from other sources in it must already be escaped.
    pub fn own(markup: impl Into<String>) -> Markup {
        Markup(markup.into())
    }
}

/// Fills the marks `{{name}}` of a page.
pub fn page(template: &str, values: &[(&str, Markup)]) -> String {
    fill(template, ("{{", "}}"), |name| {
        let found = values.iter().find(|(known, _)| *known == name);
        found.map(|(_, Markup(markup))| markup.clone())
    })
}

/// An SQL literal. Questions are text for several engines, so their parameters cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal(String);

impl Literal {
    pub fn int(value: i64) -> Literal {
        Literal(value.to_string())
    }

    /// `None` for text with a backslash, which Spark and ClickHouse read as an escape, unlike others.
    pub fn text(value: &str) -> Option<Literal> {
        (!value.contains('\\')).then(|| Literal::standard(value))
    }

    /// Text for engines that read a backslash literally, as in standard SQL: DataFusion and DuckDB.
    pub fn standard(value: &str) -> Literal {
        Literal(format!("'{}'", value.replace('\'', "''")))
    }

    /// A time in UTC, as `2026-11-22 02:00:00`.
    pub fn timestamp(value: impl std::fmt::Display) -> Literal {
        Literal(format!("TIMESTAMP '{value}'"))
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fills the marks `{name}` of a question.
pub fn sql(template: &str, values: &[(&str, Literal)]) -> String {
    fill(template, ("{", "}"), |name| {
        let found = values.iter().find(|(known, _)| *known == name);
        found.map(|(_, literal)| literal.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::{Literal, Markup, page, sql};

    #[test]
    fn values_are_never_searched_for_marks() {
        let values = [("a", Markup::text("{{b}}")), ("b", Markup::text("\"x\""))];
        assert_eq!(page("{{a}} {{b}} {{{b}} {{c}} {{", &values), "{{b}} &quot;x&quot; {&quot;x&quot; {{c}} {{");
    }

    #[test]
    fn json_in_a_page_contains_no_tag() {
        let Markup(json) = Markup::json(&serde_json::json!(["</script><!--", "\u{2028}"]));
        assert!(!json.contains('<'), "{json}");
        let read: Vec<String> = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read, ["</script><!--", "\u{2028}"]);
    }

    #[test]
    fn an_sql_literal_stays_one_literal() {
        let text = Literal::text("x' OR '1'='1").expect("a literal");
        assert_eq!(text.to_string(), "'x'' OR ''1''=''1'");
        assert_eq!(Literal::text("a\\' OR 1=1 --"), None);
        assert_eq!(Literal::standard("a\\'b").to_string(), "'a\\''b'");
        let values = [("a", Literal::text("{b}").expect("a literal")), ("b", Literal::int(-7))];
        assert_eq!(sql("{a} {b} {'k': {b}}", &values), "'{b}' -7 {'k': -7}");
        assert_eq!(Literal::timestamp("2026-11-22 02:00:00").to_string(), "TIMESTAMP '2026-11-22 02:00:00'");
    }
}
