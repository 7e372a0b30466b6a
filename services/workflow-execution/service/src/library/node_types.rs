//! The node types of plugins, as the registry knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use call_outcome::Violation;
use contracts::tavern::registry::v1::{PluginNodeType as Described, ResolveNodeTypesRequest};
use core_types::Tenant;
use grpc_kit::{CallContext, Failure, Patience};
use tokio::time::Instant;
use workflow_domain::bundle::Children;
use workflow_domain::limits::MAX_NAME_BYTES;
use workflow_domain::load::load;
use workflow_domain::plugin_node::{self, PLUGIN_MISSING, PluginNodeType, plugin_of};
use workflow_runner::Peers;

/// The longest wait for the registry.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most node types of plugins that one request names.
const MAX_TYPES: usize = 1_000;

/// Looks the node types of plugins up in the registry, which is not asked for definitions without one.
#[derive(Clone, Debug)]
pub struct NodeTypes {
    peers: Peers,
}

/// The node types of plugins that some texts name, for a tenant.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The types whose nodes can run.
    pub node_types: Arc<Children>,
    /// The reasons for which nodes of other types cannot, by full type.
    inactive: BTreeMap<String, String>,
}

impl NodeTypes {
    /// Reaches the registry over its transport.
    pub fn new(peers: Peers) -> Self {
        Self { peers }
    }

    /// Resolves types by their full types.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn resolve(
        &self,
        tenant: Tenant,
        full_types: BTreeSet<String>,
    ) -> Result<Resolved, Failure> {
        let mut resolved = Resolved::default();
        let mut described = Vec::new();
        let full_types: Vec<String> = full_types.into_iter().collect();
        for full_types in full_types.chunks(MAX_TYPES) {
            let request = ResolveNodeTypesRequest {
                full_types: full_types.to_vec(),
                ..ResolveNodeTypesRequest::default()
            };
            described.extend(self.ask(tenant, request).await?.0);
        }
        let mut node_types = Children::new();
        for described in described {
            match described.inactive_reason.as_str() {
                "" => {
                    let pinned = pinned(described);
                    node_types.insert(pinned.full_type.clone(), pinned.to_text().into());
                }
                _ => drop(
                    resolved
                        .inactive
                        .insert(described.full_type, described.inactive_reason),
                ),
            }
        }
        resolved.node_types = Arc::new(node_types);
        Ok(resolved)
    }

    /// Returns all types that plugins in force bring.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn all(&self, tenant: Tenant) -> Result<Vec<PluginNodeType>, Failure> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ResolveNodeTypesRequest {
                page_token,
                ..ResolveNodeTypesRequest::default()
            };
            let (described, next) = self.ask(tenant, request).await?;
            all.extend(described.into_iter().map(pinned));
            page_token = next;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    async fn ask(
        &self,
        tenant: Tenant,
        request: ResolveNodeTypesRequest,
    ) -> Result<(Vec<Described>, String), Failure> {
        let context = CallContext::of_tenant(tenant);
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        loop {
            let mut plugins = self.peers.plugins(&context);
            match plugins.resolve_node_types(request.clone()).await {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    return Ok((answer.node_types, answer.next_page_token));
                }
                Err(status) if patience.wait_after(&status).await => {}
                Err(status) => {
                    tracing::warn!(%status, "the node types of plugins cannot be looked up");
                    return Err(Failure::dependency_unavailable("tool-registry"));
                }
            }
        }
    }
}

impl Resolved {
    /// States the reason, where it is known, in each violation by a missing type.
    pub fn explain(&self, violations: &mut [Violation]) {
        for violation in violations {
            let reason = self.inactive.get(&violation.received);
            if let (PLUGIN_MISSING, Some(reason)) = (&*violation.code, reason) {
                let place = std::mem::take(&mut violation.pointer);
                *violation = plugin_node::missing(place, &violation.received, Some(reason));
            }
        }
    }
}

fn pinned(described: Described) -> PluginNodeType {
    PluginNodeType {
        full_type: described.full_type,
        definition: described.definition_json,
        tool_id: described.tool_id,
        package_digest: described.package_digest,
    }
}

/// Returns the node types of plugins that a definition names. Only a definition that may name one is read.
pub(super) fn named_in(text: &str) -> BTreeSet<String> {
    if !may_name_one(text) {
        return BTreeSet::new();
    }
    let nodes = load(text).workflow.map(|workflow| workflow.nodes);
    let full_types = nodes.into_iter().flatten().map(|node| node.full_type);
    full_types
        .filter(|full_type| plugin_of(full_type).is_some() && full_type.len() <= MAX_NAME_BYTES)
        .collect()
}

/// Whether a value of a key `type` or `fullType` has the form of a node type of a plugin.
fn may_name_one(text: &str) -> bool {
    let keys = [r#""type""#, r#""fullType""#];
    let mut places = keys.iter().flat_map(|key| text.match_indices(key));
    places.any(|(at, key)| {
        let value = text[at + key.len()..].trim_start().strip_prefix(':');
        let value = value.map(str::trim_start);
        // Most nodes are of the engine.
        let value = value.filter(|value| !value.starts_with("\"core:"));
        let full_type = value.and_then(|value| {
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
            values.next()?.ok()
        });
        full_type.is_some_and(|full_type| plugin_of(&full_type).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_plugins_are_found_in_a_text_in_either_form_and_spelling() {
        for (text, expected) in [
            (
                r#"{"nodes":[{"id":"a","type":"qr:QrCode"}]}"#,
                Some("qr:QrCode"),
            ),
            (
                r#"{"nodes":[{"id":"a","fullType" : "qr:QrCode"}]}"#,
                Some("qr:QrCode"),
            ),
            (
                r#"{"nodes":[{"id":"a","type":"qr\u003aQrCode"}]}"#,
                Some("qr:QrCode"),
            ),
            (r#"{"nodes":[{"id":"a","type":"core:TextMerge"}]}"#, None),
            (
                r#"{"nodes":[{"id":"a","type":"core:Script","inputValues":{"type":"xsd:string"}}]}"#,
                None,
            ),
            (r#"{"nodes":[{"id":"a","type":{"a":"b:c"}}]}"#, None),
            (r#"{"type""#, None),
            (r#"{"type":"cut:"#, None),
        ] {
            let found = named_in(text);
            assert_eq!(found.first().map(String::as_str), expected, "{text}");
        }
    }
}
