//! Answers questions on a Ballista cluster, with the same tables, views and SQL. The scheduler plans, and executors
//! read the files themselves, so they must reach the store under the same URL.

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

/// The scheduler's default port.
const PORT: u16 = 50_050;
/// The number of partitions of a query, Ballista's default; the number of CPUs of all executors is not known here.
const PARTS: usize = 16;
/// Time limit for cancelling a job; the scheduler answers at once or never.
const CANCEL: Duration = Duration::from_secs(5);

/// The scheduler's address, and the time limit for its answer.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// As the user gave it.
    at: String,
    /// `http://HOST:PORT`, the form that gRPC requires.
    scheduler: String,
    wait: Duration,
}

impl Cluster {
    /// Parses `df://HOST:PORT`.
    pub fn parse(at: &str, wait: Nanos) -> Result<Cluster, FleetError> {
        let url = Url::parse(at).ok().filter(|url| url.scheme() == "df" && matches!(url.path(), "" | "/"));
        let Some((host, port)) = url.as_ref().and_then(|url| Some((url.host_str()?, url.port().unwrap_or(PORT))))
        else {
            return Err(FleetError::Usage(format!(
                "'{at}' is not a scheduler; give Ballista's scheduler as df://HOST:PORT"
            )));
        };
        let wait = Duration::from_nanos(wait.0);
        Ok(Cluster { at: at.to_owned(), scheduler: format!("http://{host}:{port}"), wait })
    }

    /// A context that plans in this process and executes on the cluster.
    pub(super) fn context(
        &self,
        config: SessionConfig,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<SessionContext, FleetError> {
        let config = config.with_target_partitions(PARTS);
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features();
        Ok(SessionContext::new_with_state(state.build().upgrade_for_ballista(self.scheduler.clone())?))
    }

    /// Returns the rows. Cancels the job after the time limit.
    pub(super) async fn collect(&self, frame: DataFrame) -> Result<Vec<RecordBatch>, FleetError> {
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        match tokio::time::timeout(self.wait, collect(Arc::clone(&plan), task)).await {
            Ok(rows) => rows.map_err(|error| self.explained(error)),
            Err(_) => {
                let cancelled = tokio::time::timeout(CANCEL, self.cancel(plan.as_ref())).await;
                let message =
                    if cancelled == Ok(true) { "the job was cancelled" } else { "the job could not be cancelled" };
                let wait = Nanos(u64::try_from(self.wait.as_nanos()).unwrap_or(u64::MAX));
                Err(self.failed(format!(
                    "no answer within {wait}, and {message}; check that executors are registered, or give a longer --wait"
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

    /// Ballista reports only text: that a job failed, which a damaged file can have caused, or any error between
    /// processes.
    fn explained(&self, error: DataFusionError) -> FleetError {
        match &error {
            DataFusionError::Execution(why) if !(why.starts_with("Job ") && why.contains(" failed: ")) => {
                self.failed(format!(
                    "the scheduler or an executor cannot be reached, or has stopped ({why}); try again when both run"
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
    fn a_scheduler_is_given_as_a_df_url() {
        let parse = |at: &str| Cluster::parse(at, Nanos(1_000_000_000));
        assert_eq!(parse("df://127.0.0.1:7").expect("a scheduler").scheduler, "http://127.0.0.1:7");
        assert_eq!(parse("df://[::1]").expect("a scheduler").scheduler, "http://[::1]:50050");
        for wrong in ["127.0.0.1:7", "http://127.0.0.1:7", "df://", "df://host/path", "df:7"] {
            let refused = parse(wrong).expect_err(wrong);
            assert!(refused.is_usage() && refused.to_string().contains("df://HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn only_a_failed_job_can_be_caused_by_a_file() {
        let cluster = Cluster::parse("df://h:1", Nanos(1)).expect("a scheduler");
        let message = |text: &str| cluster.explained(DataFusionError::Execution(text.to_owned()));
        assert!(matches!(message("Job 7 failed: Parquet error: EOF"), FleetError::Query(_)));
        assert!(matches!(message("Stream closed without job completing"), FleetError::Cluster { .. }));
    }
}
