//! Lists, watches and searches beside another tenant that has very much.
//!
//! `TAVERN_TEST_ROWS` sets the number of further runs, conversations and profiles of that tenant.

use anyhow::ensure;
use contracts::access::Role;
use serde_json::{Map, Value, json};
use testkit::{Stack, size};

use super::client::Client;
use super::matrix::{answer, filled, methods, path, things};

/// The beginnings of the names of methods that answer with more than was named.
const LISTS: [&str; 4] = ["List", "Watch", "Query", "Search"];

/// The least number of methods that show something to the tenant itself: fewer would mean that there is nothing to see.
const SHOWN: usize = 12;

/// Makes a run, a conversation and a profile.
async fn more(client: &Client, row: u64) -> anyhow::Result<()> {
    let name = format!("theirs-{row}");
    let start = json!({"workflowId": "theirs"});
    client.ok(super::START, &start).await?;
    let message = json!({"role": "CHAT_ROLE_USER", "text": name});
    let append = json!({"conversationId": name, "messages": [message]});
    let method = "tavern.agent.v1.ConversationService/AppendMessages";
    client.ok(method, &append).await?;
    let profile = json!({"id": name, "name": name, "version": "1.0.0", "schema_version": "1.0",
        "description": "One."});
    let put = json!({"profileJson": profile.to_string()});
    client
        .ok("tavern.agent.v1.ProfileService/PutProfile", &put)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s601_lists_watches_and_searches_show_nothing_of_another_tenant() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    for tenant in ["acme", "other"] {
        stack.create_tenant(tenant, 1, Vec::new()).await?;
    }
    let bob = Client::new(&stack, "acme", "bob", Role::Admin).await?;
    let eve = Client::new(&stack, "other", "eve", Role::Admin).await?;
    let names = things(&stack, &bob).await?;
    for row in 0..size("TAVERN_TEST_ROWS", 20)? {
        more(&bob, row).await?;
    }
    let (mut wrong, mut shown) = (Vec::new(), 0);
    for (method, _) in methods()? {
        if !LISTS.iter().any(|list| method.name().starts_with(list)) {
            continue;
        }
        let fields: Map<String, Value> = method
            .input()
            .fields()
            .filter_map(|field| filled(&field))
            .collect();
        let request = Value::Object(fields);
        let own = answer(&bob, &method, &request).await?;
        shown += usize::from(names.are_in(&own.body));
        let foreign = answer(&eve, &method, &request).await?;
        if names.are_in(&foreign.body) {
            wrong.push(format!("{}: {}", path(&method), foreign.body));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(shown >= SHOWN, "only {shown} methods show something");
    Ok(())
}
