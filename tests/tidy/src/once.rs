//! Code that is written once, and its place.

use crate::{Finding, Tree};

/// One thing of which a second copy is a fault.
struct Once {
    /// The text by which a copy is known, in lower case.
    mark: &'static str,
    /// The beginnings of paths that may hold it.
    homes: &'static [&'static str],
    remedy: &'static str,
}

/// The migrations that may name request ids: the migration of the common table, earlier migrations
/// with tables of their own, which later ones drop, and tables whose rows are each created by one
/// request.
const REQUESTS: [&str; 13] = [
    "shared/documents/migrations/",
    "services/agent-runtime/store/migrations/sqlite/0001_agents.sql",
    "services/agent-runtime/store/migrations/sqlite/0002_append_requests.sql",
    "services/agent-runtime/store/migrations/sqlite/0010_private_states.sql",
    "services/agent-runtime/store/migrations/sqlite/0014_knowledge.sql",
    "services/agent-runtime/store/migrations/sqlite/0018_tenants.sql",
    "services/agent-runtime/store/migrations/postgres/0001_agents.sql",
    "services/tool-registry/service/migrations/sqlite/0001_registry.sql",
    "services/workflow-execution/service/migrations/sqlite/0001_workflows.sql",
    "services/workflow-execution/service/migrations/sqlite/0002_schedules.sql",
    "services/workflow-execution/service/migrations/sqlite/0006_tenants.sql",
    "services/workflow-execution/service/migrations/postgres/0001_workflows.sql",
    "shared/run-log/migrations/",
];

const ALL: [Once; 6] = [
    Once {
        mark: "request_id text",
        homes: &REQUESTS,
        remedy: "note request ids with `documents::database::requests::note`, in the transaction of the change",
    },
    Once {
        mark: "insert into document",
        homes: &[
            "shared/documents/src/",
            // Documents of earlier versions.
            "services/agent-runtime/store/migrations/sqlite/0017_documents.sql",
            "services/tool-registry/service/migrations/sqlite/0004_documents.sql",
            "services/workflow-execution/service/migrations/sqlite/0004_documents.sql",
        ],
        remedy: "make the texts a `documents::Kind`, and put them with `Documents::put`",
    },
    Once {
        mark: "delete from document",
        homes: &["shared/documents/src/"],
        remedy: "make the texts a `documents::Kind`, and delete them with `Documents::delete`",
    },
    Once {
        mark: "to_string().len()",
        homes: &[
            // These files have tests that compare sizes with texts.
            "shared/json-schema/src/text_size.rs",
            "services/workflow-execution/domain/src/size.rs",
            "services/agent-runtime/domain/src/observation.rs",
        ],
        remedy: "count with `json_schema::text_bytes`, which makes no text",
    },
    Once {
        mark: "turnevent::",
        homes: &[
            "services/agent-runtime/domain/src/",
            "services/agent-runtime/turn-log/src/journal.rs",
            // The end of the opening, which no event says.
            "services/agent-runtime/turn-log/src/state.rs",
        ],
        remedy: "fold the events of a turn with `turn_log::state::TurnState`, so that all owners fold the same",
    },
    Once {
        mark: "from document where",
        homes: &["shared/documents/src/"],
        remedy: "make the texts a `documents::Kind`, and list them with `Documents::list`",
    },
];

/// Refuses a second table of request ids, SQL on documents outside their store, texts made to be counted, and a
/// second fold of the log of a turn.
pub fn copies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs", ".sql"]) {
        let of_tests = path.starts_with("tests/") || path.contains("/tests/");
        if of_tests || path.ends_with("/tests.rs") {
            continue;
        }
        for once in &ALL {
            if once.homes.iter().any(|home| path.starts_with(home)) {
                continue;
            }
            for (index, line) in text.lines().enumerate() {
                let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                if line.to_lowercase().contains(once.mark) {
                    let problem = format!("`{}` stands here a second time", once.mark);
                    let finding = Finding::new(path, problem, once.remedy);
                    findings.push(finding.at_line(index + 1));
                }
            }
        }
    }
    findings
}
