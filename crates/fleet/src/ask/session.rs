//! The fleet's tables for DataFusion: `summary`, its rows as `hours` and `stalls`, and their sums as `host_sums` and
//! `stall_sums`. The sums read a day's file instead of the hours if there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::ViewTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext, lit};
use flatwater_recording::summary::SummaryRow;
use futures::{StreamExt, stream};
use object_store::{GetOptions, ObjectMeta};
use url::Url;

#[cfg(feature = "ballista")]
use super::Cluster;
use super::sum::checked_sum;
use super::{Answer, Question};
use crate::compact::days;
use crate::left_out::{LeftOut, Why};
use crate::store::{self, Fleet};
use crate::time::{self, Range};
use crate::{FleetError, compact, error, input, tables};

/// The store's URL for DataFusion in this process, whatever the store is.
const PLACE: &str = "fleet://store/";
/// Footers that are read at a time.
const LOOKED_AT: usize = 32;

/// The tables over one range of hours.
#[derive(Clone)]
pub struct Session {
    context: SessionContext,
    /// The cluster that answers; `None` if this process does.
    #[cfg(feature = "ballista")]
    cluster: Option<Cluster>,
    /// The store's URL for the processes that read it.
    place: String,
    fleet: Fleet,
    pub range: Range,
    /// The parts of hours, by day.
    parts: BTreeMap<String, Vec<ObjectMeta>>,
    /// Files of days that are wholly in the range and were made from the current parts.
    days: BTreeMap<String, ObjectMeta>,
    /// Hostnames that two machines have; only the view `boots` contains them.
    twins: BTreeSet<String>,
    /// Objects and hosts that are left out, and why.
    pub left_out: LeftOut,
    /// Summaries that are not yet compacted.
    pub waiting: usize,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session {{ {} parts and {} days of {} }}", self.parts(), self.days.len(), self.fleet.shown())
    }
}

/// Limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub memory_bytes: usize,
    /// The number of CPUs if `None`.
    pub threads: Option<usize>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory_bytes: 1 << 30, threads: None }
    }
}

impl Session {
    /// Opens the compacted hours of the range. Files that cannot be read are left out; a range without hours is an
    /// error.
    pub async fn open(fleet: &Fleet, range: Range, limits: Limits) -> Result<Session, FleetError> {
        let context = SessionContext::new_with_config_rt(config(limits), runtime(limits)?);
        let place = Url::parse(PLACE).map_err(|error| FleetError::Usage(error.to_string()))?;
        context.register_object_store(&place, Arc::clone(&fleet.store));
        Session::new(fleet, range, context, PLACE.to_owned()).opened().await
    }

    /// Like `open`, but a cluster answers. This process then reads only lists and footers.
    #[cfg(feature = "ballista")]
    pub async fn open_on(fleet: &Fleet, range: Range, limits: Limits, cluster: Cluster) -> Result<Session, FleetError> {
        let place = fleet.url().filter(|url| matches!(url.scheme(), "file" | "s3")).ok_or_else(|| {
            let at = fleet.shown();
            FleetError::Usage(format!("{at}: Ballista's executors read directories and s3://; omit --on"))
        })?;
        let context = cluster.context(config(limits), runtime(limits)?)?;
        let session = Session::new(fleet, range, context, place.to_string());
        Session { cluster: Some(cluster), ..session }.opened().await
    }

    fn new(fleet: &Fleet, range: Range, context: SessionContext, place: String) -> Session {
        // Executors of a cluster have only DataFusion's own sum, which wraps around.
        context.register_udaf(checked_sum());
        Session {
            context,
            #[cfg(feature = "ballista")]
            cluster: None,
            place,
            fleet: fleet.clone(),
            range,
            parts: BTreeMap::new(),
            days: BTreeMap::new(),
            twins: BTreeSet::new(),
            left_out: LeftOut::default(),
            waiting: 0,
        }
    }

    async fn opened(mut self) -> Result<Session, FleetError> {
        let Range { from, to } = self.range;
        self.waiting = compact::waiting(&self.fleet).await?.1;
        for day in self.fleet.days("v=1/table=summary", Some(self.range)).await? {
            self.day(&day).await?;
        }
        newer(&self.fleet, &mut self.left_out).await?;
        if self.parts.is_empty() && self.left_out.is_empty() {
            return Err(FleetError::NothingThere { from: time::sql(from), to: time::sql(to) });
        }
        self.register().await?;
        self.leave_out_twins().await?;
        Ok(self)
    }

