//! Summaries as Parquet files.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::SummaryRow;
use crate::TableError;
use crate::store::flat::FlatRow;

/// Version of the columns; readers refuse a higher one.
pub const VERSION: u32 = 1;
/// Key of the version in the file's metadata.
pub const VERSION_KEY: &str = "flatwater.summary.version";

/// Why a summary could not be written or was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum SummaryError {
    #[error("cannot encode the summary: {0}; this is a bug in flatwater, please report it")]
    Encode(#[from] TableError),
    #[error("it has no version, so it is not a summary of flatwater")]
    NoVersion,
    #[error("its version is {found}, and this flatwater reads versions up to {VERSION}: use a newer flatwater")]
    TooNew { found: String },
}

/// Checks whether this flatwater can read the version in a file's metadata.
pub fn check_version(found: Option<&str>) -> Result<(), SummaryError> {
    match found.map(str::parse::<u32>) {
        None => Err(SummaryError::NoVersion),
        Some(Ok(version)) if version <= VERSION => Ok(()),
        Some(_) => Err(SummaryError::TooNew { found: found.unwrap_or_default().chars().take(20).collect() }),
    }
}

impl SummaryRow {
    pub(crate) fn batch(rows: &[SummaryRow]) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(Arc::new(<SummaryRow as FlatRow>::schema()), <SummaryRow as FlatRow>::arrays(rows))
    }
}

/// Encodes a summary file. For about ten rows, the cost is the start of each of the fifty columns, so the file has no
/// compression, dictionaries or statistics. Merging the files of many hosts adds these.
pub fn to_parquet(rows: &[SummaryRow]) -> Result<Vec<u8>, SummaryError> {
    Ok(encoded(rows)?)
}

fn encoded(rows: &[SummaryRow]) -> Result<Vec<u8>, TableError> {
    let batch = SummaryRow::batch(rows)?;
    let version = KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string());
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by(format!("flatwater {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![version]))
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options)?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

impl SummaryRow {
    /// Copies settings into the columns of the same name.
    pub(super) fn take_settings(&mut self, setup: &crate::Setup) {
        let number = |key: &str| setup.number(key);
        self.vm_dirty_ratio = number("vm.dirty_ratio");
        self.vm_dirty_background_ratio = number("vm.dirty_background_ratio");
        self.vm_dirty_bytes = number("vm.dirty_bytes");
        self.vm_dirty_background_bytes = number("vm.dirty_background_bytes");
        self.vm_dirty_expire_centisecs = number("vm.dirty_expire_centisecs");
        self.vm_zone_reclaim_mode = number("vm.zone_reclaim_mode");
        self.vm_swappiness = number("vm.swappiness");
        self.vm_min_free_kbytes = number("vm.min_free_kbytes");
        self.vm_watermark_scale_factor = number("vm.watermark_scale_factor");
        self.vm_vfs_cache_pressure = number("vm.vfs_cache_pressure");
        let text = |key: &str| setup.get(key).map(str::to_owned);
        self.thp_enabled = text("thp.enabled");
        self.thp_defrag = text("thp.defrag");
        self.queue_scheduler = text("queue.scheduler");
    }

    /// Columns of settings that `rollout` and `ask` accept.
    pub const SETTINGS: &[&str] = &[
        "vm_dirty_ratio",
        "vm_dirty_background_ratio",
        "vm_dirty_bytes",
        "vm_dirty_background_bytes",
        "vm_dirty_expire_centisecs",
        "vm_zone_reclaim_mode",
        "vm_swappiness",
        "vm_min_free_kbytes",
        "vm_watermark_scale_factor",
        "vm_vfs_cache_pressure",
        "thp_enabled",
        "thp_defrag",
        "queue_scheduler",
    ];
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::{SummaryError, SummaryRow, check_version};
    use crate::Setup;
    use crate::summary::CALLS_OVER_NS;

    #[test]
    fn settings_and_latency_classes_have_columns() {
        let mut setup = Setup::default();
        for column in SummaryRow::SETTINGS {
            assert!(SummaryRow::schema().field_with_name(column).is_ok(), "{column}");
            setup.observe(&column.replacen('_', ".", 1), "7");
        }
        let mut row = SummaryRow::default();
        row.take_settings(&setup);
        let batch = SummaryRow::encode(&[row]).expect("encoded");
        for column in SummaryRow::SETTINGS {
            assert_eq!(batch.column_by_name(column).map(|array| array.null_count()), Some(0), "{column}");
        }
        let over: Vec<String> = CALLS_OVER_NS
            .iter()
            .map(|ns| match ns / 1_000_000 {
                ms if ms >= 1_000 => format!("calls_over_{}s", ms / 1_000),
                ms => format!("calls_over_{ms}ms"),
            })
            .collect();
        let schema = SummaryRow::schema();
        let columns = schema.fields().iter().map(|field| field.name().as_str());
        assert_eq!(columns.filter(|name| name.starts_with("calls_over_")).collect::<Vec<_>>(), over);
    }

    #[test]
    fn a_newer_version_is_refused_with_its_number() {
        assert!(check_version(Some("1")).is_ok());
        assert!(matches!(check_version(None), Err(SummaryError::NoVersion)));
        let refused = check_version(Some("2")).expect_err("newer");
        assert!(refused.to_string().contains("version is 2"), "{refused}");
        assert!(check_version(Some("x")).is_err());
    }
}
