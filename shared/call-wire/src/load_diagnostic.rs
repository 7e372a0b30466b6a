//! Findings about loaded definitions as messages of the contract.

use contracts::tavern::common::v1::{self as common, Severity};
use core_types::{LoadDiagnostic, LoadSeverity};

/// Converts a finding to its message.
pub fn load_diagnostic_to_proto(diagnostic: &LoadDiagnostic) -> common::LoadDiagnostic {
    let severity = match diagnostic.severity {
        LoadSeverity::Note => Severity::Note,
        LoadSeverity::Warning => Severity::Warning,
        LoadSeverity::Error => Severity::Error,
    };
    common::LoadDiagnostic {
        severity: severity.into(),
        path: diagnostic.path.clone(),
        code: diagnostic.code.to_owned(),
        message: diagnostic.message.clone(),
    }
}
