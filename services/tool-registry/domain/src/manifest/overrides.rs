//! `services.override`: backends that stand in for services (rules R207 and R208).

use call_outcome::Violation;

use crate::{
    permissions::OVERRIDABLE_SERVICES,
    section::{Findings, Section},
};

/// The service that may fall back to the platform's own, as it holds no data.
const MAY_FALL_BACK: &str = "tool-search";

/// A backend that stands in for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The service, one of [`OVERRIDABLE_SERVICES`].
    pub service: String,
    /// The name of the backend that the operator registered.
    pub backend: String,
    /// The act when the backend cannot be reached.
    pub fallback: Fallback,
}

/// The act when a backend that stands in cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The call fails.
    Fail,
    /// The platform's own service answers.
    Builtin,
}

impl StandIn {
    /// Returns the gRPC service that the backend serves: `tavern.plugin.v1.ToolSearchService` for `tool-search`.
    pub fn contract(&self) -> String {
        let words = self.service.split('-').map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        });
        format!("tavern.plugin.v1.{}Service", words.collect::<String>())
    }
}

impl Fallback {
    /// Returns the word of manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Builtin => "builtin",
        }
    }
}

/// Reads `services.override`.
pub(super) fn read(root: &mut Section<'_>, findings: &mut Findings) -> Vec<StandIn> {
    let wanted = "a mapping with 'override'";
    let Some(mut services) = root.section("services", wanted, findings) else {
        return Vec::new();
    };
    let wanted = "a mapping of services, such as tool-search: {backend: <name>}";
    let overrides = services.section("override", wanted, findings);
    services.close(findings);
    let members = overrides.iter().flat_map(Section::members);
    let read = members.filter_map(|(service, place, value)| {
        if !OVERRIDABLE_SERVICES.contains(&service) {
            let message = format!(
                "the service '{service}' cannot be replaced; take one of {}",
                OVERRIDABLE_SERVICES.join(", ")
            );
            let violation = Violation::new(place, "not_in_enum", message);
            findings.add(violation.nearest(service, OVERRIDABLE_SERVICES));
            return None;
        }
        let wanted = "a mapping with 'backend'";
        let mut section = Section::of(value, &place, "each service", wanted, findings)?;
        let backend = section.required_text("backend", "alerts", findings);
        let fallback = section.word("fallback", &["fail", "builtin"], findings);
        let fallback = match fallback {
            Some("builtin") => Fallback::Builtin,
            _ => Fallback::Fail,
        };
        if fallback == Fallback::Builtin && service != MAY_FALL_BACK {
            let message = format!(
                "only {MAY_FALL_BACK} may fall back to the platform's own service: a store that falls back \
                 would split its data; write fallback: fail"
            );
            findings.wrong(section.place("fallback"), "not_in_enum", message);
        }
        section.close(findings);
        Some(StandIn {
            service: service.to_owned(),
            backend: backend?,
            fallback,
        })
    });
    read.collect()
}
