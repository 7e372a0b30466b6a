//! Three tenants that use the same names and ids at the same time, each against a model of its own.
//!
//! `TAVERN_TEST_OPERATIONS` sets the number of operations of all of them, and `TAVERN_TEST_SEED` repeats a sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use contracts::access::Role;
use serde_json::{Value, json};
use testkit::{Stack, eventually, size};

use super::client::{Answer, Client};

const TENANTS: [&str; 3] = ["acme", "beta", "core"];

/// The names that all tenants use for their documents and conversations.
const NAMES: usize = 5;

/// The most runs that a tenant keeps, and the ids of requests and effects that are in use at a time.
const KEPT: usize = 20;

/// A kind of document, with the names of its methods and fields.
struct Kind {
    service: &'static str,
    /// The end of the names of its methods.
    noun: &'static str,
    /// The field of its id in requests and answers.
    id: &'static str,
    /// The field of its text in the request that stores it.
    text: &'static str,
    /// The field of the document in answers, and of documents in lists.
    field: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind {
        service: "tavern.workflow.v1.WorkflowService",
        noun: "Workflow",
        id: "workflowId",
        text: "definitionJson",
        field: "workflow",
    },
    Kind {
        service: "tavern.registry.v1.ToolRegistryService",
        noun: "Tool",
        id: "toolId",
        text: "definitionJson",
        field: "tool",
    },
    Kind {
        service: "tavern.agent.v1.ProfileService",
        noun: "Profile",
        id: "profileId",
        text: "profileJson",
        field: "profile",
    },
    Kind {
        service: "tavern.agent.v1.KnowledgeService",
        noun: "KnowledgeBase",
        id: "kbId",
        text: "knowledgeJson",
        field: "knowledgeBase",
    },
    Kind {
        service: "tavern.agent.v1.ProjectService",
        noun: "Project",
        id: "projectId",
        text: "projectJson",
        field: "project",
    },
];

impl Kind {
    fn method(&self, verb: &str) -> String {
        let plural = if verb == "List" { "s" } else { "" };
        format!("{}/{verb}{}{plural}", self.service, self.noun)
    }

    /// Returns a document under a name, whose text has the mark.
    fn document(&self, name: &str, mark: &str) -> Value {
        let parameters = json!({"type": "object", "properties": {}});
        match self.noun {
            "Workflow" => {
                json!({"name": mark, "nodes": [{"id": "r", "type": "core:RandomNumber"}], "edges": []})
            }
            "Tool" => {
                json!({"id": name, "displayName": mark, "description": "Rolls.", "parameters": parameters,
                "implementation": {"type": "node", "nodeType": "core:RandomNumber"}})
            }
            "KnowledgeBase" => {
                json!({"kb_id": name, "kb_version": "1.0.0", "schema_version": "1.0",
                "kb_displayName": mark, "kb_description": "Known.", "entries": [{"id": "e", "entry_type": "lore",
                "content": {"mime_type": "text/plain", "value": mark}}]})
            }
            "Project" => json!({"project_id": name, "id": name, "name": mark, "version": "1.0.0",
                "schema_version": "1.0", "description": "One."}),
            _ => json!({"id": name, "name": mark, "version": "1.0.0", "schema_version": "1.0",
                "description": "One."}),
        }
    }
}

/// A tenant as it should be.
struct Model {
    tenant: usize,
    client: Client,
    random: fastrand::Rng,
    operations: usize,
    /// The documents as their changes were answered, by kind and name.
    documents: BTreeMap<(usize, String), Value>,
    /// The runs that are kept, by id.
    runs: BTreeSet<String>,
    /// The runs that request ids began.
    requests: BTreeMap<String, String>,
    /// The results of calls, by effect id.
    calls: BTreeMap<String, Value>,
    conversations: BTreeMap<String, Vec<String>>,
    /// A run of each tenant, which the others try to read.
    latest: Arc<Mutex<[Option<String>; TENANTS.len()]>>,
}

/// Requires an answer to be that of something that does not exist.
fn missing(answer: &Answer) -> anyhow::Result<()> {
    ensure!(answer.body.contains("NOT_FOUND"), "{answer:?}");
    Ok(())
}

