//! Every method of the contract that names something, with a name of another tenant and with one that nothing has.

use anyhow::Context;
use contracts::access::{self, Access, Role};
use contracts::tavern::access::v1::{Permission, Scope};
use contracts::tavern::sandbox::v1::{
    UploadBlobHeader, UploadBlobRequest, blob_service_client::BlobServiceClient,
    upload_blob_request::Part,
};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value, json};
use testkit::{Stack, eventually, repository};

use super::client::{Answer, Client};

/// The names that one tenant has, and of equal length those that nothing has, by the name of the field.
pub(super) struct Names(Vec<Named>);

/// The name of a field, the name that one tenant has, and a name that nothing has.
type Named = (&'static str, String, String);

/// Fields that are no names of stored things, or are the caller's own choice.
const NOT_NAMES: [&str; 9] = [
    "correlation_id",
    "source_id",
    "signal_id",
    "request_id",
    "key_id",
    "caller_id",
    "goal_id",
    "target_instance_ids",
    "wait_id",
];

/// The fields that name things of one principal, where others name things of the tenant.
const OWN: [&str; 6] = [
    "run_id",
    "session_id",
    "approval_id",
    "effect_id",
    "conversation_id",
    "sha256",
];

/// Methods that take an id which the caller chooses: they begin something new, or say that the id is taken.
const TAKES_ID: [&str; 6] = [
    "CallTool",
    "StartCall",
    "InvokeCalls",
    "StartTurn",
    "StartRun",
    "AppendMessages",
];

/// The least number of calls that must look something up: fewer would mean that the requests do not get so far.
const LOOK_UPS: usize = 45;

/// The beginnings of the names of methods that change nothing.
const READS: [&str; 6] = ["Get", "List", "Watch", "Stat", "Download", "Describe"];

/// The methods whose things the test does not make: a tenant cannot name a server of this machine as its backend, and
/// plugins belong to the installation.
const NOT_MADE: [&str; 3] = ["GetBackend", "GetPlugin", "GetPluginOptions"];

impl Names {
    fn of(&self, field: &str) -> Option<&Named> {
        let singular = field.trim_end_matches('s');
        self.0
            .iter()
            .find(|(name, ..)| *name == field || *name == singular)
    }

    /// Whether a text has one of the names that the tenant has.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.0.iter().any(|(_, foreign, _)| text.contains(foreign))
    }

    /// Returns a text without the names and without details that are encoded, which stand decoded beside it, so that
    /// two answers about different names can be compared.
    fn masked(&self, text: &str) -> String {
        let mut parts = text.split("\"value\":\"");
        let first = parts.next().unwrap_or_default().to_owned();
        let plain = parts.fold(first, |text, part| {
            let (_, rest) = part.split_once("\",").unwrap_or_default();
            text + rest
        });
        self.0.iter().fold(plain, |text, (_, foreign, missing)| {
            text.replace(foreign, "<name>").replace(missing, "<name>")
        })
    }
}

