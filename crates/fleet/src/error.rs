//! The errors of this crate.

use std::path::PathBuf;

use flatwater_recording::summary::SummaryError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    #[error(
        "{at} cannot be a fleet's store: {why}; give a directory, or a URL that begins with s3://, gs://, az:// or file://"
    )]
    Place { at: String, why: String },
    #[error("the store: {0}")]
    Store(#[from] object_store::Error),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("another compactor changed {key} at the same time; nothing was lost; run compact again")]
    Raced { key: String },
    #[error("another compactor is running in this store (it holds {}); wait for its end, or stop it", path.display())]
    Busy { path: PathBuf },
    #[error("unknown question '{name}'{}; the questions are {known}", meaning(.meant.as_deref()))]
    NoQuestion {
        name: String,
        /// The closest known name, if there is one.
        meant: Option<String>,
        known: String,
    },
    #[error("the question '{name}' is not well formed: {why}")]
    Question { name: String, why: String },
    #[error("{name}={given}: {why}")]
    Parameter { name: String, given: String, why: String },
    #[error("the directory {} does not exist; give the fleet's directory, or create it with push", path.display())]
    NoDirectory { path: PathBuf },
    #[error("'{given}' is not a time; give 2026-11-22, 2026-11-22T02:00, or a time before now such as 36h or 7d")]
    Time { given: String },
    #[error("no hour between {from} and {to} is compacted; push summaries, then run compact")]
    NothingThere { from: String, to: String },
    #[error(transparent)]
    Refused(#[from] flatwater_safefs::Refusal),
    #[error("cannot be encoded: {0}")]
    Encode(String),
    #[cfg(feature = "ask")]
    // Not as a source: the message contains the error, and a chain of sources would repeat it.
    #[error("the question could not be answered: {}{}", .0, advice(.0))]
    Query(Box<datafusion::error::DataFusionError>),
    #[cfg(feature = "ballista")]
    #[error("Ballista at {at}: {why}")]
    Cluster { at: String, why: String },
    #[error(transparent)]
    Summary(#[from] SummaryError),
    #[error("{0}")]
    Usage(String),
}

impl From<arrow::error::ArrowError> for FleetError {
    fn from(error: arrow::error::ArrowError) -> FleetError {
        FleetError::Encode(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for FleetError {
    fn from(error: parquet::errors::ParquetError) -> FleetError {
        FleetError::Encode(error.to_string())
    }
}

fn meaning(meant: Option<&str>) -> String {
    meant.map_or(String::new(), |meant| format!(", did you mean '{meant}'?"))
}

#[cfg(feature = "ask")]
fn advice(error: &datafusion::error::DataFusionError) -> &'static str {
    match error.find_root() {
        datafusion::error::DataFusionError::ResourcesExhausted(_) => "; raise --memory, or give a shorter range",
        _ => "",
    }
}

/// Whether the SQL is wrong, rather than the data or the machine.
#[cfg(feature = "ask")]
pub(crate) fn is_of_sql(error: &datafusion::error::DataFusionError) -> bool {
    use datafusion::error::DataFusionError as E;
    matches!(error.find_root(), E::SQL(..) | E::Plan(_) | E::SchemaError(..) | E::NotImplemented(_))
}

#[cfg(feature = "ask")]
impl From<datafusion::error::DataFusionError> for FleetError {
    fn from(error: datafusion::error::DataFusionError) -> FleetError {
        FleetError::Query(Box::new(error))
    }
}

impl FleetError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> FleetError {
        let path = path.into();
        move |error| FleetError::File { path, error }
    }

    /// Whether the user can correct the error on the command line.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        #[cfg(feature = "ask")]
        if let FleetError::Query(error) = self {
            return is_of_sql(error);
        }
        matches!(
            self,
            FleetError::Usage(_)
                | FleetError::NoQuestion { .. }
                | FleetError::Parameter { .. }
                | FleetError::Time { .. }
                | FleetError::Place { .. }
                | FleetError::NoDirectory { .. }
        )
    }
}