/// Reads the JSON of an answer that succeeded.
fn read(answer: &Answer) -> anyhow::Result<Value> {
    ensure!(answer.status == 200, "{answer:?}");
    serde_json::from_str(&answer.body).with_context(|| answer.body.clone())
}

/// Returns a text of a field.
fn text(value: &Value, field: &str) -> anyhow::Result<String> {
    let text = value[field].as_str().map(str::to_owned);
    text.with_context(|| format!("{field} in {value}"))
}

impl Model {
    async fn step(&mut self) -> anyhow::Result<()> {
        self.operations += 1;
        match self.random.u8(..100) {
            0..10 => self.put().await,
            10..30 => self.get().await,
            30..37 => self.delete().await,
            37..42 => self.list().await,
            42..54 => self.start().await,
            54..60 => self.find_run().await,
            60..63 => self.list_runs().await,
            63..70 => self.call().await,
            70..80 => self.find_call().await,
            80..88 => self.append().await,
            88..96 => self.messages().await,
            96..98 => self.delete_conversation().await,
            _ => self.others_run().await,
        }
    }

    fn name(&mut self) -> String {
        format!("it{}", self.random.usize(..NAMES))
    }

    /// Returns an id that all tenants use at about this time.
    fn id(&mut self) -> String {
        let newest = self.operations / 16;
        let back = self.random.usize(..KEPT);
        format!("id-{}", newest.saturating_sub(back))
    }

    fn kind(&mut self) -> (usize, &'static Kind) {
        let kind = self.random.usize(..KINDS.len());
        (kind, &KINDS[kind])
    }

    async fn put(&mut self) -> anyhow::Result<()> {
        let (index, kind) = self.kind();
        let name = self.name();
        let mark = format!("{} {}", TENANTS[self.tenant], self.operations);
        let mut request = json!({kind.text: kind.document(&name, &mark).to_string()});
        if kind.noun == "Workflow" {
            request[kind.id] = name.clone().into();
        }
        let answer = self.client.call(&kind.method("Put"), &request).await?;
        ensure!(answer.body.contains(&mark), "{answer:?}");
        let stored = read(&answer)?[kind.field].take();
        self.documents.insert((index, name), stored);
        Ok(())
    }

    async fn get(&mut self) -> anyhow::Result<()> {
        let (index, kind) = self.kind();
        let name = self.name();
        let of_base = kind.noun == "KnowledgeBase";
        let method = match of_base {
            true => "tavern.agent.v1.KnowledgeService/ListKnowledgeEntries".to_owned(),
            false => kind.method("Get"),
        };
        let answer = self.client.call(&method, &json!({kind.id: name})).await?;
        let Some(stored) = self.documents.get(&(index, name)) else {
            return missing(&answer);
        };
        if of_base {
            let mark = text(stored, "name")?;
            ensure!(answer.body.contains(&mark), "{stored}: {answer:?}");
            return Ok(());
        }
        let found = &read(&answer)?[kind.field];
        ensure!(found == stored, "{found} instead of {stored}");
        Ok(())
    }

    async fn delete(&mut self) -> anyhow::Result<()> {
        let (index, kind) = self.kind();
        let name = self.name();
        let request = json!({kind.id: name});
        let answer = self.client.call(&kind.method("Delete"), &request).await?;
        match self.documents.remove(&(index, name)) {
            Some(_) => read(&answer).map(drop),
            None => missing(&answer),
        }
    }

