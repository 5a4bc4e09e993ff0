//! A page of paragraphs and tables, for results that are not a recording.

use super::element::Html;
use super::page;

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
    let mut html = Html::default();
    html.raw("<!doctype html>\n");
    html.tag("html", &[("lang", "en")], |html| {
        page::head_titled(html, &content.title);
        html.tag("body", &[], |html| {
            html.tag("header", &[("class", "top")], |html| {
                html.leaf("p", &[("class", "brand")], &format!("flatwater {}", content.brand));
                html.leaf("h1", &[], &content.title);
                html.leaf("p", &[("class", "subject")], &content.subject);
            });
            html.tag("main", &[("id", "main")], |html| {
                html.tag("div", &[("class", "notes")], |html| {
                    content.notes.iter().for_each(|note| html.leaf("p", &[], note));
                });
                content.tables.iter().for_each(|content| table(html, content));
            });
        });
    });
    html.finish()
}

fn table(html: &mut Html, content: &PlainTable) {
    html.tag("section", &[], |html| {
        html.leaf("h2", &[], &content.title);
        html.tag("table", &[], |html| {
            html.tag("thead", &[], |html| row(html, "th", &content.head));
            html.tag("tbody", &[], |html| content.rows.iter().for_each(|cells| row(html, "td", cells)));
        });
    });
}

fn row(html: &mut Html, cell: &'static str, cells: &[String]) {
    html.tag("tr", &[], |html| cells.iter().for_each(|text| html.leaf(cell, &[], text)));
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
