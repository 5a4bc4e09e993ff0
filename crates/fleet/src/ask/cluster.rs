//! A cluster of Ballista that answers instead of this process: the same tables, views and SQL. The scheduler plans, and executors
//! read the files themselves; so they must find the store where we do.

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use ballista_core::execution_plans::DistributedQueryExec;
use ballista_core::extension::SessionStateExt;
use ballista_core::serde::protobuf::CancelJobParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::protobuf::LogicalPlanNode;
use flatwater_recording::units::Nanos;
use url::Url;

use crate::FleetError;

/// The scheduler's, where none is given.
const PORT: u16 = 50_050;
/// Into so many parts a question is cut: how many CPUs the executors have together is not known here. Ballista's own default.
const PARTS: usize = 16;
/// Told to drop a job, the scheduler answers at once or not at all.
const CANCEL: Duration = Duration::from_secs(5);

/// Where the scheduler is, and how long its answer is waited for.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// As the user gave it.
    at: String,
    /// `http://HOST:PORT`, as gRPC wants it.
    scheduler: String,
    wait: Duration,
}

impl Cluster {
    /// `df://HOST:PORT`.
    pub fn parse(at: &str, wait: Nanos) -> Result<Cluster, FleetError> {
        let url = Url::parse(at).ok().filter(|url| url.scheme() == "df" && matches!(url.path(), "" | "/"));
        let Some((host, port)) = url.as_ref().and_then(|url| Some((url.host_str()?, url.port().unwrap_or(PORT))))
        else {
            return Err(FleetError::Usage(format!("'{at}': give Ballista's scheduler as df://HOST:PORT")));
        };
        let wait = Duration::from_nanos(wait.0);
        Ok(Cluster { at: at.to_owned(), scheduler: format!("http://{host}:{port}"), wait })
    }

    /// What plans here and asks there.
    pub(super) fn context(
        &self,
        config: SessionConfig,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<SessionContext, FleetError> {
        let config = config.with_target_partitions(PARTS);
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features();
        Ok(SessionContext::new_with_state(state.build().upgrade_for_ballista(self.scheduler.clone())?))
    }

    /// The rows. A job that nobody waits for any longer is dropped.
    pub(super) async fn collect(&self, frame: DataFrame) -> Result<Vec<RecordBatch>, FleetError> {
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        match tokio::time::timeout(self.wait, collect(Arc::clone(&plan), task)).await {
            Ok(rows) => rows.map_err(|error| self.explained(error)),
            Err(_) => {
                let cancelled = tokio::time::timeout(CANCEL, self.cancel(plan.as_ref())).await;
                let said =
                    if cancelled == Ok(true) { "the job was cancelled" } else { "the job could not be cancelled" };
                let wait = Nanos(u64::try_from(self.wait.as_nanos()).unwrap_or(u64::MAX));
                Err(self.failed(format!(
                    "no answer within {wait}, and {said}; see whether executors are registered with it, or give --wait"
                )))
            }
        }
    }

    async fn cancel(&self, plan: &dyn ExecutionPlan) -> bool {
        let query = plan.downcast_ref::<DistributedQueryExec<LogicalPlanNode>>();
        let Some(job) = query.and_then(DistributedQueryExec::job_id) else { return false };
        let Ok(mut scheduler) = SchedulerGrpcClient::connect(self.scheduler.clone()).await else { return false };
        scheduler.cancel_job(CancelJobParams { job_id: job.into() }).await.is_ok()
    }

    /// Ballista says in words alone why it has no rows: that a job failed, which a damaged file can have caused, and everything
    /// that happens between processes.
    fn explained(&self, error: DataFusionError) -> FleetError {
        match &error {
            DataFusionError::Execution(why) if !(why.starts_with("Job ") && why.contains(" failed: ")) => {
                self.failed(format!(
                    "the scheduler or an executor cannot be reached, or went away ({why}); ask again when they run"
                ))
            }
            _ => error.into(),
        }
    }

    fn failed(&self, why: String) -> FleetError {
        FleetError::Cluster { at: self.at.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cluster, DataFusionError, Nanos};
    use crate::FleetError;

    #[test]
    fn a_scheduler_is_given_as_a_url_of_its_own_scheme() {
        let parse = |at: &str| Cluster::parse(at, Nanos(1_000_000_000));
        assert_eq!(parse("df://127.0.0.1:7").expect("a scheduler").scheduler, "http://127.0.0.1:7");
        assert_eq!(parse("df://[::1]").expect("a scheduler").scheduler, "http://[::1]:50050");
        for wrong in ["127.0.0.1:7", "http://127.0.0.1:7", "df://", "df://host/path", "df:7"] {
            let refused = parse(wrong).expect_err(wrong);
            assert!(refused.is_usage() && refused.to_string().contains("df://HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn only_a_job_that_failed_may_be_a_files_fault() {
        let cluster = Cluster::parse("df://h:1", Nanos(1)).expect("a scheduler");
        let said = |text: &str| cluster.explained(DataFusionError::Execution(text.to_owned()));
        assert!(matches!(said("Job 7 failed: Parquet error: EOF"), FleetError::Query(_)));
        assert!(matches!(said("Stream closed without job completing"), FleetError::Cluster { .. }));
    }
}
