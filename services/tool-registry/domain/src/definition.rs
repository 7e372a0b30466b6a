//! The definition of a tool, in both forms of `*.tool.json`.
//!
//! The first form names its implementation (`id`, `implementation{type, ...}`), the second its
//! handler (`toolId`, `handler{type, ...}`); these keys decide on the form of a file. Both become
//! one [`Definition`], and all problems are reported at once.

mod fields;
mod implementation;
#[cfg(test)]
mod tests;

use approval_rules::EffectClass;
use call_outcome::Violation;
use std::{sync::Arc, time::Duration};

use core_types::{Reference, ReferenceKind, ToolId};
use serde_json::Value;

use super::{
    diagnostic::Diagnostic, naming, node_interface::NodeInterface, package::Package,
    program::Program,
};
use fields::Fields;

pub(crate) use implementation::time_limit;

/// The most bytes of a definition.
pub const MAX_DEFINITION_BYTES: usize = 64 << 10;
/// The deepest nesting of a definition.
pub const MAX_DEFINITION_DEPTH: usize = 32;
const MAX_DESCRIPTION_BYTES: usize = 8 << 10;
const MAX_DISPLAY_NAME_BYTES: usize = 256;
/// The most findings that are kept of one definition.
const MAX_DIAGNOSTICS: usize = 64;
/// Keys of the root that have an effect, or that are for people only.
const KNOWN_KEYS: [&str; 19] = [
    "$schema",
    "id",
    "toolId",
    "displayName",
    "description",
    "version",
    "author",
    "implementation",
    "handler",
    "parameters",
    "securityContext",
    "readOnly",
    "read_only",
    "idempotent",
    "destructive",
    "parallelSafe",
    "parallel_safe",
    "strict",
    "tags",
];
/// Keys of features that have no effect yet: schemas of results, and example calls.
const NOT_SUPPORTED: [&str; 7] = [
    "examples",
    "output",
    "outputs",
    "outputSchema",
    "output_schema",
    "returns",
    "responseSchema",
];

/// The effects that a tool declares. Without any declaration it has effects, repeating them
/// matters, and no other call may run alongside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It changes nothing.
    pub read_only: bool,
    /// Repeating a call has no further effect.
    pub idempotent: bool,
    /// It destroys data that cannot be restored.
    pub destructive: bool,
    /// Calls may run alongside each other.
    pub parallel_safe: bool,
    /// Calls must be written exactly.
    pub strict: bool,
}

impl Flags {
    /// Whether the tool declares no effect away.
    pub fn promise_nothing(self) -> bool {
        !(self.read_only || self.idempotent || self.parallel_safe)
    }

    /// Returns the class of the declared effects.
    pub fn effect_class(self) -> EffectClass {
        match self {
            Self {
                destructive: true, ..
            } => EffectClass::Destructive,
            Self {
                read_only: true, ..
            } => EffectClass::ReadOnly,
            Self {
                idempotent: true, ..
            } => EffectClass::Idempotent,
            _ => EffectClass::SideEffecting,
        }
    }

    /// Returns these flags, made no weaker than the flags of the bound tool: its effects count
    /// under every name (rule R012).
    #[must_use]
    pub fn no_weaker_than(self, target: Self) -> Self {
        Self {
            read_only: self.read_only && target.read_only,
            idempotent: self.idempotent && target.idempotent,
            destructive: self.destructive || target.destructive,
            parallel_safe: self.parallel_safe && target.parallel_safe,
            strict: self.strict || target.strict,
        }
    }
}

/// The implementation of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Implementation {
    /// A method of the platform, by its name.
    Builtin(String),
    /// A method of a registered gRPC server that takes one message.
    Backend {
        /// The name under which the server was registered.
        service: String,
        /// The method, as `package.Service/Method`.
        method: String,
    },
    /// A program of a plugin.
    Script(Program),
    /// A workflow.
    Workflow {
        /// Its id.
        workflow_id: String,
    },
    /// A single node.
    Node {
        /// Its full type, such as `core:TextMerge`.
        full_type: String,
        /// Its pinned settings.
        config: serde_json::Map<String, Value>,
        /// The interface of its type; none where the definition declares its own parameters, which
        /// are all inputs of the node.
        interface: Option<Arc<NodeInterface>>,
    },
    /// An agent, one turn of it.
    Agent {
        /// The id of its profile.
        profile_id: String,
        /// The conversation of an agent of a scene; none for a new conversation each time.
        conversation_id: Option<String>,
    },
    /// A question to a person, which a node of the workflow service sends and whose answer it waits
    /// for.
    Question,
}

