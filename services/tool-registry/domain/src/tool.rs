//! A tool that can be called: its definition, and the schema of its arguments.

use call_outcome::Violation;
use std::{
    sync::{Arc, LazyLock, OnceLock},
    time::Duration,
};

use json_schema::Schema;
use serde_json::{Map, Value};

use super::definition::{Definition, Flags, Implementation};

const DOMAIN: &str = "tavern.tool.v1";

/// The parameters of a tool that takes any.
static ANY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The origin of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The platform.
    Builtin,
    /// The operator, by `PutTool`.
    Registered,
    /// A workflow of the same id.
    Workflow,
    /// A node type.
    Node,
    /// A profile of the same id.
    Agent,
    /// A plugin of this name.
    Plugin(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Builtin => formatter.write_str("builtin"),
            Self::Registered => formatter.write_str("registered"),
            Self::Workflow => formatter.write_str("workflow"),
            Self::Node => formatter.write_str("node"),
            Self::Agent => formatter.write_str("agent"),
            Self::Plugin(name) => write!(formatter, "plugin:{name}"),
        }
    }
}

/// A tool that can be called.
#[derive(Clone, Debug)]
pub struct Tool {
    definition: Arc<Definition>,
    origin: Origin,
    alias: String,
    /// The compiled schema, from the first check on: it takes some 10 KiB, and most tools are never called.
    schema: Arc<OnceLock<Schema>>,
    etag: String,
    is_shared: bool,
}

/// Arguments that were checked and completed.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The arguments with defaults filled in.
    pub arguments: Value,
    /// The members that defaults filled in, as JSON pointers.
    pub defaulted: Vec<String>,
}

impl Tool {
    /// Makes the tool of a definition whose parameters are known, and whose schema can be compiled.
    ///
    /// # Errors
    /// All problems of the schema.
    pub fn new(
        definition: impl Into<Arc<Definition>>,
        origin: Origin,
        alias: String,
    ) -> Result<Self, Vec<Violation>> {
        let definition = definition.into();
        compile(&definition)?;
        let etag = etag_of(&definition, &origin);
        Ok(Self {
            definition,
            origin,
            alias,
            schema: Arc::default(),
            etag,
            is_shared: false,
        })
    }

    /// Returns the same tool under another alias.
    #[must_use]
    pub fn with_alias(&self, alias: String) -> Self {
        Self {
            alias,
            ..self.clone()
        }
    }

    /// Returns the same tool as one that belongs to the tenant `system` and is seen by another, or as an own one.
    #[must_use]
    pub fn with_shared(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Whether it belongs to the tenant `system`, and is seen by another tenant.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the same tool with an etag that also changes with the digest of its implementation:
    /// of a workflow, a profile, a node type or a server, which the definition only names.
    #[must_use]
    pub fn implemented_by(self, digest: &str) -> Self {
        Self {
            etag: hex_digest([DOMAIN, &self.etag, digest]),
            ..self
        }
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        self.definition.id.as_str()
    }

    /// Returns the names apart from its id by which rules for approvals mean it: an agent of a
    /// scene is called by its conversation `<run>.<instance>`, and known as an instance and by its
    /// profile (rule G801).
    pub fn names_in_rules(&self) -> Vec<String> {
        let Implementation::Agent {
            profile_id,
            conversation_id: Some(conversation),
        } = &self.definition.implementation
        else {
            return Vec::new();
        };
        let instance = conversation.split_once('.').map(|(_, instance)| instance);
        let names = [Some(profile_id.as_str()), instance].into_iter().flatten();
        names.map(|name| format!("agent:{name}")).collect()
    }

    /// Returns the definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the spelling of the id that is a plain XML name.
    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// Returns the digest of the definition and of the implementation (rule R401), 64 hexadecimal
    /// digits. Approvals bind to it.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Returns the schema of the arguments.
    pub fn parameters(&self) -> &Value {
        parameters_of(&self.definition)
    }

    /// Returns the effects that the tool declares.
    pub fn flags(&self) -> Flags {
        self.definition.flags
    }

    /// Returns the implementation.
    pub fn implementation(&self) -> &Implementation {
        &self.definition.implementation
    }

    /// Returns the time limit of a call, if the definition states one.
    pub fn timeout(&self) -> Option<Duration> {
        self.definition.timeout
    }

    /// Whether repeating a call has no further effect.
    pub fn is_idempotent(&self) -> bool {
        let flags = self.flags();
        flags.read_only || flags.idempotent
    }

    /// Whether a call whose outcome was lost in a crash may be dispatched again: because repeating
    /// it has no further effect, or because its run is found by the effect id.
    pub fn may_repeat(&self) -> bool {
        self.is_idempotent() || self.implementation().is_run()
    }

    /// Checks arguments and fills defaults in. Null for a parameter that may be left out, and may not
    /// be null, means left out, as models write it (C6).
    ///
    /// # Errors
    /// All problems of the arguments.
    pub fn check(&self, arguments: &Value) -> Result<Checked, Vec<Violation>> {
        let schema = match self.schema.get() {
            Some(schema) => schema,
            None => {
                let compiled = compile(&self.definition)?;
                self.schema.get_or_init(|| compiled)
            }
        };
        let violations = schema.validate(arguments);
        let mut arguments = match violations.is_empty() {
            true => arguments.clone(),
            false => match schema.without_nulls(arguments) {
                Some(arguments) => arguments,
                None => return Err(violations.into_iter().map(Violation::from).collect()),
            },
        };
        let defaulted = schema.apply_defaults(&mut arguments).map_err(|error| {
            vec![Violation::new(
                "",
                "invalid_default",
                format!("a default of the schema is wrong: {error}"),
            )]
        })?;
        Ok(Checked {
            arguments,
            defaulted,
        })
    }
}

fn parameters_of(definition: &Definition) -> &Value {
    definition.parameters.as_ref().unwrap_or(&ANY)
}

fn compile(definition: &Definition) -> Result<Schema, Vec<Violation>> {
    Schema::compile_parameters(parameters_of(definition)).map_err(|errors| {
        let place = |problem: json_schema::CompileProblem| {
            let pointer = format!("/parameters{}", problem.pointer);
            Violation::new(pointer, problem.code.as_str(), problem.message)
        };
        errors.problems.into_iter().map(place).collect::<Vec<_>>()
    })
}

fn etag_of(definition: &Definition, origin: &Origin) -> String {
    let package = definition.package.as_ref();
    etag_in_package(
        definition,
        origin,
        package.map_or("", |package| package.digest()),
    )
}

/// Returns the etag that a tool has with the files of a package, whose digest stands with its
/// `sha256:`; an empty digest is no package. It leaves out the digest of [`Tool::implemented_by`].
pub fn etag_in_package(definition: &Definition, origin: &Origin, package_digest: &str) -> String {
    hex_digest([
        DOMAIN,
        &origin.to_string(),
        &definition.source,
        package_digest,
    ])
}

fn hex_digest<const N: usize>(parts: [&str; N]) -> String {
    hex::encode(canonical_json::digest_of_parts(parts.map(str::as_bytes)))
}
