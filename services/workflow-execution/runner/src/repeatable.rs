//! The effects that may be repeated, so that a batched run need not wait for their intent (rule
//! W44).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use call_wire::with_names;
use contracts::tavern::registry::v1::BatchGetToolsRequest;
use core_types::Tenant;

use super::Clients;

/// The time for which an answer of the registry is kept.
const KEPT: Duration = Duration::from_secs(10);

/// The most answers that are kept; beyond it all are requested again.
const MOST: usize = 10_000;

/// The tools of each tenant that are known to be read-only or idempotent, or not.
#[derive(Debug, Default)]
pub(super) struct RepeatableTools {
    /// Locked for a lookup or a change, never across an await.
    known: Mutex<HashMap<(Tenant, String), (bool, Instant)>>,
}

impl RepeatableTools {
    /// Whether each of these tools is read-only or idempotent. An unknown tool is neither.
    pub(super) async fn all(&self, peers: &Clients, tool_ids: &[String]) -> bool {
        let tenant = peers.context.tenant();
        let mut asked = Vec::new();
        for tool_id in tool_ids {
            match self.known(tenant, tool_id) {
                Some(true) => {}
                Some(false) => return false,
                None => asked.push(tool_id.clone()),
            }
        }
        if asked.is_empty() {
            return true;
        }
        let request = BatchGetToolsRequest {
            tool_ids: asked.clone(),
            ..Default::default()
        };
        let Ok(answer) = peers.tools.clone().batch_get_tools(request).await else {
            return false;
        };
        let answer = answer.into_inner();
        let mut repeatable = answer.missing_tool_ids.is_empty();
        for (name, tool) in with_names(&asked, answer) {
            let may_repeat = tool.read_only || tool.idempotent;
            repeatable &= may_repeat;
            self.note(tenant, name, may_repeat);
        }
        repeatable
    }

    fn known(&self, tenant: Tenant, tool_id: &str) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (repeatable, since) = known.get(&(tenant, tool_id.to_owned()))?;
        (since.elapsed() < KEPT).then_some(*repeatable)
    }

    fn note(&self, tenant: Tenant, tool_id: String, repeatable: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((tenant, tool_id), (repeatable, Instant::now()));
    }
}
