//! SQL about tables of tenants names the tenant.

use std::collections::BTreeSet;

use crate::rust_text::literals;
use crate::{Finding, Tree};

const REMEDY: &str =
    "add `tenant = ?` to the statement, or its reason to the list in tests/tidy/src/tenants.rs";

/// A statement that may leave the tenant out: its file, the beginning of its text, and the reason.
type Exception = (&'static str, &'static str, &'static str);

/// The reason of statements about one run, whose key was looked up with its owner before.
const BY_KEY: &str = "a step of one run by its key in the file, which no client can name";

/// The reason of texts to which the owners of a reader are added.
const OWNERS: &str = "`push_owners` adds the tenant for every reader but the service itself";

/// The reason of what a service reads when it starts.
const START: &str = "the service reads the rows of all tenants when it starts";

/// The reason of texts to which a condition is added.
const CONDITION: &str = "the text that is added to it names the tenant";

/// The reason of statements that move or index the data of an installation.
const MOVED: &str = "an operator moves the data of all tenants";

const EXCEPTIONS: [Exception; 39] = [
    (
        "shared/run-log/src/sqlite.rs",
        "SELECT coalesce(max(key), 0) + 1 FROM runs",
        "the next key of the file",
    ),
    (
        "shared/run-log/src/sqlite/batch.rs",
        "SELECT EXISTS (SELECT 1 FROM runs WHERE key = ?",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch.rs",
        "UPDATE runs SET deleted = TRUE",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch.rs",
        "DELETE FROM runs WHERE key = ? AND hidden",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch.rs",
        "UPDATE runs SET hidden = FALSE",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch.rs",
        "DELETE FROM runs WHERE key = ? AND state",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch/runs.rs",
        "WITH given (key, phase",
        BY_KEY,
    ),
    (
        "shared/run-log/src/sqlite/batch/runs.rs",
        "WITH given (key, state",
        BY_KEY,
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT key, id, principal, kind",
        OWNERS,
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT key, id, end_sequence FROM runs WHERE hidden",
        "deletions that a process did not finish",
    ),
    (
        "shared/run-log/src/rows.rs",
        " WHERE run = (SELECT key FROM runs",
        "the run was looked up with its owner before",
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT EXISTS (SELECT 1 FROM runs WHERE forks",
        "retention; ids of runs are unique over tenants",
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT due FROM runs",
        "the time of the first run that is due, of any tenant",
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT state IS NOT NULL FROM runs",
        BY_KEY,
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT state IS NOT NULL AS ended, run",
        BY_KEY,
    ),
    (
        "shared/run-log/src/rows.rs",
        "SELECT tenant, count(*) FROM runs",
        "`GROUP BY tenant` is added to it",
    ),
    (
        "shared/run-log/src/maintenance.rs",
        "DELETE FROM runs WHERE key IN",
        CONDITION,
    ),
    (
        "shared/run-log/src/postgres.rs",
        "UPDATE runs SET holder = NULL WHERE key IN",
        "the runs of processes that are gone, of all tenants",
    ),
    (
        "shared/run-log/src/postgres/batch.rs",
        "SELECT run FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS head",
        BY_KEY,
    ),
    (
        "shared/run-log/src/postgres/batch.rs",
        "SELECT key, holder IS NOT DISTINCT FROM",
        BY_KEY,
    ),
    (
        "shared/run-log/src/postgres/batch.rs",
        "deleted AS (DELETE FROM runs",
        BY_KEY,
    ),
    (
        "shared/run-log/src/postgres/batch.rs",
        "emptied AS (DELETE FROM events",
        BY_KEY,
    ),
    (
        "shared/documents/src/database/requests.rs",
        "DELETE FROM request WHERE created",
        "request ids are forgotten by age",
    ),
    (
        "services/workflow-execution/service/src/store/definitions.rs",
        "SELECT tenant, hash FROM definitions",
        "the texts that no run of any tenant executes are forgotten",
    ),
    (
        "services/workflow-execution/service/src/store/schedules.rs",
        "SELECT definition",
        CONDITION,
    ),
    (
        "services/workflow-execution/service/src/store/results.rs",
        "SELECT key, CAST(octet_length(outputs)",
        START,
    ),
    (
        "services/workflow-execution/service/src/store/results.rs",
        "SELECT node, key, parts, kept, tenant FROM last_results",
        START,
    ),
    (
        "services/agent-runtime/store/src/store/questions.rs",
        "SELECT tenant, run_id, conversation_id",
        START,
    ),
    (
        "services/agent-runtime/store/src/store/knowledge.rs",
        "SELECT tenant, kb_id FROM knowledge_bases",
        START,
    ),
    (
        "services/agent-runtime/store/src/store/knowledge.rs",
        "SELECT entry, tenant, display_name, text, tags FROM knowledge_entries",
        MOVED,
    ),
    (
        "shared/run-log/src/transfer.rs",
        "SELECT coalesce(max(key), 0) + 1 FROM runs",
        MOVED,
    ),
    (
        "shared/run-log/src/transfer.rs",
        "SELECT id FROM runs WHERE id IN (",
        MOVED,
    ),
    (
        "shared/data-home/src/transfer.rs",
        "SELECT kind FROM (SELECT kind FROM document",
        MOVED,
    ),
    (
        "services/tool-registry/service/src/store/approvals.rs",
        "SELECT document_json, call_json FROM approvals",
        CONDITION,
    ),
    (
        "services/tool-registry/service/src/store/identities.rs",
        "SELECT account_json FROM principal ORDER BY tenant",
        START,
    ),
    (
        "services/tool-registry/service/src/store/identities.rs",
        "SELECT token_json FROM issued_principal",
        START,
    ),
    (
        "services/tool-registry/service/src/store/identities.rs",
        "SELECT tenant, name, since FROM blocked_principal",
        START,
    ),
    (
        "services/tool-registry/service/src/store/tenants.rs",
        "SELECT tenant, quantity, amount FROM tenant_usage",
        START,
    ),
    (
        "services/tool-registry/service/src/store/tenants.rs",
        "DELETE FROM tenant_usage WHERE day",
        "the amounts of past days are forgotten",
    ),
];

/// Refuses a text in SQL that names a table with a column `tenant` and not the tenant, and an exception that no text
/// needs.
pub fn in_statements(tree: &Tree) -> Vec<Finding> {
    let tables = tables_of_tenants(tree);
    let (mut findings, mut used) = (Vec::new(), BTreeSet::new());
    for (path, text) in tree.texts(&[".rs"]) {
        let of_tests =
            path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs");
        if of_tests {
            continue;
        }
        for (line, literal) in literals(text) {
            let Some(table) = table_of(&literal, &tables) else {
                continue;
            };
            if has_tenant(&literal) {
                continue;
            }
            let allowed = EXCEPTIONS
                .iter()
                .position(|(file, beginning, _)| *file == path && literal.starts_with(beginning));
            // Each exception is one statement, so that none that is added begins like it.
            if allowed.is_some_and(|allowed| used.insert(allowed)) {
                continue;
            }
            let problem =
                format!("the statement names `{table}` and not the tenant: {literal:.60}");
            findings.push(Finding::new(path, problem, REMEDY).at_line(line));
        }
    }
    for (place, (file, beginning, _)) in EXCEPTIONS.iter().enumerate() {
        if tree.has(file) && !used.contains(&place) {
            let problem = format!("no statement begins with `{beginning}`");
            findings.push(Finding::new(*file, problem, "remove the exception"));
        }
    }
    findings
}

/// Whether a statement compares its rows by tenant, or stores them with it: the mere word, as in a list of selected
/// columns, is not enough.
fn has_tenant(literal: &str) -> bool {
    let compact = literal.split_whitespace().collect::<Vec<_>>().join(" ");
    let (head, conditions) = match compact.split_once(" WHERE ") {
        Some((head, conditions)) => (head, conditions),
        None => (compact.as_str(), ""),
    };
    let is_stored = head.contains("INSERT INTO") || head.contains("REPLACE INTO");
    let is_compared = [
        "tenant =",
        "tenant, ",
        "tenant) ",
        "tenant IN ",
        "GROUP BY tenant",
    ];
    is_stored && head.contains("tenant")
        || is_compared.iter().any(|form| conditions.contains(form))
        || head.contains("tenant =")
}

/// Returns the table of tenants that a text in SQL names.
fn table_of<'a>(literal: &str, tables: &'a BTreeSet<String>) -> Option<&'a str> {
    let words: Vec<&str> = literal.split_whitespace().collect();
    let named = words
        .windows(2)
        .filter(|pair| ["FROM", "INTO", "UPDATE", "JOIN"].contains(&pair[0]));
    let name = |word: &str| {
        word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_')
            .to_owned()
    };
    let mut named = named.map(|pair| name(pair[1]));
    named.find_map(|name| tables.get(&name)).map(String::as_str)
}

/// Returns the tables that have a column `tenant` after the migrations.
fn tables_of_tenants(tree: &Tree) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for (path, text) in tree.texts(&[".sql"]) {
        if !path.contains("/migrations/") {
            continue;
        }
        for (at, _) in text.match_indices("CREATE TABLE ") {
            let (name, rest) = text[at + 13..].split_once(' ').unwrap_or_default();
            let body = rest.split("\n)").next().unwrap_or_default();
            let mut columns = body.lines().map(|line| line.split_whitespace().next());
            if columns.any(|column| column == Some("tenant")) {
                tables.insert(name.to_owned());
            }
        }
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["ALTER", "TABLE", from, "RENAME", "TO", to] = words[..]
                && tables.remove(from)
            {
                tables.insert(to.trim_end_matches(';').to_owned());
            }
        }
    }
    tables
}
