//! The changes of a tenant's tools, as they happen.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use contracts::tavern::registry::v1::{ToolChange, ToolChangeKind, WatchToolsResponse};
use core_types::{PerTenant, Tenant};
use futures::Stream;
use grpc_kit::Drain;
use tokio::sync::{Mutex, watch};
use tonic::{Code, Status};
use tool_domain::tool::Origin;

use crate::tools::{ListedTool, Tools};

/// The time between two snapshots, as tools of operators, workflows and backends change without a signal.
const POLL_PERIOD: Duration = Duration::from_secs(1);

/// The most changes in a message.
const MAX_CHANGES: usize = 500;

/// The most tenants whose tools are kept while no client watches them.
const MAX_TENANTS: usize = 16;

/// The tools by id, each as the change by which it would come.
type State = BTreeMap<String, ToolChange>;

/// Snapshots of the tools of tenants. One serves all clients that watch a tenant.
#[derive(Debug)]
pub(super) struct WatchedTools {
    tools: Tools,
    last: PerTenant<Mutex<Option<Snapshot>>>,
}

#[derive(Debug)]
struct Snapshot {
    time: Instant,
    /// The number of changes of plugins before it.
    changes: u64,
    state: Arc<State>,
}

impl WatchedTools {
    /// Takes the tools.
    pub(super) fn new(tools: Tools) -> Self {
        Self {
            tools,
            last: PerTenant::new(MAX_TENANTS),
        }
    }

    /// Returns the tools of a tenant after so many changes of plugins.
    async fn snapshot(&self, tenant: Tenant, changes: u64) -> Result<Arc<State>, Status> {
        let last = self.last.of(tenant);
        let mut last = last.lock().await;
        let is_fresh =
            |last: &&Snapshot| last.changes >= changes && last.time.elapsed() < POLL_PERIOD;
        if let Some(fresh) = last.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(&fresh.state));
        }
        let time = Instant::now();
        let listed = self.tools.list_with_states(tenant).await?;
        let state: Arc<State> = Arc::new(listed.iter().map(describe).collect());
        *last = Some(Snapshot {
            time,
            changes,
            state: Arc::clone(&state),
        });
        Ok(state)
    }
}

/// Reports every tool of a tenant, and then the differences, until the server drains. Takes a snapshot after
/// each of `changes`, and once a second.
pub(super) fn changes(
    watched: Arc<WatchedTools>,
    tenant: Tenant,
    mut changes: watch::Receiver<u64>,
    drain: Drain,
) -> impl Stream<Item = Result<WatchToolsResponse, Status>> + Send {
    async_stream::try_stream! {
        let mut known: Option<Arc<State>> = None;
        loop {
            let count = *changes.borrow_and_update();
            let taken = watched.snapshot(tenant, count).await;
            // A neighbour that is away for a moment takes nothing from the state.
            let is_away = |status: &Status| status.code() == Code::Unavailable;
            if known.is_none() || !taken.as_ref().is_err_and(is_away) {
                let present = taken?;
                let found = differences(known.as_deref(), &present);
                known = Some(present);
                let pages = found.chunks(MAX_CHANGES);
                let last = pages.len().saturating_sub(1);
                for (page, changes) in pages.enumerate() {
                    let (changes, complete) = (changes.to_vec(), page == last);
                    yield WatchToolsResponse { changes, complete };
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(POLL_PERIOD) => {}
                () = drain.started() => return,
            }
        }
    }
}

fn describe(listed: &ListedTool) -> (String, ToolChange) {
    let ListedTool { tool, inactive } = listed;
    let id = tool.id().to_owned();
    let reason = inactive.as_ref().map(|reason| reason.sentence(&id));
    let change = ToolChange {
        kind: ToolChangeKind::Present.into(),
        tool_id: id.clone(),
        etag: tool.etag().to_owned(),
        plugin: match tool.origin() {
            Origin::Plugin(plugin) => plugin.clone(),
            _ => String::new(),
        },
        inactive_code: inactive
            .as_ref()
            .map_or("", |reason| reason.code())
            .to_owned(),
        inactive_reason: reason.unwrap_or_default(),
    };
    (id, change)
}

/// Returns the changes from a state to the present one by id; every tool if there is no earlier state.
fn differences(earlier: Option<&State>, present: &State) -> Vec<ToolChange> {
    let Some(earlier) = earlier else {
        return present.values().cloned().collect();
    };
    let of_kind = |change: &ToolChange, kind: ToolChangeKind| ToolChange {
        kind: kind.into(),
        ..change.clone()
    };
    let mut changes: Vec<ToolChange> = present
        .iter()
        .filter_map(|(id, now)| {
            let kind = match earlier.get(id) {
                None => ToolChangeKind::Added,
                Some(before) if before == now => return None,
                // Without its target, a tool that cannot be called has another etag.
                Some(before) if before.inactive_code != now.inactive_code => ToolChangeKind::State,
                Some(_) => ToolChangeKind::Changed,
            };
            Some(of_kind(now, kind))
        })
        .collect();
    let gone = earlier.iter().filter(|(id, _)| !present.contains_key(*id));
    changes.extend(gone.map(|(_, before)| of_kind(before, ToolChangeKind::Removed)));
    changes.sort_by(|a, b| a.tool_id.cmp(&b.tool_id));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_of_two_states_has_its_kind_and_what_is_equal_has_none() {
        let state = |tools: &[(&str, &str, &str)]| -> State {
            let change = |(id, etag, inactive): &(&str, &str, &str)| {
                let change = ToolChange {
                    tool_id: (*id).to_owned(),
                    etag: (*etag).to_owned(),
                    inactive_code: (*inactive).to_owned(),
                    ..ToolChange::default()
                };
                ((*id).to_owned(), change)
            };
            tools.iter().map(change).collect()
        };
        let off = "tool_not_available";
        let before = state(&[
            ("a", "1", ""),
            ("b", "1", ""),
            ("c", "1", ""),
            ("d", "1", off),
            ("f", "1", ""),
        ]);
        let after = state(&[
            ("a", "1", ""),
            ("b", "2", ""),
            ("c", "2", off),
            ("d", "1", ""),
            ("e", "1", ""),
        ]);
        let found = differences(Some(&before), &after);
        let kinds: Vec<_> = found
            .iter()
            .map(|change| (&*change.tool_id, change.kind()))
            .collect();
        let expected = [
            ("b", ToolChangeKind::Changed),
            ("c", ToolChangeKind::State),
            ("d", ToolChangeKind::State),
            ("e", ToolChangeKind::Added),
            ("f", ToolChangeKind::Removed),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(differences(None, &after).len(), after.len());
    }
}
