//! The same files for other engines: the statements that make the tables and the views.

use std::fmt::Write;

use arrow::datatypes::DataType;
use flatwater_recording::summary;

use crate::time::{self, Range};

/// An engine that reads the fleet's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    Duckdb,
    Spark,
    Clickhouse,
}

/// The two kinds of rows. Recordings that the daemon made are in its hours already.
#[must_use]
pub fn views(range: Option<Range>) -> Vec<String> {
    let within = range.map_or(String::new(), |range| {
        let (from, to) = (time::sql(range.from), time::sql(range.to));
        format!(" AND hour_start >= TIMESTAMP '{from}' AND hour_start < TIMESTAMP '{to}'")
    });
    let view = |name: &str, which: &str| {
        format!(
            "CREATE OR REPLACE VIEW {name} AS SELECT * FROM summary WHERE cause {which} AND origin <> 'capture'{within}"
        )
    };
    vec![view("hours", "IS NULL"), view("stalls", "IS NOT NULL")]
}

/// Everything that has to be said to this engine, for a fleet at this place.
#[must_use]
pub fn statements(engine: Engine, place: &str) -> String {
    let place = place.trim_end_matches('/').replace('\'', "''");
    let files = format!("{place}/v=1/table=summary/dt=*/hour=*/part-*.parquet");
    let mut out = match engine {
        Engine::Duckdb => format!(
            "CREATE OR REPLACE VIEW summary AS SELECT * EXCLUDE (v, \"table\", dt, hour) FROM read_parquet('{files}', hive_partitioning = true, \
             union_by_name = true);\n"
        ),
        Engine::Spark => format!(
            "SET spark.sql.parquet.inferTimestampNTZ.enabled = true;\n\
             CREATE OR REPLACE TEMPORARY VIEW summary USING parquet\n\
             OPTIONS (path '{place}/v=1/table=summary', mergeSchema 'true', pathGlobFilter 'part-*.parquet');\n"
        ),
        Engine::Clickhouse => format!("CREATE TABLE summary (\n{}) ENGINE = {};\n", columns(), table_engine(&place)),
    };
    for view in views(None) {
        let view = match engine {
            Engine::Spark => view.replace("REPLACE VIEW", "REPLACE TEMPORARY VIEW"),
            Engine::Duckdb | Engine::Clickhouse => view,
        };
        let _ = writeln!(out, "{view};");
    }
    out
}

fn table_engine(place: &str) -> String {
    let files = "v=1/table=summary/dt=*/hour=*/part-*.parquet";
    match place.strip_prefix("s3://") {
        Some(bucket) => format!("S3('https://s3.amazonaws.com/{bucket}/{files}', 'Parquet')"),
        None => format!("File(Parquet, '{place}/{files}')"),
    }
}

fn columns() -> String {
    let schema = summary::schema();
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
            let text = statements(engine, "/srv/o'brien/");
            assert!(text.contains("/srv/o''brien/v=1/table=summary"), "{text}");
            assert!(text.contains("VIEW hours") && text.contains("VIEW stalls"), "{text}");
        }
        assert!(statements(Engine::Clickhouse, "s3://b/f").contains("S3('https://s3.amazonaws.com/b/f/v=1/"));
    }
}
