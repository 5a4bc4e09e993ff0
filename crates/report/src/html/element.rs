//! HTML under construction. Strings are escaped as text or attribute value; tags and attribute names are constants.

/// A page, or part of one.
#[derive(Debug, Default)]
pub struct Html {
    text: String,
}

pub type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    pub fn finish(self) -> String {
        self.text
    }

    /// Adds an element whose content `inside` writes.
    pub fn tag(&mut self, name: &'static str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Html)) {
        self.open(name, attributes);
        inside(self);
        self.close(name);
    }

    /// Adds an element with only text in it.
    pub fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.tag(name, attributes, |html| html.text(text));
    }

    pub fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(name);
        for (attribute, value) in attributes {
            self.text.push(' ');
            self.text.push_str(attribute);
            self.text.push_str("=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        self.text.push('>');
    }

    pub fn close(&mut self, name: &'static str) {
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push_str(">\n");
    }

    pub fn text(&mut self, text: &str) {
        escape(&mut self.text, text);
    }

    /// Adds script, style or JSON without escaping, for places that do not parse markup.
    pub fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML allows no NUL and other control characters, and a terminal escape is of no use to a reader.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Escapes JSON for `<script type="application/json">`: without `<` it cannot end the script or begin a comment.
pub fn json_in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::{Html, json_in_script};

    #[test]
    fn no_text_becomes_markup() {
        let mut html = Html::default();
        html.leaf("td", &[("title", "\" onload='x'")], "</td><script>&\u{1b}");
        assert_eq!(
            html.finish(),
            "<td title=\"&quot; onload=&#39;x&#39;\">&lt;/td&gt;&lt;script&gt;&amp;\u{fffd}</td>\n"
        );
    }

    #[test]
    fn json_cannot_end_its_script() {
        let json = json_in_script("{\"a\":\"</script><!--\"}");
        assert!(!json.contains('<'));
        assert_eq!(json, "{\"a\":\"\\u003c/script>\\u003c!--\"}");
    }
}