    async fn list(&mut self) -> anyhow::Result<()> {
        let (index, kind) = self.kind();
        let field = format!("{}s", kind.field);
        let listed = self
            .client
            .list(&kind.method("List"), json!({}), &field)
            .await?;
        let identity = |document: &Value| (document[kind.id].clone(), document["etag"].clone());
        // Tools of the deployment and of all tenants are there too.
        let listed = listed.iter().map(identity);
        let listed: Vec<_> = listed
            .filter(|(id, _)| id.as_str().is_some_and(|id| id.starts_with("it")))
            .collect();
        let stored = self.documents.iter();
        let stored: Vec<_> = stored
            .filter(|((of, _), _)| *of == index)
            .map(|(_, document)| identity(document))
            .collect();
        ensure!(listed == stored, "{listed:?} instead of {stored:?}");
        Ok(())
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        let id = self.id();
        let request = json!({"requestId": id, "workflowId": "once"});
        let method = "tavern.workflow.v1.WorkflowService/StartRun";
        let answer = self.client.call(method, &request).await?;
        if self
            .requests
            .get(&id)
            .is_some_and(|run| !self.runs.contains(run))
        {
            ensure!(answer.body.contains("REQUEST_ID_REUSED"), "{answer:?}");
            return Ok(());
        }
        let started = read(&answer)?;
        let run = text(&started["run"], "runId")?;
        let is_replayed = started["replayed"] == true;
        match self.requests.get(&id) {
            Some(of_id) => ensure!(is_replayed && run == *of_id, "{started} instead of {of_id}"),
            None => {
                ensure!(!is_replayed, "{started} was not requested before");
                self.latest.lock().expect("no test panics with it")[self.tenant] =
                    Some(run.clone());
                self.requests.insert(id, run.clone());
                self.runs.insert(run);
            }
        }
        self.keep_few_runs().await
    }

    async fn keep_few_runs(&mut self) -> anyhow::Result<()> {
        while self.runs.len() > KEPT {
            let run = self.random.usize(..self.runs.len());
            let run = self.runs.iter().nth(run).cloned().context("it is kept")?;
            self.runs.remove(&run);
            let (client, request) = (&self.client, json!({"runId": run}));
            eventually("the run has ended, and is deleted", || async {
                let method = "tavern.run.v1.RunService/DeleteRun";
                client.ok(method, &request).await.ok()
            })
            .await?;
        }
        Ok(())
    }

    async fn find_run(&mut self) -> anyhow::Result<()> {
        let id = self.id();
        let Some(run) = self.requests.get(&id).cloned() else {
            return Ok(());
        };
        let method = "tavern.run.v1.RunService/GetRun";
        let answer = self.client.call(method, &json!({"runId": run})).await?;
        match self.runs.contains(&run) {
            true => read(&answer).map(drop),
            false => missing(&answer),
        }
    }

    async fn others_run(&mut self) -> anyhow::Result<()> {
        let other = (self.tenant + 1) % TENANTS.len();
        let run = self.latest.lock().expect("no test panics with it")[other].clone();
        let Some(run) = run else {
            return Ok(());
        };
        for method in ["GetRun", "CancelRun", "DeleteRun"] {
            let method = format!("tavern.run.v1.RunService/{method}");
            missing(&self.client.call(&method, &json!({"runId": run})).await?)?;
        }
        Ok(())
    }

    async fn list_runs(&mut self) -> anyhow::Result<()> {
        let method = "tavern.run.v1.RunService/ListRuns";
        let listed = self
            .client
            .list(method, json!({"subject": "once"}), "runs")
            .await?;
        let listed: BTreeSet<_> = listed
            .iter()
            .map(|run| text(run, "runId"))
            .collect::<anyhow::Result<_>>()?;
        ensure!(listed == self.runs, "{listed:?} instead of {:?}", self.runs);
        Ok(())
    }

    async fn call(&mut self) -> anyhow::Result<()> {
        let effect = self.id();
        let request = json!({"toolId": "roll", "argumentsJson": "{}", "effectId": effect});
        let method = "tavern.registry.v1.CallService/StartCall";
        self.client.ok(method, &request).await?;
        let result = self.result(&effect).await?;
        let before = self.calls.entry(effect).or_insert_with(|| result.clone());
        ensure!(result == *before, "{result} instead of {before}");
        Ok(())
    }

    /// Waits until a call has ended, and returns its result.
    async fn result(&self, effect: &str) -> anyhow::Result<Value> {
        let request = json!({"effectId": effect});
        eventually("the call ends", || async {
            let method = "tavern.registry.v1.CallService/GetCall";
            let mut found = self.client.ok(method, &request).await.ok()?;
            let result = found["call"]["result"].take();
            (!result.is_null()).then_some(result)
        })
        .await
    }

