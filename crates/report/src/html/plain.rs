//! A page of paragraphs and tables, for results that are not a recording.

use super::element::Html;
use super::page::Frame;
use super::sections::plain_table;

/// A table with a title. Cells are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainTable {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// The content of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainPage {
    /// The verb, such as `probe`.
    pub brand: &'static str,
    pub title: String,
    /// A line below the title.
    pub subject: String,
    pub notes: Vec<String>,
    pub tables: Vec<PlainTable>,
}

/// One self-contained page without scripts.
#[must_use]
pub fn plain_page(content: &PlainPage) -> String {
    let frame =
        Frame { title: &content.title, brand: content.brand, heading: &content.title, subject: Some(&content.subject) };
    frame.page(|html| {
        html.tag("div", &[("class", "notes")], |html| {
            content.notes.iter().for_each(|note| html.leaf("p", &[], note));
        });
        content.tables.iter().for_each(|content| table(html, content));
    })
}

fn table(html: &mut Html, content: &PlainTable) {
    let columns: Vec<(&str, bool)> = content.head.iter().map(|name| (name.as_str(), false)).collect();
    html.tag("section", &[], |html| {
        html.leaf("h2", &[], &content.title);
        plain_table(html, &content.title, &columns, &content.rows);
    });
}

#[cfg(test)]
mod tests {
    use super::{PlainPage, PlainTable, plain_page};

    #[test]
    fn no_text_of_a_page_becomes_markup() {
        let cell = || vec!["<script>".to_owned()];
        let table = PlainTable { title: "<i>".to_owned(), head: cell(), rows: vec![cell()] };
        let page = plain_page(&PlainPage {
            brand: "probe",
            title: "<b>".to_owned(),
            subject: "/data/<x>".to_owned(),
            notes: cell(),
            tables: vec![table],
        });
        assert_eq!(page.matches("&lt;script&gt;").count(), 3);
        assert!(!page.contains("<b>") && !page.contains("<i>") && !page.contains("<x>") && !page.contains("<script"));
    }
}