impl Implementation {
    /// Returns the word that definitions use.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Builtin(_) | Self::Backend { .. } | Self::Question => "service",
            Self::Script(_) => "script",
            Self::Workflow { .. } => "workflow",
            Self::Node { .. } => "node",
            Self::Agent { .. } => "agent",
        }
    }

    /// Returns the interface of the bound node; none for other tools, and for a tool that was not
    /// completed by its node type.
    pub fn node(&self) -> Option<&NodeInterface> {
        match self {
            Self::Node { interface, .. } => interface.as_deref(),
            _ => None,
        }
    }

    /// Returns whether a run of another service executes it, which is found again by its request
    /// id.
    pub fn is_run(&self) -> bool {
        matches!(
            self,
            Self::Workflow { .. } | Self::Node { .. } | Self::Agent { .. } | Self::Question
        )
    }

    /// Whether its implementation can call tools of its own.
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::Workflow { .. } | Self::Agent { .. })
    }
}

/// A tool as its author describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The stable id.
    pub id: ToolId,
    /// The name for people.
    pub display_name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments; `None` takes it from the workflow or node.
    pub parameters: Option<Value>,
    /// The implementation.
    pub implementation: Implementation,
    /// The effects that it declares.
    pub flags: Flags,
    /// The time limit of a call; `None` takes the service's default.
    pub timeout: Option<Duration>,
    /// The definition as it was written, unknown keys kept, as canonical JSON: as a text it takes an eighth of the memory.
    pub source: Box<str>,
    /// The files of its plugin; none if it is in no plugin.
    pub package: Option<Arc<Package>>,
    /// Findings that do not keep it from working.
    pub diagnostics: Vec<Diagnostic>,
}

impl Definition {
    /// Returns the definition as it was written, unknown keys kept.
    pub fn written(&self) -> Value {
        serde_json::from_str(&self.source).expect("the text was made of JSON")
    }

    /// Copies the parameters of the bound tool. Pinned settings of a node are no parameters.
    pub fn take_interface(&mut self, source: &Self) {
        let bound = match &source.implementation {
            Implementation::Node { interface, .. } => interface.clone(),
            _ => None,
        };
        self.parameters.clone_from(&source.parameters);
        if let (
            Implementation::Node {
                config, interface, ..
            },
            Some(bound),
        ) = (&mut self.implementation, bound)
        {
            self.parameters = Some(bound.parameters(config));
            *interface = Some(bound);
        }
    }

    /// Returns the workflow, node type or backend that the tool is bound to and that may be
    /// missing; none for other implementations.
    pub fn reference(&self) -> Option<Reference> {
        let place = |key: &str| format!("/implementation/{key}");
        match &self.implementation {
            Implementation::Workflow { workflow_id } => Some(Reference::new(
                place("workflowId"),
                ReferenceKind::Workflow,
                workflow_id.as_str(),
            )),
            Implementation::Node { full_type, .. } => Some(Reference::new(
                place("nodeType"),
                ReferenceKind::NodeType,
                full_type.as_str(),
            )),
            Implementation::Backend { service, method } => Some(Reference::new(
                place("service"),
                ReferenceKind::Backend,
                format!("{service}/{method}"),
            )),
            Implementation::Builtin(_)
            | Implementation::Script(_)
            | Implementation::Agent { .. }
            | Implementation::Question => None,
        }
    }

    /// Makes the flags no weaker than the flags of the bound tool, and records a finding if they
    /// change.
    pub fn limit_flags(&mut self, target: Flags) {
        let flags = self.flags.no_weaker_than(target);
        if flags != self.flags {
            self.flags = flags;
            let message = "what the tool declares of its effects is weaker than the effects of what it is bound to, \
                           which count";
            self.diagnostics
                .push(Diagnostic::warning("", "effects_limited", message));
        }
    }
}

/// Reads the text of a `*.tool.json` file.
///
/// # Errors
/// All problems, each with a JSON pointer.
pub fn read(text: &str) -> Result<Definition, Vec<Violation>> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_DEFINITION_BYTES,
        max_depth: MAX_DEFINITION_DEPTH,
        ..json_schema::JsonLimits::default()
    };
    let source = json_schema::parse_json_strict_with(text, &limits).map_err(|error| {
        error
            .problems
            .into_iter()
            .map(Violation::from)
            .collect::<Vec<_>>()
    })?;
    read_value(source)
}