    async fn find_call(&mut self) -> anyhow::Result<()> {
        let effect = self.id();
        let method = "tavern.registry.v1.CallService/GetCall";
        let request = json!({"effectId": effect});
        let answer = self.client.call(method, &request).await?;
        let Some(result) = self.calls.get(&effect) else {
            return missing(&answer);
        };
        let found = &read(&answer)?["call"]["result"];
        ensure!(found == result, "{found} instead of {result}");
        Ok(())
    }

    async fn append(&mut self) -> anyhow::Result<()> {
        let name = self.name();
        let said = format!("{} {}", TENANTS[self.tenant], self.operations);
        let message = json!({"role": "CHAT_ROLE_USER", "text": said});
        let said_before = self.conversations.get(&name).map_or(0, Vec::len);
        let request =
            json!({"conversationId": name, "messages": [message], "expectedRevision": said_before});
        let method = "tavern.agent.v1.ConversationService/AppendMessages";
        self.client.ok(method, &request).await?;
        self.conversations.entry(name).or_default().push(said);
        Ok(())
    }

    async fn messages(&mut self) -> anyhow::Result<()> {
        let name = self.name();
        let method = "tavern.agent.v1.ConversationService/ListMessages";
        let request = json!({"conversationId": name, "pageSize": 1_000});
        let answer = self.client.call(method, &request).await?;
        let Some(said) = self.conversations.get(&name) else {
            return missing(&answer);
        };
        let found = read(&answer)?;
        let found = found["messages"].as_array().context("messages")?;
        let found: Vec<_> = found
            .iter()
            .map(|message| message["text"].as_str().unwrap_or_default())
            .collect();
        ensure!(found == *said, "{found:?} instead of {said:?}");
        Ok(())
    }

    async fn delete_conversation(&mut self) -> anyhow::Result<()> {
        let name = self.name();
        let method = "tavern.agent.v1.ConversationService/DeleteConversation";
        let request = json!({"conversationId": name});
        let answer = self.client.call(method, &request).await?;
        match self.conversations.remove(&name) {
            Some(_) => read(&answer).map(drop),
            None => missing(&answer),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_equal_names_and_ids_have_each_what_it_made() -> anyhow::Result<()> {
    let operations = size("TAVERN_TEST_OPERATIONS", 3_000)? / TENANTS.len() as u64;
    let seed = size("TAVERN_TEST_SEED", fastrand::u64(..))?;
    let stack = Stack::builder().with_keys().start().await?;
    let latest = Arc::default();
    let mut running = tokio::task::JoinSet::new();
    for (tenant, name) in TENANTS.into_iter().enumerate() {
        stack.create_tenant(name, 1, Vec::new()).await?;
        let client = Client::new(&stack, name, "bob", Role::Admin).await?;
        let [workflow, tool, ..] = &KINDS;
        let once = workflow.document("once", "Once").to_string();
        let put = json!({"workflowId": "once", "definitionJson": once});
        client.ok(&workflow.method("Put"), &put).await?;
        let roll = tool.document("roll", "Roll").to_string();
        let put = json!({"definitionJson": roll});
        client.ok(&tool.method("Put"), &put).await?;
        let mut model = Model {
            tenant,
            client,
            random: fastrand::Rng::with_seed(seed + tenant as u64),
            operations: 0,
            documents: BTreeMap::new(),
            runs: BTreeSet::new(),
            requests: BTreeMap::new(),
            calls: BTreeMap::new(),
            conversations: BTreeMap::new(),
            latest: Arc::clone(&latest),
        };
        running.spawn(async move {
            for operation in 0..operations {
                let step = model.step().await;
                step.with_context(|| format!("{name}, operation {operation} of seed {seed}"))?;
            }
            anyhow::Ok(model)
        });
    }
    let models: Vec<Model> = running
        .join_all()
        .await
        .into_iter()
        .collect::<Result<_, _>>()?;
    let results = models.iter().flat_map(|model| &model.calls);
    let mut of_effects = BTreeMap::<&String, Vec<&Value>>::new();
    for (effect, result) in results {
        of_effects.entry(effect).or_default().push(result);
    }
    let in_all = of_effects
        .values()
        .filter(|results| results.len() == TENANTS.len());
    ensure!(in_all.count() > 0, "no effect id was used by all tenants");
    Ok(())
}
