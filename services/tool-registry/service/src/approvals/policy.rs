//! The file with the rules and the people who decide.

use std::{collections::BTreeSet, path::Path};

use approval_rules::{RuleFile, Rules, read_rules};
use core_types::{LoadDiagnostic, Reference, ReferenceKind};
use serde::Deserialize;
use settings::text_file;
use sha2::{Digest, Sha256};
use tool_domain::{
    catalogue::{Catalogue, Reading},
    naming::DERIVED_PREFIXES,
};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Rules, and the people who decide.
#[derive(Debug, Default)]
pub struct Policy {
    /// The rules.
    pub rules: Rules,
    approvers: Vec<Approver>,
}

/// A person who decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approver {
    /// The name that is recorded.
    pub name: String,
    /// The roles in which the person may decide.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The SHA-256 of the person's key in hexadecimal digits. The key has at least 128 bits of
    /// randomness, so no slower digest is needed.
    key_sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    rules: Vec<RuleFile>,
    #[serde(default)]
    approvers: Vec<Approver>,
}

/// The reason for which the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("the approvals file {path} cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// It is wrong.
    #[error("the approvals file {path} is wrong: {}", .problems.join("; "))]
    Wrong {
        /// The file.
        path: String,
        /// All problems, each with its place.
        problems: Vec<String>,
    },
}

impl Policy {
    /// Reads the file; an empty path stands for one without rules and approvers.
    ///
    /// # Errors
    /// [`PolicyError`] names all problems.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        if path.as_os_str().is_empty() {
            return Ok(Self::default());
        }
        let shown = path.display().to_string();
        let unreadable = |source| PolicyError::Unreadable {
            path: shown.clone(),
            source,
        };
        let text = text_file::read(path, MAX_BYTES).map_err(unreadable)?;
        Self::read(&text).map_err(|problems| PolicyError::Wrong {
            path: shown,
            problems,
        })
    }

    /// Returns a finding for each tool that a rule names and that is neither in the catalogue nor may come with
    /// a workflow, a node or an agent: a rule for another name than that of the tool lets its calls pass.
    pub fn findings(&self, catalogue: &Catalogue) -> Vec<LoadDiagnostic> {
        let is_missing = |tool: &str| match catalogue.read(tool) {
            Reading::Tool(_) => false,
            Reading::Derived(name) => !DERIVED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix)),
        };
        let named = self.rules.named_tools();
        let missing = named.filter(|(_, tool)| is_missing(tool));
        missing
            .map(|(rule, tool)| Reference::new(rule, ReferenceKind::Tool, tool).missing())
            .take(LoadDiagnostic::MAX)
            .collect()
    }

    fn read(text: &str) -> Result<Self, Vec<String>> {
        let file: PolicyFile =
            serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut problems = check_approvers(&file.approvers);
        let rules = read_rules(file.rules).unwrap_or_else(|found| {
            problems.extend(found.iter().map(ToString::to_string));
            Rules::default()
        });
        for (rule, role, count) in rules.roles() {
            let able = file.approvers.iter().filter(|approver| approver.has(role));
            if !file.approvers.is_empty() && able.count() < count as usize {
                problems.push(format!(
                    "rule '{rule}' needs {count} approvers with the role '{role}', and there are fewer"
                ));
            }
        }
        if file.approvers.is_empty() && rules.roles().next().is_some() {
            tracing::warn!(
                "rules ask for approvals, but no approvers are configured: such calls are refused"
            );
        }
        match problems.is_empty() {
            true => Ok(Self {
                rules,
                approvers: file.approvers,
            }),
            false => Err(problems),
        }
    }

    /// Whether the file names approvers.
    pub fn has_approvers(&self) -> bool {
        !self.approvers.is_empty()
    }

    /// Returns the approver who has the key.
    pub fn approver(&self, key: &str) -> Option<&Approver> {
        // Digests are compared, so the time that it takes says nothing about a key.
        let digest = hex::encode(Sha256::digest(key.as_bytes()));
        self.approvers
            .iter()
            .find(|approver| approver.key_sha256.eq_ignore_ascii_case(&digest))
    }

    /// Whether there are enough people who could approve something.
    pub fn could_decide(&self, role: &str, count: u32) -> bool {
        let able = self.approvers.iter().filter(|approver| approver.has(role));
        able.count() >= count as usize
    }
}

