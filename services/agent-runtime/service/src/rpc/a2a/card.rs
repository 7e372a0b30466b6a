//! The card of an agent, by which clients of A2A find it.

use std::collections::HashMap;

use agent_domain::{profile::Profile, spelling};
use call_wire::NamedTools;
use contracts::{
    lf::a2a::v1::{
        AgentCapabilities, AgentCard, AgentInterface, AgentSkill, HttpAuthSecurityScheme,
        SecurityRequirement, SecurityScheme, StringList, security_scheme::Scheme,
    },
    tavern::registry::v1::{BatchGetToolsRequest, GetCallerRequest, Tool},
};
use grpc_kit::CallContext;
use tonic::{Code, Status};

use super::{A2aRpc, VERSION, tenant_of};
use crate::error::{no_such_profile, store_failure};

/// The bindings of the gateway, each with its path below the gateway's address. If that address is
/// not set, the gateway adds it for clients of plain HTTP.
const INTERFACES: [(&str, &str); 3] = [("JSONRPC", "/a2a"), ("HTTP+JSON", "/a2a"), ("GRPC", "")];

/// The name of the security scheme in a card.
const SCHEME: &str = "key";

impl A2aRpc {
    /// Returns the card of an agent: its profile, with its tools and workflows as skills.
    pub(super) async fn card(
        &self,
        context: &CallContext,
        tenant: &str,
    ) -> Result<AgentCard, Status> {
        let (agent, tenant) = (tenant_of(tenant)?, context.tenant());
        let known = self.profiles.get(tenant, agent).await;
        let Some(known) = known.map_err(|error| store_failure(&error))? else {
            return Err(no_such_profile(tenant, agent, &self.profiles).await.into());
        };
        let inventory = known.document.inventory();
        let mut named = NamedTools::default();
        if !inventory.is_empty() {
            let ids = inventory.iter();
            let request = BatchGetToolsRequest {
                tool_ids: ids.map(|name| spelling::tool_id(name).to_owned()).collect(),
                ..BatchGetToolsRequest::default()
            };
            let mut registry = self.peers.tools(context);
            let found = registry.batch_get_tools(request.clone()).await?;
            named.add(&request.tool_ids, found.into_inner());
        }
        let skills = named.tools.iter().filter_map(|(id, tool)| {
            let listed = inventory.iter().find(|name| spelling::tool_id(name) == id);
            Some(skill(listed?, tool))
        });
        let mut card = card(&known.document, &self.public_url);
        card.skills = skills.collect();
        if self.needs_a_key(context).await? {
            let scheme = (SCHEME.to_owned(), bearer());
            card.security_schemes = HashMap::from([scheme]);
            let needed = (SCHEME.to_owned(), StringList::default());
            card.security_requirements = vec![SecurityRequirement {
                schemes: HashMap::from([needed]),
            }];
        }
        if card.version.is_empty() {
            card.version = known.revision_number().to_string();
        }
        Ok(card)
    }

    /// Whether a client needs a key: whether there is any.
    async fn needs_a_key(&self, context: &CallContext) -> Result<bool, Status> {
        let mut identities = self.peers.identities(context);
        match identities.get_caller(GetCallerRequest::default()).await {
            Ok(answer) => Ok(!answer.into_inner().caller.unwrap_or_default().open),
            // The key of the caller is revoked, or the first principal's, which the gateway calls as.
            Err(status) if status.code() == Code::Unauthenticated => Ok(true),
            Err(status) => Err(status),
        }
    }
}

/// Writes the card of a profile, without skills.
pub(super) fn card(profile: &Profile, public_url: &str) -> AgentCard {
    let text = |text: &str| vec![text.to_owned()];
    AgentCard {
        name: profile.name.clone(),
        description: profile.description.clone(),
        supported_interfaces: INTERFACES
            .map(|(binding, path)| AgentInterface {
                url: format!("{}{path}", public_url.trim_end_matches('/')),
                protocol_binding: binding.to_owned(),
                tenant: profile.id.to_string(),
                protocol_version: VERSION.to_owned(),
            })
            .into(),
        version: profile.version.clone(),
        capabilities: Some(AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extensions: Vec::new(),
            extended_agent_card: Some(true),
        }),
        default_input_modes: [text("text/plain"), text("application/json")].concat(),
        default_output_modes: text("text/plain"),
        ..AgentCard::default()
    }
}

/// Writes the scheme by which a client sends a key.
fn bearer() -> SecurityScheme {
    let scheme = HttpAuthSecurityScheme {
        description: "A key of this server: `authorization: Bearer KEY`.".to_owned(),
        scheme: "Bearer".to_owned(),
        bearer_format: String::new(),
    };
    SecurityScheme {
        scheme: Some(Scheme::HttpAuthSecurityScheme(scheme)),
    }
}

/// Writes a tool or workflow as a skill.
fn skill(name: &str, tool: &Tool) -> AgentSkill {
    let kind = match tool.tool_id.starts_with("workflow:") {
        true => "workflow",
        false => "tool",
    };
    AgentSkill {
        id: name.to_owned(),
        name: name.to_owned(),
        description: tool.description.clone(),
        tags: vec![kind.to_owned()],
        ..AgentSkill::default()
    }
}
