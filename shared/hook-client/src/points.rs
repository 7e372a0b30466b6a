//! The points that have hooks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use contracts::tavern::registry::v1::{
    WatchHookPointsRequest, plugin_service_client::PluginServiceClient,
};
use grpc_kit::{Backoff, Transport};
use tonic::{Code, Status};

/// The longest wait before the points are followed again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A point at which services ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before a workflow begins.
    WorkflowBeforeExecute,
    /// After a workflow ended.
    WorkflowAfterExecute,
    /// Before a turn of an agent begins.
    TurnBefore,
    /// After a turn of an agent ended.
    TurnAfter,
    /// Before a request to a model.
    ModelBeforeRequest,
}

impl Point {
    const ALL: [Self; 5] = [
        Self::WorkflowBeforeExecute,
        Self::WorkflowAfterExecute,
        Self::TurnBefore,
        Self::TurnAfter,
        Self::ModelBeforeRequest,
    ];

    /// Returns the name, such as `turn:before`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkflowBeforeExecute => "workflow:before-execute",
            Self::WorkflowAfterExecute => "workflow:after-execute",
            Self::TurnBefore => "turn:before",
            Self::TurnAfter => "turn:after",
            Self::ModelBeforeRequest => "model:before-request",
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The points that have hooks, as a bit for each; all of them while they are not known.
#[derive(Debug)]
pub(crate) struct Points(AtomicU32);

impl Default for Points {
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

impl Points {
    pub(crate) fn may_have(&self, point: Point) -> bool {
        self.0.load(Ordering::Acquire) & point.bit() != 0
    }

    fn set(&self, bits: u32) {
        self.0.store(bits, Ordering::Release);
    }
}

/// Follows the points that have hooks, for ever.
pub(crate) async fn follow(points: Arc<Points>, registry: Transport) {
    let mut backoff = Backoff::default();
    loop {
        match follow_once(&points, &registry, &mut backoff).await {
            Err(status) if status.code() == Code::Unimplemented => {
                // A registry of an earlier version has no hooks.
                points.set(0);
                tokio::time::sleep(LONGEST_WAIT).await;
            }
            _ => {
                points.set(u32::MAX);
                tokio::time::sleep(backoff.next_wait().min(LONGEST_WAIT)).await;
            }
        }
    }
}

async fn follow_once(
    points: &Points,
    registry: &Transport,
    backoff: &mut Backoff,
) -> Result<(), Status> {
    let mut plugins = PluginServiceClient::new(registry.outermost());
    let changes = plugins.watch_hook_points(WatchHookPointsRequest {});
    let mut changes = changes.await?.into_inner();
    while let Some(state) = changes.message().await? {
        let all = Point::ALL.into_iter();
        let there = all.filter(|point| state.points.iter().any(|name| name == point.as_str()));
        points.set(there.fold(0, |bits, point| bits | point.bit()));
        *backoff = Backoff::default();
    }
    Ok(())
}
