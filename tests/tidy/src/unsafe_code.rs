//! The place of unsafe code, and the reason next to it.

use crate::rust_text::{code_only, word_at};
use crate::{Finding, Tree};

/// The one crate that speaks to the kernel directly.
const MAY_BE_UNSAFE: &str = "services/script-sandbox/launcher/";

/// Lines above an unsafe block within which its reason may begin.
const REASON_WITHIN: usize = 8;

/// Refuses unsafe code outside the launcher, and inside it without a reason.
pub fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let code = code_only(text);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in code.lines().enumerate() {
            let Some(at) = word_at(line, "unsafe") else {
                continue;
            };
            if !path.starts_with(MAY_BE_UNSAFE) {
                let finding = Finding::new(
                    path,
                    "unsafe code outside the sandbox launcher",
                    "use a safe wrapper (rustix, std), or do it in services/script-sandbox/launcher where it is reviewed",
                );
                findings.push(finding.at_line(index + 1));
                continue;
            }
            let what = line[at + "unsafe".len()..].trim_start();
            let needs_reason = what.starts_with('{') || what.starts_with("impl") || what.is_empty();
            let above = lines[index.saturating_sub(REASON_WITHIN)..=index].iter();
            if needs_reason && !above.into_iter().any(|line| line.contains("SAFETY:")) {
                let finding = Finding::new(
                    path,
                    "an unsafe block without its reason",
                    "write `// SAFETY:` above it and say why the call's conditions hold",
                );
                findings.push(finding.at_line(index + 1));
            }
        }
    }
    findings
}
