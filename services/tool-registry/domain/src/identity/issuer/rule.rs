//! The tenant and the roles that claims give.

use core_types::Tenant;
use serde_json::{Map, Value};

use crate::identity::issued::IssuedRights;

/// A claim whose words are separated by blanks, as OAuth writes it.
const SCOPE: &str = "scope";

/// The rights that a value of a claim gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name of the claim, or its place below other ones with a dot between each two.
    pub claim: String,
    /// The value that the claim is or has among its values.
    pub value: String,
    /// The tenant.
    pub tenant: Tenant,
    /// The names of the roles in the tenant.
    pub roles: Vec<String>,
    /// The groups.
    pub groups: Vec<String>,
}

/// Returns the rights that rules give: the tenant of the first one that matches, and the roles and groups of all that
/// match and have this tenant; `None` where none matches.
pub(super) fn map(rules: &[Rule], claims: &Map<String, Value>) -> Option<IssuedRights> {
    let matching = || rules.iter().filter(|rule| rule.matches(claims));
    let tenant = matching().next()?.tenant;
    let mut mapped = IssuedRights {
        tenant,
        roles: Vec::new(),
        groups: Vec::new(),
    };
    for rule in matching().filter(|rule| rule.tenant == tenant) {
        add(&mut mapped.roles, &rule.roles);
        add(&mut mapped.groups, &rule.groups);
    }
    Some(mapped)
}

impl Rule {
    fn matches(&self, claims: &Map<String, Value>) -> bool {
        let Some(found) = claim(claims, &self.claim) else {
            return false;
        };
        match found {
            Value::Array(several) => several.iter().any(|value| self.is_value(value)),
            Value::String(words) if self.claim == SCOPE => {
                words.split(' ').any(|word| word == self.value)
            }
            one => self.is_value(one),
        }
    }

    fn is_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => *text == self.value,
            Value::Bool(flag) => self.value.parse() == Ok(*flag),
            Value::Number(number) => number.as_str() == self.value,
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        }
    }
}

/// Returns a claim by its name, which may have dots, or by its place below other ones.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let (first, below) = name.split_once('.')?;
    claim(claims.get(first)?.as_object()?, below)
}

fn add(all: &mut Vec<String>, more: &[String]) {
    for value in more {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
}