    /// Adds the files of one day within the range.
    async fn day(&mut self, day: &str) -> Result<(), FleetError> {
        let all = self.fleet.list(&format!("v=1/table=summary/{day}")).await?;
        let is_whole = store::hours_of_day(day).is_some_and(|of| self.range.from <= of.from && of.to <= self.range.to);
        if is_whole && let Some(file) = self.sums_of(day, &days::made_of(&self.fleet, &all)).await? {
            // The compactor read each of these parts when it made the day, so a month of footers need not be read
            // again.
            self.days.insert(day.to_owned(), file);
            self.parts.insert(day.to_owned(), all);
            return Ok(());
        }
        let of_range = all
            .into_iter()
            .filter(|part| store::hour_of_object(&part.location).is_some_and(|hour| self.range.has(hour)));
        let mut usable = Vec::new();
        let mut looking = stream::iter(of_range).map(|part| look(&self.fleet, part)).buffered(LOOKED_AT);
        while let Some((part, looked)) = looking.next().await {
            match looked? {
                Ok(_) => usable.push(part),
                Err(refused) => self.left_out.put(refused.why, self.fleet.relative(&part.location), refused.exactly),
            }
        }
        drop(looking);
        if !usable.is_empty() {
            self.parts.insert(day.to_owned(), usable);
        }
        Ok(())
    }

    /// The day's file, if it was made from exactly these parts.
    async fn sums_of(&self, day: &str, made_of: &str) -> Result<Option<ObjectMeta>, FleetError> {
        let Some(file) = self.fleet.list(&format!("v=1/table=days/{day}")).await?.pop() else { return Ok(None) };
        // If the day's file cannot be read, its hours are read instead.
        let looked = input::look(&self.fleet, &file).await?;
        Ok(looked.ok().filter(|footer| footer.parts.as_deref() == Some(made_of)).map(|_| file))
    }

    /// Registers the tables and views. The views are the same SQL as for other engines.
    async fn register(&self) -> Result<(), FleetError> {
        let of_hours = self.parts.values().flatten();
        self.table("summary", of_hours, SummaryRow::schema())?;
        self.table("days", self.days.values(), days::schema())?;
        let rest = self.parts.iter().filter(|(day, _)| !self.days.contains_key(*day));
        self.table("rest", rest.flat_map(|(_, parts)| parts), SummaryRow::schema())?;
        for view in tables::views_with_days(self.range, &self.twins) {
            self.context.sql(&view).await?.collect().await?;
        }
        Ok(())
    }

