//! Looks up rows by a key and by the time that they overlap.

/// Rows sorted by key and start.
#[derive(Debug)]
pub struct Spans<'a, K, R> {
    rows: Vec<Span<'a, K, R>>,
}

#[derive(Debug)]
struct Span<'a, K, R> {
    key: K,
    start_ns: u64,
    end_ns: u64,
    /// The latest end of this row and of all earlier rows with the same key.
    reach_ns: u64,
    row: &'a R,
}

impl<'a, K: Copy + Ord, R> Spans<'a, K, R> {
    /// Indexes `rows`; `span` returns the key, the start and the length of a row.
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = &'a R>, span: impl Fn(&R) -> (K, u64, u64)) -> Spans<'a, K, R> {
        let spans = rows.into_iter().map(|row| {
            let (key, start_ns, ns) = span(row);
            let end_ns = start_ns.saturating_add(ns);
            Span { key, start_ns, end_ns, reach_ns: end_ns, row }
        });
        let mut rows: Vec<_> = spans.collect();
        // The sort is stable: rows with equal starts keep their order.
        rows.sort_by_key(|span| (span.key, span.start_ns));
        let mut before: Option<(K, u64)> = None;
        for span in &mut rows {
            if let Some((_, reach_ns)) = before.filter(|(key, _)| *key == span.key) {
                span.reach_ns = span.reach_ns.max(reach_ns);
            }
            before = Some((span.key, span.reach_ns));
        }
        Spans { rows }
    }

    fn of_key(&self, key: K) -> &[Span<'a, K, R>] {
        let first = self.rows.partition_point(|span| span.key < key);
        let rows = self.rows.get(first..).unwrap_or_default();
        rows.get(..rows.partition_point(|span| span.key == key)).unwrap_or_default()
    }

    /// All rows of a key.
    pub fn all(&self, key: K) -> impl Iterator<Item = &'a R> {
        self.of_key(key).iter().map(|span| span.row)
    }

    /// Rows of a key that may overlap this interval. The first one does; later ones may have ended before it, which
    /// `Near::reaches` tells. Callers count all of them as examined.
    pub fn near(&self, key: K, from_ns: u64, to_ns: u64) -> impl Iterator<Item = Near<'a, R>> {
        let rows = self.of_key(key);
        let first = rows.partition_point(|span| span.reach_ns <= from_ns);
        let rows = rows.get(first..).unwrap_or_default().iter().take_while(move |span| span.start_ns < to_ns);
        rows.map(move |span| Near { row: span.row, reaches: span.end_ns > from_ns })
    }
}

/// A candidate row, and whether it overlaps the interval.
#[derive(Debug)]
pub struct Near<'a, R> {
    pub row: &'a R,
    pub reaches: bool,
}

#[cfg(test)]
mod tests {
    use super::Spans;

    #[test]
    fn rows_are_found_by_key_and_time() {
        let rows = [(1, 0, 100), (1, 10, 5), (1, 50, 5), (1, 200, 10), (2, 0, 1000), (0, 0, 1000)];
        let spans = Spans::of(&rows, |row| *row);
        let near = |key, from_ns, to_ns| {
            let near = spans.near(key, from_ns, to_ns).filter(|near| near.reaches);
            near.map(|near| (near.row.1, near.row.2)).collect::<Vec<_>>()
        };
        assert_eq!(near(1, 52, 60), [(0, 100), (50, 5)]);
        assert_eq!(near(1, 100, 200), [], "an end and a start do not overlap");
        assert_eq!(near(1, 205, u64::MAX), [(200, 10)]);
        assert_eq!(near(3, 0, u64::MAX), []);
        assert_eq!(spans.all(1).count(), 4);
        assert_eq!(spans.near(1, 150, 300).count(), 1, "earlier rows are not looked at");
    }
}
