//! Domain types as messages of the contract, and the one way back that is needed.

use std::time::Duration;

use contracts::tavern::{
    common::v1::{self as common, CallError, CallResult, CallStatus, ErrorCategory},
    registry::v1::{self as registry, ImplementationType},
};
use core_types::Timestamp;

use crate::{
    dispatch::backend::Backend,
    domain::{
        definition::Implementation,
        diagnostic::{Diagnostic, Severity},
        ending::{Category, Ending, Failure, Reason},
        tool::Tool,
        violation::Violation,
    },
    plugins::PluginInfo,
};

/// What a result says beside how the call ended.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The place of the call among the calls of its text.
    pub index: u32,
    /// The effect id; empty if there is none.
    pub effect_id: String,
    /// The tool.
    pub tool_id: String,
    /// When the call was dispatched; nothing if it never was.
    pub dispatched: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// What defaults filled in.
    pub defaulted: Vec<String>,
    /// How the call was journalled.
    pub durability: i32,
    /// The run that carried it out; empty if none did.
    pub child_run_id: String,
    /// Which attempt it was; zero if the call has no effect id.
    pub attempt: u32,
}

/// Writes how a call went.
pub fn result_to_proto(ending: &Ending, circumstances: Circumstances) -> CallResult {
    let status = match ending {
        Ending::Succeeded(_) => CallStatus::Succeeded,
        Ending::Failed(_) => CallStatus::Failed,
        Ending::Rejected(_) => CallStatus::Rejected,
        Ending::Cancelled(_) => CallStatus::Cancelled,
        Ending::InDoubt(_) => CallStatus::InDoubt,
    };
    let duration = circumstances
        .dispatched
        .map(|start| circumstances.ended.since(start));
    CallResult {
        index: circumstances.index,
        effect_id: circumstances.effect_id,
        tool_id: circumstances.tool_id,
        status: status.into(),
        output_json: match ending {
            Ending::Succeeded(output) => output.to_string(),
            _ => String::new(),
        },
        error: ending.failure().map(failure_to_proto),
        start_time: circumstances.dispatched.map(run_events::timestamp_to_proto),
        duration: prost_types::Duration::try_from(duration.unwrap_or(Duration::ZERO)).ok(),
        replayed: false,
        defaulted: circumstances.defaulted,
        durability: circumstances.durability,
        child_run_id: circumstances.child_run_id,
        attempt: circumstances.attempt,
    }
}

/// Writes why a call did not succeed.
pub fn failure_to_proto(failure: &Failure) -> CallError {
    CallError {
        category: category_to_proto(failure.category).into(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retryable: failure.retryable,
        violations: failure.violations.iter().map(violation_to_proto).collect(),
        details_json: failure
            .details
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
    }
}

/// Reads why a call or run did not succeed.
pub fn failure_from_proto(error: &CallError) -> Failure {
    Failure::from(Reason {
        category: category_from_proto(error.category()),
        code: error.code.clone(),
        message: error.message.clone(),
        retryable: error.retryable,
        violations: error.violations.iter().map(violation_from_proto).collect(),
        details: json_schema::parse_json_strict(&error.details_json).ok(),
    })
}

/// Writes one thing that is wrong.
pub fn violation_to_proto(violation: &Violation) -> common::Violation {
    common::Violation {
        pointer: violation.pointer.clone(),
        code: violation.code.clone(),
        message: violation.message.clone(),
        expected: violation.expected.clone(),
        received: violation.received.chars().take(200).collect(),
        suggestions: violation.suggestions.clone(),
    }
}

/// Reads one thing that is wrong.
pub fn violation_from_proto(violation: &common::Violation) -> Violation {
    Violation {
        pointer: violation.pointer.clone(),
        code: violation.code.clone(),
        message: violation.message.clone(),
        expected: violation.expected.clone(),
        received: violation.received.clone(),
        suggestions: violation.suggestions.clone(),
    }
}

/// Writes a tool.
pub fn tool_to_proto(tool: &Tool) -> registry::Tool {
    let definition = tool.definition();
    let flags = tool.flags();
    let implementation = match tool.implementation() {
        Implementation::Builtin(_) | Implementation::Backend { .. } => ImplementationType::Service,
        Implementation::Script(_) => ImplementationType::Script,
        Implementation::Workflow { .. } => ImplementationType::Workflow,
        Implementation::Node { .. } => ImplementationType::Node,
    };
    registry::Tool {
        tool_id: tool.id().to_owned(),
        display_name: definition.display_name.clone(),
        description: definition.description.clone(),
        parameters_json: tool.parameters().to_string(),
        implementation: implementation.into(),
        origin: tool.origin().to_string(),
        read_only: flags.read_only,
        idempotent: flags.idempotent,
        destructive: flags.destructive,
        parallel_safe: flags.parallel_safe,
        alias: tool.alias().to_owned(),
        etag: tool.etag().to_owned(),
        strict: flags.strict,
        diagnostics: definition
            .diagnostics
            .iter()
            .map(diagnostic_to_proto)
            .collect(),
    }
}

/// Converts a backend to its message.
pub fn backend_to_proto(backend: &Backend) -> registry::Backend {
    registry::Backend {
        name: backend.name.clone(),
        endpoint: backend.endpoint.clone(),
        methods: backend.methods(),
        etag: backend.etag.clone(),
    }
}

/// Writes a plugin.
pub fn plugin_to_proto(plugin: &PluginInfo) -> registry::Plugin {
    registry::Plugin {
        directory: plugin.directory.clone(),
        name: plugin.name.clone(),
        display_name: plugin.display_name.clone(),
        version: plugin.version.clone(),
        description: plugin.description.clone(),
        loaded: plugin.loaded,
        tool_ids: plugin.tool_ids.clone(),
        diagnostics: plugin.diagnostics.iter().map(diagnostic_to_proto).collect(),
    }
}

fn diagnostic_to_proto(found: &Diagnostic) -> common::LoadDiagnostic {
    let severity = match found.severity {
        Severity::Warning => common::Severity::Warning,
        Severity::Error => common::Severity::Error,
    };
    common::LoadDiagnostic {
        severity: severity.into(),
        path: found.path.clone(),
        code: found.code.clone(),
        message: found.message.chars().take(1_000).collect(),
    }
}

fn category_to_proto(category: Category) -> ErrorCategory {
    match category {
        Category::Validation => ErrorCategory::Validation,
        Category::Domain => ErrorCategory::Domain,
        Category::Policy => ErrorCategory::Policy,
        Category::Runtime => ErrorCategory::Runtime,
        Category::Dependency => ErrorCategory::Dependency,
        Category::Timeout => ErrorCategory::Timeout,
        Category::Cancelled => ErrorCategory::Cancelled,
        Category::Limit => ErrorCategory::Limit,
        Category::Internal => ErrorCategory::Internal,
    }
}

fn category_from_proto(category: ErrorCategory) -> Category {
    match category {
        ErrorCategory::Validation => Category::Validation,
        ErrorCategory::Domain => Category::Domain,
        ErrorCategory::Policy => Category::Policy,
        ErrorCategory::Runtime => Category::Runtime,
        ErrorCategory::Dependency => Category::Dependency,
        ErrorCategory::Timeout => Category::Timeout,
        ErrorCategory::Cancelled => Category::Cancelled,
        ErrorCategory::Limit => Category::Limit,
        ErrorCategory::Internal | ErrorCategory::Unspecified => Category::Internal,
    }
}