    fn table<'a>(
        &self,
        name: &str,
        files: impl Iterator<Item = &'a ObjectMeta>,
        schema: SchemaRef,
    ) -> Result<(), FleetError> {
        let urls = files.map(|file| ListingTableUrl::parse(format!("{}{}", self.place, file.location)));
        let urls = urls.collect::<Result<Vec<_>, _>>()?;
        let _ = self.context.deregister_table(name)?;
        // Text views cannot be sent to another process without the whole buffer that they refer to.
        let schema = if self.place == PLACE { with_views(&schema) } else { schema };
        if urls.is_empty() {
            let empty = LogicalPlanBuilder::empty(false).build()?;
            let nulls = schema
                .fields()
                .iter()
                .map(|field| ScalarValue::try_new_null(field.data_type()).map(|null| lit(null).alias(field.name())));
            let plan = LogicalPlanBuilder::from(empty).project(nulls.collect::<Result<Vec<_>, _>>()?)?.build()?;
            self.context.register_table(name, Arc::new(ViewTable::new(plan, None)))?;
            return Ok(());
        }
        let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
        let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema);
        self.context.register_table(name, Arc::new(ListingTable::try_new(config)?))?;
        Ok(())
    }

    /// Finds hostnames that two machines have, and leaves them out of the views.
    async fn leave_out_twins(&mut self) -> Result<(), FleetError> {
        let sql = Question::find("twins", None)?.sql(&[], self.range)?;
        for batch in self.rows(&sql).await? {
            let hosts = arrow::compute::cast(batch.column(0), &DataType::Utf8)?;
            let machines = arrow::compute::cast(batch.column(1), &DataType::Utf8)?;
            for (host, machines) in hosts.as_string::<i32>().iter().zip(machines.as_string::<i32>()) {
                let (host, machines) = (host.unwrap_or_default(), machines.unwrap_or_default());
                let exactly = format!("{machines} times since boot that overlap");
                self.left_out.put(Why::TwoOfOneName, host, exactly);
                self.twins.insert(host.to_owned());
            }
        }
        if self.twins.is_empty() { Ok(()) } else { self.register().await }
    }

    /// Runs a query. If a part turns out to be damaged, leaves it out and runs the query again.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<RecordBatch>, FleetError> {
        match self.try_rows(sql).await {
            Ok(rows) => Ok(rows),
            // Reading all files is worthwhile only if a file can have caused the error.
            Err(FleetError::Query(error)) if of_a_file(&error) && self.drop_damaged().await? => {
                self.try_rows(sql).await
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a query, and adds to the rows what is missing from them.
    pub async fn answer(&mut self, about: String, sql: &str) -> Result<Answer, FleetError> {
        let rows = self.rows(sql).await?;
        let mut notes = Vec::new();
        if self.waiting > 0 {
            notes.push(crate::judge::waiting(self.waiting));
        }
        let range = format!("{} to {} UTC", time::sql(self.range.from), time::sql(self.range.to));
        Ok(Answer { about, range, rows, left_out: self.left_out.clone(), notes })
    }

    async fn try_rows(&self, sql: &str) -> Result<Vec<RecordBatch>, FleetError> {
        // A question only reads: statements that create, change or set anything are refused.
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let frame = self.context.sql_with_options(sql, options).await?;
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let rows = self.collect(frame).await?;
        Ok(if rows.is_empty() { vec![RecordBatch::new_empty(schema)] } else { rows })
    }

    /// Runs the query on the cluster, or in this process.
    async fn collect(&self, frame: DataFrame) -> Result<Vec<RecordBatch>, FleetError> {
        #[cfg(feature = "ballista")]
        if let Some(cluster) = &self.cluster {
            return cluster.collect(frame).await;
        }
        Ok(frame.collect().await?)
    }

    /// Reads every file in full and leaves out damaged ones. Returns whether there was any.
    async fn drop_damaged(&mut self) -> Result<bool, FleetError> {
        let mut found = false;
        for (day, parts) in std::mem::take(&mut self.parts) {
            let mut whole = Vec::with_capacity(parts.len());
            for part in parts {
                match self.read_whole(&part).await? {
                    Ok(()) => whole.push(part),
                    Err(refused) => {
                        found = true;
                        self.left_out.put(refused.why, self.fleet.relative(&part.location), refused.exactly);
                    }
                }
            }
            self.parts.insert(day, whole);
        }
        for (day, file) in std::mem::take(&mut self.days) {
            match self.read_whole(&file).await? {
                Ok(()) => _ = self.days.insert(day, file),
                Err(refused) => {
                    found = true;
                    self.left_out.put(refused.why, self.fleet.relative(&file.location), refused.exactly);
                }
            }
        }
        self.register().await?;
        Ok(found)
    }

    async fn read_whole(&self, file: &ObjectMeta) -> Result<Result<(), input::Refused>, FleetError> {
        let bytes = self.fleet.store.get_opts(&file.location, GetOptions::default()).await?.bytes().await?;
        Ok(tokio::task::block_in_place(|| input::batches_of_any_size(bytes)).map(|_| ()))
    }

    /// The number of readable files of hours.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// The number of days whose sums are read instead of their hours.
    #[must_use]
    pub fn days(&self) -> usize {
        self.days.len()
    }
}

/// Makes text columns views into the read buffers, so that repeated names are not copied for each row.
fn with_views(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => field.as_ref().clone().with_data_type(DataType::Utf8View),
        _ => field.as_ref().clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Whether a damaged file can have caused the error: not a mistake in the SQL, an unsuitable value, or too little
/// memory.
fn of_a_file(error: &DataFusionError) -> bool {
    use ArrowError as A;
    let of_a_value = |error: &ArrowError| {
        matches!(error, A::DivideByZero | A::ArithmeticOverflow(_) | A::CastError(_) | A::ParseError(_))
    };
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => false,
        DataFusionError::ArrowError(error, _) => !of_a_value(error),
        root => !error::is_of_sql(root),
    }
}

fn config(limits: Limits) -> SessionConfig {
    let mut config = SessionConfig::new().with_information_schema(true);
    if let Some(threads) = limits.threads {
        config = config.with_target_partitions(threads.max(1));
    }
    config.options_mut().execution.parquet.pushdown_filters = true;
    config.options_mut().execution.parquet.reorder_filters = true;
    config
}

fn runtime(limits: Limits) -> Result<Arc<RuntimeEnv>, FleetError> {
    Ok(RuntimeEnvBuilder::new().with_memory_limit(limits.memory_bytes, 1.0).build_arc()?)
}

type Looked = Result<Result<input::Footer, input::Refused>, FleetError>;

/// Whether the part's footer can be read and is of a known version.
async fn look(fleet: &Fleet, part: ObjectMeta) -> (ObjectMeta, Looked) {
    let looked = input::look(fleet, &part).await;
    (part, looked)
}

/// Notes directories of newer versions of flatwater.
async fn newer(fleet: &Fleet, left_out: &mut LeftOut) -> Result<(), FleetError> {
    for prefix in fleet.store.list_with_delimiter(Some(&fleet.key(""))).await?.common_prefixes {
        let name = prefix.filename().unwrap_or_default();
        if name.strip_prefix("v=").and_then(|version| version.parse::<u32>().ok()).is_some_and(|version| version > 1) {
            left_out.put(Why::Newer, name, "everything below it");
        }
    }
    Ok(())
}