/// Reads a definition that is JSON already.
///
/// # Errors
/// As [`read`].
pub fn read_value(source: Value) -> Result<Definition, Vec<Violation>> {
    let Value::Object(object) = &source else {
        let message = "a tool definition is a JSON object with 'id', 'description', \
                       'implementation' and 'parameters'";
        return Err(vec![Violation::new("", "type_mismatch", message)]);
    };
    let mut fields = Fields::new(object);
    let second_form = object.contains_key("toolId") || object.contains_key("handler");
    let id_key = if second_form { "toolId" } else { "id" };
    let id = fields.required_text("", id_key).and_then(|text| {
        naming::check_tool_id(&format!("/{id_key}"), &text)
            .map_err(|wrong| fields.wrong.extend(wrong))
            .ok()
    });
    let description = fields.bounded_text("description", MAX_DESCRIPTION_BYTES);
    let display_name = fields.bounded_text("displayName", MAX_DISPLAY_NAME_BYTES);
    let (implementation, timeout) = if second_form {
        implementation::from_handler(&mut fields)
    } else {
        implementation::from_implementation(&mut fields)
    };
    let flags = read_flags(&mut fields);
    let parameters = read_parameters(&mut fields, implementation.as_ref());
    let mut diagnostics = unsupported(object);
    if let Some(parameters) = &parameters {
        let words = naming::reserved_word_warnings(parameters).into_iter();
        diagnostics
            .extend(words.map(|word| Diagnostic::warning("/parameters", "reserved_word", word)));
        let examples = call_prompt::lint::placeholder_examples(parameters).into_iter();
        diagnostics.extend(
            examples
                .map(|example| Diagnostic::warning("/parameters", "placeholder_example", example)),
        );
    }
    match (id, implementation) {
        (Some(id), Some(implementation)) if fields.wrong.is_empty() => Ok(Definition {
            display_name: display_name.unwrap_or_else(|| id.to_string()),
            id,
            description: description.unwrap_or_default(),
            parameters,
            implementation,
            flags,
            timeout,
            source: canonical_json::to_string(&source).into(),
            package: None,
            diagnostics,
        }),
        _ => Err(fields.wrong),
    }
}

fn read_flags(fields: &mut Fields<'_>) -> Flags {
    let flags = Flags {
        read_only: fields.flag("readOnly", "read_only"),
        idempotent: fields.flag("idempotent", "idempotent"),
        destructive: fields.flag("destructive", "destructive"),
        parallel_safe: fields.flag("parallelSafe", "parallel_safe"),
        strict: fields.flag("strict", "strict"),
    };
    if flags.read_only && flags.destructive {
        fields.wrong.push(Violation::new(
            "/destructive",
            "contradiction",
            "a tool that changes nothing cannot destroy anything; remove 'readOnly' or 'destructive'",
        ));
    }
    flags
}

fn read_parameters(fields: &mut Fields<'_>, how: Option<&Implementation>) -> Option<Value> {
    match fields.object.get("parameters") {
        Some(schema @ Value::Object(_)) => {
            check_schema(schema, &mut fields.wrong);
            Some(schema.clone())
        }
        Some(_) => {
            fields.add(
                "/parameters",
                "type_mismatch",
                "parameters must be a JSON Schema object",
            );
            None
        }
        None if how.is_none_or(Implementation::is_run) => None,
        None => {
            let message = "parameters is missing; give a JSON Schema such as \
                           {\"type\": \"object\", \"properties\": {}}";
            fields.add("/parameters", "missing_parameter", message);
            None
        }
    }
}

fn check_schema(schema: &Value, wrong: &mut Vec<Violation>) {
    if let Err(errors) = json_schema::Schema::compile_parameters(schema) {
        wrong.extend(errors.problems.into_iter().map(|problem| {
            let pointer = format!("/parameters{}", problem.pointer);
            Violation::new(pointer, problem.code.as_str(), problem.message)
        }));
    }
}

/// Returns findings on all parts of a definition without effect: requests that are not granted,
/// features that are not supported, and unknown keys.
fn unsupported(object: &serde_json::Map<String, Value>) -> Vec<Diagnostic> {
    let asks = |pointer: &str| {
        object
            .get("securityContext")
            .and_then(|context| context.pointer(pointer))
            .and_then(Value::as_array)
            .is_some_and(|entries| !entries.is_empty())
    };
    let mut found: Vec<Diagnostic> = [
        (
            "/networkAccess/allowHosts",
            "scripts have no network; its hosts cannot be reached",
        ),
        (
            "/fileAccess/allowRead",
            "scripts see the files of their plugin only",
        ),
        (
            "/fileAccess/allowWrite",
            "what a script writes to files is discarded when it ends",
        ),
        (
            "/requiredCapabilities",
            "no capabilities are given to scripts",
        ),
    ]
    .into_iter()
    .filter(|(pointer, _)| asks(pointer))
    .map(|(pointer, not_granted)| {
        let path = format!("/securityContext{pointer}");
        let message = format!("securityContext{pointer} is not granted: {not_granted}");
        Diagnostic::warning(path, "not_granted", message)
    })
    .collect();
    for key in object
        .keys()
        .filter(|key| !KNOWN_KEYS.contains(&key.as_str()))
    {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        if !NOT_SUPPORTED.contains(&key.as_str()) {
            let shown: String = key.chars().take(80).collect();
            let message = format!("the key '{shown}' is not known and has no effect; remove it");
            found.push(Diagnostic::warning(path, "unknown_key", message));
        } else if object[key] != Value::Array(Vec::new()) {
            let message = format!("{key} is not supported yet and has no effect");
            found.push(Diagnostic::not_supported(&path, message));
        }
    }
    found.truncate(MAX_DIAGNOSTICS);
    found
}
