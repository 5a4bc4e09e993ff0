//! SQL for other engines: the statements that create the tables and views over the fleet's files.

use std::collections::BTreeSet;
use std::fmt::Write;

use arrow::datatypes::DataType;
use flatwater_recording::summary::SummaryRow;

use crate::FleetError;
use crate::compact::days;
use crate::template::Literal;
use crate::time::{self, Range};

/// An engine that can read the fleet's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    Duckdb,
    Spark,
    Clickhouse,
}

/// A condition for rows of the range. It excludes recordings within the daemon's hours, which would count calls twice.
fn within(range: Option<Range>) -> String {
    let within = range.map_or(String::new(), |range| {
        let (from, to) = (time::sql(range.from), time::sql(range.to));
        format!(" AND hour_start >= TIMESTAMP '{from}' AND hour_start < TIMESTAMP '{to}'")
    });
    format!("origin <> 'capture'{within}")
}

fn view(name: &str, select: &str) -> String {
    format!("CREATE OR REPLACE VIEW {name} AS {select}")
}

/// The views: `hours` and `stalls`, their sums (here one per row), and `boots`, which shows two machines of one name.
#[must_use]
pub fn views(range: Option<Range>) -> Vec<String> {
    let (within, sums) = (within(range), days::of_hours());
    vec![
        view("hours", &format!("SELECT * FROM summary WHERE cause IS NULL AND {within}")),
        view("stalls", &format!("SELECT * FROM summary WHERE cause IS NOT NULL AND {within}")),
        view("host_sums", &format!("SELECT {sums} FROM summary WHERE cause IS NULL AND {within}")),
        view("stall_sums", &format!("SELECT {sums} FROM summary WHERE cause IS NOT NULL AND {within}")),
        view("boots", "SELECT host, boot, first_hour, last_hour FROM host_sums WHERE boot IS NOT NULL"),
    ]
}

/// The same views if days have sums: `days` are their files, and `rest` the hours of the other days.
#[must_use]
pub fn views_with_days(range: Range, twins: &BTreeSet<String>) -> Vec<String> {
    let (within, of_hours) = (within(Some(range)), days::of_hours());
    let columns: Vec<String> = days::schema().fields().iter().map(|field| field.name().clone()).collect();
    let columns = columns.join(", ");
    let known: Vec<String> = twins.iter().map(|host| Literal::standard(host).to_string()).collect();
    let known = if known.is_empty() { String::new() } else { format!(" AND host NOT IN ({})", known.join(", ")) };
    let rows = |which: &str| format!("SELECT * FROM summary WHERE cause {which} AND {within}{known}");
    let sums = |which: &str, known: &str| {
        format!(
            "SELECT {columns} FROM days WHERE cause {which}{known} UNION ALL \
             SELECT {of_hours} FROM rest WHERE cause {which} AND {within}{known}"
        )
    };
    vec![
        view("hours", &rows("IS NULL")),
        view("stalls", &rows("IS NOT NULL")),
        view("host_sums", &sums("IS NULL", &known)),
        view("stall_sums", &sums("IS NOT NULL", &known)),
        view(
            "boots",
            &format!("SELECT host, boot, first_hour, last_hour FROM ({}) WHERE boot IS NOT NULL", sums("IS NULL", "")),
        ),
    ]
}

/// The statements that make this engine read a fleet at this place.
pub fn statements(engine: Engine, place: &str) -> Result<String, FleetError> {
    let place = place.trim_end_matches('/');
    let literal = |text: String| match engine {
        Engine::Duckdb => Ok(Literal::standard(&text)),
        Engine::Spark | Engine::Clickhouse => Literal::text(&text).ok_or_else(|| {
            FleetError::Usage(format!("{place}: the path must not contain a backslash; move the fleet's directory"))
        }),
    };
    let mut out = match engine {
        Engine::Duckdb => format!(
            "CREATE OR REPLACE VIEW summary AS SELECT * EXCLUDE (v, \"table\", dt, hour) FROM read_parquet({}, hive_partitioning = true, \
             union_by_name = true);\n",
            literal(format!("{place}/{FILES}"))?
        ),
        Engine::Spark => format!(
            "SET spark.sql.parquet.inferTimestampNTZ.enabled = true;\n\
             CREATE OR REPLACE TEMPORARY VIEW summary USING parquet\n\
             OPTIONS (path {}, mergeSchema 'true', pathGlobFilter 'part-*.parquet');\n",
            literal(format!("{place}/v=1/table=summary"))?
        ),
        // Without these settings a missing row of a join is 0 instead of null, and `sum(x) AS x` hides the column from
        // WHERE.
        Engine::Clickhouse => format!(
            "SET join_use_nulls = 1, prefer_column_name_to_alias = 1;\nCREATE TABLE summary (\n{}) ENGINE = {};\n",
            columns(),
            match place.strip_prefix("s3://") {
                Some(bucket) =>
                    format!("S3({}, 'Parquet')", literal(format!("https://s3.amazonaws.com/{bucket}/{FILES}"))?),
                None => format!("File(Parquet, {})", literal(format!("{place}/{FILES}"))?),
            }
        ),
    };
    for view in views(None) {
        let view = match engine {
            Engine::Spark => view.replace("REPLACE VIEW", "REPLACE TEMPORARY VIEW"),
            Engine::Duckdb | Engine::Clickhouse => view,
        };
        let _ = writeln!(out, "{view};");
    }
    Ok(out)
}

const FILES: &str = "v=1/table=summary/dt=*/hour=*/part-*.parquet";

fn columns() -> String {
    let schema = SummaryRow::schema();
    let lines = schema.fields().iter().map(|field| {
        let kind = match field.data_type() {
            DataType::Int64 => "Int64",
            DataType::UInt32 => "UInt32",
            DataType::Timestamp(..) => "DateTime64(6)",
            _ => "String",
        };
        let kind = if field.is_nullable() { format!("Nullable({kind})") } else { kind.to_owned() };
        format!("    {} {kind}", field.name())
    });
    lines.collect::<Vec<_>>().join(",\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{Engine, statements};

    #[test]
    fn every_engine_gets_the_table_and_both_views() {
        for engine in [Engine::Duckdb, Engine::Spark, Engine::Clickhouse] {
            let text = statements(engine, "/srv/o'brien/").expect("statements");
            assert!(text.contains("/srv/o''brien/v=1/table=summary"), "{text}");
            for view in ["hours", "stalls", "host_sums", "stall_sums", "boots"] {
                assert!(text.contains(&format!("VIEW {view} AS ")), "{text}");
            }
        }
        assert!(statements(Engine::Spark, "/srv/a\\").is_err() && statements(Engine::Duckdb, "/srv/a\\").is_ok());
        let s3 = statements(Engine::Clickhouse, "s3://b/f").expect("statements");
        assert!(s3.contains("S3('https://s3.amazonaws.com/b/f/v=1/"));
    }
}