impl Approver {
    fn has(&self, role: &str) -> bool {
        role.is_empty() || self.roles.iter().any(|own| own == role)
    }
}

fn check_approvers(approvers: &[Approver]) -> Vec<String> {
    let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
    let mut problems = Vec::new();
    for (place, approver) in approvers.iter().enumerate() {
        let mut add = |problem: &str| problems.push(format!("approvers[{place}].{problem}"));
        if approver.name.is_empty() || approver.name.len() > 128 {
            add("name: is empty or has more than 128 bytes");
        }
        if !names.insert(&approver.name) {
            add("name: is used by an approver above");
        }
        let is_digest = hex::decode(&approver.key_sha256).is_ok_and(|bytes| bytes.len() == 32);
        if !is_digest {
            add(
                "key_sha256: is not a SHA-256 in 64 hexadecimal digits; `tavern approvals key` makes one",
            );
        }
        if !keys.insert(approver.key_sha256.to_ascii_lowercase()) {
            add("key_sha256: is used by an approver above");
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key_of(key: &str) -> String {
        hex::encode(Sha256::digest(key))
    }

    #[test]
    fn an_approver_is_known_by_the_key() {
        let file = json!({
            "rules": [{"id": "r", "action": "ask", "approvers": {"role": "keeper"}}],
            "approvers": [{"name": "mara", "roles": ["keeper"], "key_sha256": key_of("k")}]
        });
        let policy = Policy::read(&file.to_string()).unwrap();
        assert_eq!(policy.approver("k").unwrap().name, "mara");
        assert!(policy.approver("other").is_none());
        assert!(
            policy.approver(&key_of("k")).is_none(),
            "the digest is not a key"
        );
        assert!(policy.could_decide("keeper", 1) && policy.could_decide("", 1));
        assert!(!policy.could_decide("keeper", 2) && !policy.could_decide("other", 1));
    }

    #[test]
    fn a_file_is_read_as_each_editor_writes_it() {
        let rule = json!({"rules": [{"id": "r", "action": "deny"}]}).to_string();
        let utf_16 = format!("\u{FEFF}{rule}");
        let utf_16 = utf_16.encode_utf16().flat_map(u16::to_le_bytes);
        for bytes in [
            rule.clone().into_bytes(),
            format!("\u{FEFF}{rule}").into_bytes(),
            utf_16.collect(),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            Policy::load(file.path()).unwrap();
        }
    }

    #[test]
    fn a_rule_for_a_tool_that_is_not_there_is_remarked_on() {
        let named = [
            "no_tool",
            "workflow:later",
            "workflows/later.json",
            "agent:later",
            "node:core:Later",
            "no_*",
        ];
        let file = json!({"rules": [{"id": "r", "action": "deny", "tools": named}]});
        let policy = Policy::read(&file.to_string()).unwrap();
        let found = policy.findings(&Catalogue::default());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["r: there is no tool `no_tool` now; add it, or take it out"]
        );
    }

    #[test]
    fn every_problem_of_the_file_is_named() {
        let file = json!({
            "rules": [
                {"id": "", "action": "ask"},
            ],
            "approvers": [
                {"name": "mara", "key_sha256": "abc"},
                {"name": "mara", "key_sha256": key_of("k")}
            ]
        });
        let problems = Policy::read(&file.to_string()).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        let file = json!({
            "rules": [{"id": "two", "action": "ask", "approvers": {"role": "keeper", "count": 2}}],
            "approvers": [{"name": "mara", "roles": ["keeper"], "key_sha256": key_of("k")}]
        });
        let problems = Policy::read(&file.to_string()).unwrap_err();
        assert!(problems[0].contains("needs 2 approvers"), "{problems:?}");
        assert!(Policy::read("{\"other\": 1}").is_err());
    }
}
