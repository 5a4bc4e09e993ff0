//! A Ballista scheduler and executors for tests, which compare their answers with those of this process
//! (tests/fleet/ballista.rs). They read what Ballista's own programs read: directories, and s3:// as configured in the
//! environment. Ballista's own programs have more options.
//!
//! ```text
//! flatwater-fleet-ballista scheduler --listen 127.0.0.1:50050
//! flatwater-fleet-ballista executor --scheduler 127.0.0.1:50050 --port 50051 --grpc-port 50052 --work-dir /var/tmp/one
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use ballista_core::object_store::{
    runtime_env_with_s3_support, session_config_with_s3_support, session_state_with_s3_support,
};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::Parser;

/// As in Ballista's own scheduler: plans are processed recursively.
const STACK_BYTES: usize = 32 << 20;

/// A scheduler or an executor for tests.
#[derive(Debug, Parser)]
#[command(name = "flatwater-fleet-ballista", version)]
enum Role {
    Scheduler {
        #[arg(long)]
        listen: SocketAddr,
        /// An executor is lost after this many seconds without a heartbeat.
        #[arg(long, default_value_t = 180)]
        executor_timeout_s: u64,
    },
    Executor {
        #[arg(long)]
        scheduler: SocketAddr,
        /// Port at which other executors and clients fetch rows.
        #[arg(long)]
        port: u16,
        /// Port at which the scheduler sends tasks.
        #[arg(long)]
        grpc_port: u16,
        #[arg(long)]
        work_dir: PathBuf,
        #[arg(long, default_value_t = 60)]
        heartbeat_s: u64,
        #[arg(long, default_value_t = 1)]
        cpus: usize,
        #[arg(long, default_value_t = 512 << 20)]
        memory_bytes: u64,
    },
}

fn main() -> anyhow::Result<()> {
    let role = Role::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build().context("cannot start threads")?;
    // Not on the main thread, whose stack is smaller.
    runtime.block_on(async { tokio::spawn(run(role)).await? })
}

async fn run(role: Role) -> anyhow::Result<()> {
    match role {
        Role::Scheduler { listen, executor_timeout_s } => {
            let config = SchedulerConfig {
                bind_host: listen.ip().to_string(),
                external_host: listen.ip().to_string(),
                bind_port: listen.port(),
                executor_timeout_seconds: executor_timeout_s,
                expire_dead_executor_interval_seconds: (executor_timeout_s / 4).max(1),
                no_executors_grace_period_seconds: executor_timeout_s,
                override_config_producer: Some(Arc::new(session_config_with_s3_support)),
                override_session_builder: Some(Arc::new(session_state_with_s3_support)),
                ..SchedulerConfig::default()
            };
            let cluster = BallistaCluster::new_from_config(&config).await?;
            start_server(cluster, listen, Arc::new(config)).await.with_context(|| format!("the scheduler at {listen}"))
        }
        Role::Executor { scheduler, port, grpc_port, work_dir, heartbeat_s, cpus, memory_bytes } => {
            let work_dir = work_dir.to_str().context("the work directory's name must be UTF-8")?.to_owned();
            let config = ExecutorProcessConfig {
                port,
                grpc_port,
                scheduler_host: scheduler.ip().to_string(),
                scheduler_port: scheduler.port(),
                vcores: cpus,
                work_dir: Some(work_dir),
                executor_heartbeat_interval_seconds: heartbeat_s,
                memory_pool_size: Some(memory_bytes),
                override_config_producer: Some(Arc::new(session_config_with_s3_support)),
                override_runtime_producer: Some(Arc::new(runtime_env_with_s3_support)),
                ..ExecutorProcessConfig::default()
            };
            start_executor_process(Arc::new(config)).await.with_context(|| format!("an executor of {scheduler}"))
        }
    }
}
