//! The points that have hooks, and the overridden services.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use contracts::tavern::registry::v1::{
    WatchHookPointsRequest, plugin_service_client::PluginServiceClient,
};
use grpc_kit::{Backoff, Transport};
use tokio_util::task::AbortOnDropHandle;
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

/// A service that backends of plugins may stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The knowledge bases of agent-runtime.
    KnowledgeBase,
    /// The questions to people of workflow-execution.
    Interaction,
}

impl Service {
    const ALL: [Self; 2] = [Self::KnowledgeBase, Self::Interaction];

    /// Returns the name, such as `knowledge-base`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KnowledgeBase => "knowledge-base",
            Self::Interaction => "interaction",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as usize + Point::ALL.len())
    }
}

/// The registry, with the points and services at which plugins are asked.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) registry: Transport,
    asked: Arc<Asked>,
    /// Follows the registry; ends with the last client.
    following: OnceLock<AbortOnDropHandle<()>>,
}

/// The points that have hooks and the overridden services, as a bit for each; all of them while they are not known.
#[derive(Debug)]
struct Asked(AtomicU32);

impl Default for Asked {
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

impl Asked {
    fn set(&self, bits: u32) {
        self.0.store(bits, Ordering::Release);
    }
}

impl Followed {
    pub(crate) fn new(registry: Transport) -> Self {
        Self {
            registry,
            asked: Arc::default(),
            following: OnceLock::new(),
        }
    }

    /// Whether a point may have hooks.
    pub(crate) fn may_have(&self, point: Point) -> bool {
        self.has(point.bit())
    }

    /// Whether a backend may stand in for a service.
    pub(crate) fn may_override(&self, service: Service) -> bool {
        self.has(service.bit())
    }

    /// Reads a bit. The first question begins to follow the registry.
    fn has(&self, bit: u32) -> bool {
        self.following.get_or_init(|| {
            let followed = follow(Arc::clone(&self.asked), self.registry.clone());
            AbortOnDropHandle::new(tokio::spawn(followed))
        });
        self.asked.0.load(Ordering::Acquire) & bit != 0
    }
}

/// Follows the points that have hooks and the overridden services, for ever.
async fn follow(asked: Arc<Asked>, registry: Transport) {
    let mut backoff = Backoff::default();
    loop {
        match follow_once(&asked, &registry, &mut backoff).await {
            Err(status) if status.code() == Code::Unimplemented => {
                // A registry of an earlier version has neither.
                asked.set(0);
                tokio::time::sleep(LONGEST_WAIT).await;
            }
            _ => {
                asked.set(u32::MAX);
                tokio::time::sleep(backoff.next_wait().min(LONGEST_WAIT)).await;
            }
        }
    }
}

async fn follow_once(
    asked: &Asked,
    registry: &Transport,
    backoff: &mut Backoff,
) -> Result<(), Status> {
    let mut plugins = PluginServiceClient::new(registry.outermost());
    let changes = plugins.watch_hook_points(WatchHookPointsRequest {});
    let mut changes = changes.await?.into_inner();
    while let Some(state) = changes.message().await? {
        let points = Point::ALL.into_iter();
        let points = points.filter(|point| state.points.iter().any(|name| name == point.as_str()));
        let services = Service::ALL.into_iter();
        let services =
            services.filter(|service| state.overrides.iter().any(|name| name == service.as_str()));
        let bits = points.map(Point::bit).chain(services.map(Service::bit));
        asked.set(bits.fold(0, |bits, bit| bits | bit));
        *backoff = Backoff::default();
    }
    Ok(())
}