/// Returns the requests that store one definition of each kind, all called `theirs`.
fn definitions() -> [(&'static str, Value); 7] {
    let workflow =
        json!({"name": "One", "nodes": [{"id": "r", "type": "core:RandomNumber"}], "edges": []});
    let tool = json!({"id": "theirs", "displayName": "Theirs", "description": "Rolls.",
        "implementation": {"type": "node", "nodeType": "core:RandomNumber"},
        "parameters": {"type": "object", "properties": {}}});
    let knowledge = json!({"kb_id": "theirs", "kb_version": "1.0.0", "schema_version": "1.0",
        "kb_displayName": "Theirs", "kb_description": "Known.", "entries": [{"id": "theirs-e",
        "entry_type": "lore", "content": {"mime_type": "text/plain", "value": "Text."}}]});
    let profile = json!({"id": "theirs", "name": "Theirs", "version": "1.0.0", "schema_version": "1.0",
        "custom_metadata": {"tavern": {"model": "house"}}, "description": "One.",
        "initial_private_state_values": {"mood": 1}});
    let scene = json!({"id": "theirs", "name": "Theirs", "version": "1.0.0", "schema_version": "1.0",
        "agent_instances": [{"instance_id": "a", "profile_id": "theirs"}], "description": "One."});
    let project = json!({"project_id": "theirs", "id": "theirs", "name": "Theirs", "version": "1.0.0",
        "schema_version": "1.0", "description": "One."});
    let schedule = json!({"scheduleId": "theirs", "workflowId": "theirs", "interval": "31622400s"});
    [
        (
            "tavern.workflow.v1.WorkflowService/PutWorkflow",
            json!({"workflowId": "theirs", "definitionJson": workflow.to_string()}),
        ),
        (
            "tavern.workflow.v1.ScheduleService/PutSchedule",
            json!({"schedule": schedule}),
        ),
        (
            "tavern.registry.v1.ToolRegistryService/PutTool",
            json!({"definitionJson": tool.to_string()}),
        ),
        (
            "tavern.agent.v1.KnowledgeService/PutKnowledgeBase",
            json!({"knowledgeJson": knowledge.to_string()}),
        ),
        (
            "tavern.agent.v1.ProfileService/PutProfile",
            json!({"profileJson": profile.to_string()}),
        ),
        (
            "tavern.agent.v1.SceneService/PutScene",
            json!({"sceneJson": scene.to_string()}),
        ),
        (
            "tavern.agent.v1.ProjectService/PutProject",
            json!({"projectJson": project.to_string()}),
        ),
    ]
}

/// Makes one thing of each kind, called `theirs` where its name can be chosen, and returns their names.
pub(super) async fn things(stack: &Stack, client: &Client) -> anyhow::Result<Names> {
    for (method, request) in definitions() {
        client.ok(method, &request).await?;
    }
    let method = "tavern.workflow.v1.WorkflowService/StartRun";
    let started = client.ok(method, &json!({"workflowId": "theirs"})).await?;
    let run_id = started["run"]["runId"].as_str();
    let run_id = run_id.context("a run id")?.to_owned();
    let call = json!({"toolId": "theirs", "argumentsJson": "{}", "effectId": "theirs"});
    client
        .ok("tavern.registry.v1.CallService/StartCall", &call)
        .await?;
    let message = json!({"role": "CHAT_ROLE_USER", "text": "Hello."});
    let append = json!({"conversationId": "theirs", "messages": [message]});
    client
        .ok(
            "tavern.agent.v1.ConversationService/AppendMessages",
            &append,
        )
        .await?;
    let turn = json!({"conversationId": "theirs", "profileId": "theirs", "modelText": "Hello."});
    client
        .ok("tavern.agent.v1.AgentService/StartTurn", &turn)
        .await?;
    let state = json!({"conversationId": "theirs", "profileId": "theirs"});
    eventually("the turn begins the private state", || async {
        let method = "tavern.agent.v1.StateService/GetPrivateState";
        client.ok(method, &state).await.ok()
    })
    .await?;
    let session = json!({"runtime": "python", "callerId": "theirs"});
    let method = "tavern.sandbox.v1.SessionService/CreateSession";
    let created = client.ok(method, &session).await?;
    let session_id = created["session"]["sessionId"].as_str();
    let session_id = session_id.context("a session id")?.to_owned();
    let other = |id: &str| {
        id.chars()
            .map(|it| if it == '7' { '8' } else { it })
            .collect::<String>()
    };
    let flipped = |id: &str| match other(id) {
        same if same == id => id.replace('8', "7").replace('4', "5"),
        other => other,
    };
    let named = |field: &'static str| (field, "theirs".to_owned(), "absent".to_owned());
    let approval_id = approval(stack, client).await?;
    let digest = blob(client).await?;
    Ok(Names(vec![
        ("run_id", run_id.clone(), flipped(&run_id)),
        ("session_id", session_id.clone(), flipped(&session_id)),
        ("approval_id", approval_id.clone(), flipped(&approval_id)),
        ("caiu_id", "theirs-e".to_owned(), "absent-e".to_owned()),
        ("sha256", digest, "b".repeat(64)),
        named("workflow_id"),
        named("schedule_id"),
        named("tool_id"),
        named("effect_id"),
        named("kb_id"),
        named("kb"),
        named("profile_id"),
        named("scene_id"),
        named("project_id"),
        named("conversation_id"),
        named("name"),
    ]))
}

/// Makes an approval that no one has decided, and returns its id.
async fn approval(stack: &Stack, client: &Client) -> anyhow::Result<String> {
    // The approver is another principal.
    Client::new(stack, "acme", "carl", Role::Admin).await?;
    let approver = json!({"name": "carl", "roles": ["admin"], "groups": ["storykeeper"]});
    let put = json!({"principal": approver});
    client
        .ok("tavern.registry.v1.IdentityService/PutPrincipal", &put)
        .await?;
    // The deployed rules ask about a workflow of this name.
    let workflow = std::fs::read_to_string(repository().join("deploy/workflows/grant_item.json"))?;
    let put = json!({"workflowId": "grant_item", "definitionJson": workflow});
    client
        .ok("tavern.workflow.v1.WorkflowService/PutWorkflow", &put)
        .await?;
    let arguments = json!({"item": "ring", "to": "you", "value": 60}).to_string();
    let call = json!({"toolId": "workflow:grant_item", "argumentsJson": arguments});
    client
        .ok("tavern.registry.v1.CallService/StartCall", &call)
        .await?;
    eventually("the call waits for an approval", || async {
        let method = "tavern.registry.v1.ApprovalService/ListApprovals";
        let listed = client.ok(method, &json!({})).await.ok()?;
        let id = listed["approvals"][0]["approvalId"].as_str()?;
        Some(id.to_owned())
    })
    .await
}

/// Stores a blob of a client, and returns its digest.
async fn blob(client: &Client) -> anyhow::Result<String> {
    let parts = [
        Part::Header(UploadBlobHeader {
            caller_id: "theirs".to_owned(),
            ..UploadBlobHeader::default()
        }),
        Part::Chunk(b"theirs".to_vec()),
    ];
    let parts = parts.map(|part| UploadBlobRequest { part: Some(part) });
    let mut blobs = BlobServiceClient::new(client.transport.outermost());
    let stored = blobs.upload_blob(futures::stream::iter(parts)).await?;
    Ok(stored.into_inner().sha256)
}

/// Returns a request that names something in each field that can, by `pick`.
fn request(
    message: &MessageDescriptor,
    names: &Names,
    pick: impl Fn(&Named) -> String,
    unknown: &mut Vec<String>,
) -> Value {
    let mut fields = Map::new();
    for field in message.fields() {
        if field.kind() != Kind::String {
            continue;
        }
        let Some(named) = names.of(field.name()) else {
            let is_name = field.name().ends_with("_id") || field.name().ends_with("_ids");
            if is_name && !NOT_NAMES.contains(&field.name()) {
                unknown.push(field.full_name().to_owned());
            }
            fields.extend(filled(&field));
            continue;
        };
        let name = Value::String(pick(named));
        let value = if field.is_list() { json!([name]) } else { name };
        fields.insert(field.json_name().to_owned(), value);
    }
    Value::Object(fields)
}

/// Returns a value for a field that many requests need.
pub(super) fn filled(field: &FieldDescriptor) -> Option<(String, Value)> {
    let value = match field.name() {
        "caller_id" => "theirs",
        "text" | "query" | "message" | "reason" | "source_text" | "type" => "words",
        "payload_json" | "arguments_json" | "inputs_json" | "answer_json" => "{}",
        "signal_id" | "wait_id" | "goal_id" => "go",
        _ => return None,
    };
    (!field.is_list()).then(|| (field.json_name().to_owned(), value.into()))
}

/// Returns the JSON of an answer, in which the order of metadata means nothing; of another text the text itself.
fn plain(body: &str) -> Value {
    let json = body.find('{').zip(body.rfind('}'));
    let json = json.and_then(|(first, last)| serde_json::from_str(&body[first..=last]).ok());
    json.unwrap_or_else(|| body.into())
}

/// Returns the path of a method.
pub(super) fn path(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// Returns the methods that a client can call with one request, and that are not those of the installation.
pub(super) fn methods() -> anyhow::Result<Vec<(MethodDescriptor, &'static Access)>> {
    let pool = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET)?;
    let methods: Vec<_> = pool
        .services()
        .flat_map(|it| it.methods().collect::<Vec<_>>())
        .collect();
    let methods = methods
        .into_iter()
        .filter(|method| !method.is_client_streaming());
    let methods = methods.filter_map(|method| {
        let name = path(&method);
        let facts = access::of(&name).filter(|_| name.starts_with("tavern."))?;
        let is_for_clients = !matches!(facts.permission(), Permission::Peer | Permission::Public);
        (is_for_clients && facts.scope() != Scope::Cluster).then_some((method, facts))
    });
    Ok(methods.collect())
}

pub(super) async fn answer(
    client: &Client,
    method: &MethodDescriptor,
    body: &Value,
) -> anyhow::Result<Answer> {
    let name = path(method);
    match method.is_server_streaming() {
        true => client.stream(&name, body).await,
        false => client.call(&name, body).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s601_a_name_of_another_tenant_is_answered_as_one_that_nothing_has() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    for tenant in ["acme", "other"] {
        stack.create_tenant(tenant, 1, Vec::new()).await?;
    }
    let bob = Client::new(&stack, "acme", "bob", Role::Admin).await?;
    let names = things(&stack, &bob).await?;
    // Another tenant, and of the same tenant one who sees the own things only.
    let eve = Client::new(&stack, "other", "eve", Role::Admin).await?;
    let ada = Client::new(&stack, "acme", "ada", Role::Invoker).await?;

    let (mut wrong, mut unknown, mut look_ups) = (Vec::new(), Vec::new(), 0);
    for (method, facts) in methods()? {
        if method.name().starts_with("Put") {
            continue;
        }
        let (name, permission, input) = (path(&method), facts.permission(), method.input());
        let all_foreign = request(&input, &names, |(_, it, _)| it.clone(), &mut unknown);
        let all_missing = request(&input, &names, |(.., it)| it.clone(), &mut Vec::new());
        let own_missing = |named: &Named| match OWN.contains(&named.0) {
            true => named.2.clone(),
            false => named.1.clone(),
        };
        let own_missing = request(&input, &names, own_missing, &mut Vec::new());
        let is_own = facts.scope() == Scope::Own && !TAKES_ID.contains(&method.name());
        let mut callers = vec![("another tenant", &eve, all_missing)];
        if is_own && Role::Invoker.permissions().contains(&permission) {
            callers.push(("another principal", &ada, own_missing));
        }
        callers.retain(|(.., missing)| *missing != all_foreign);
        for (caller, client, missing) in callers {
            let of_foreign = answer(client, &method, &all_foreign).await?;
            let of_missing = answer(client, &method, &missing).await?;
            let is_looked_up = of_missing.body.contains("NOT_FOUND");
            look_ups += usize::from(is_looked_up);
            let reads = READS.iter().any(|read| method.name().starts_with(read));
            if is_looked_up && reads && !NOT_MADE.contains(&method.name()) {
                let of_owner = answer(&bob, &method, &all_foreign).await?;
                if of_owner.body.contains("NOT_FOUND") {
                    wrong.push(format!("{name} by the owner: {of_owner:?}"));
                }
            }
            let shown = |answer: &Answer| (answer.status, plain(&names.masked(&answer.body)));
            if shown(&of_foreign) != shown(&of_missing) {
                wrong.push(format!(
                    "{name} by {caller}: {:?}, and for a missing one {:?}",
                    shown(&of_foreign),
                    shown(&of_missing)
                ));
            }
        }
    }
    unknown.sort();
    unknown.dedup();
    anyhow::ensure!(unknown.is_empty(), "state names for {unknown:?}");
    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    anyhow::ensure!(
        look_ups >= LOOK_UPS,
        "only {look_ups} calls looked something up"
    );
    Ok(())
}
