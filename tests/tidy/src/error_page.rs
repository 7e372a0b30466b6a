//! The page of error reasons, made from the comments of the contract.

use crate::{Finding, Tree};

/// The reasons, each with its meaning and its remedy in the comment.
pub const CONTRACT: &str = "proto/tavern/common/v1/error.proto";

/// The page.
pub const PAGE: &str = "docs/errors.md";

const PREFIX: &str = "ERROR_REASON_";

/// The mark behind which the comment of a reason has the remedy.
const REMEDY: &str = " Remedy: ";

const HEAD: &str = "\
# Error reasons

The page for a caller or an operator who met an error: its meaning, and the remedy. It is made from
`proto/tavern/common/v1/error.proto`; `BLESS=1 cargo test -p tidy` makes it anew.

A request that fails has a gRPC status. Its details hold a `google.rpc.ErrorInfo` with the domain `tavern`, one of these
reasons, and metadata; `google.rpc.BadRequest` names fields, `google.rpc.RetryInfo` a time. Over plain HTTP the same
details stand in `details` of the error. The command line prints the message on standard error, behind `error:`. The
codes of calls and runs that failed (`backend_failed`, `took_no_effect` and others) are no reasons: they stand in a
result, with a message that names the remedy.
";

/// A reason as the contract explains it.
struct Reason<'a> {
    name: &'a str,
    line: usize,
    comment: String,
}

/// Requires a remedy in the comment of every reason.
pub fn remedies(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(CONTRACT).unwrap_or_default();
    let without = reasons(text)
        .into_iter()
        .filter(|reason| !reason.comment.contains(REMEDY));
    let finding = |reason: Reason<'_>| {
        let problem = format!("explains {} without a remedy", reason.name);
        let remedy =
            "end the comment with `Remedy:` and the steps that a caller or an operator can take";
        Finding::new(CONTRACT, problem, remedy).at_line(reason.line)
    };
    without.map(finding).collect()
}

/// Compares the page with the contract.
pub fn page_is_made(tree: &Tree) -> Vec<Finding> {
    let made = page(tree.text(CONTRACT).unwrap_or_default());
    let stands = tree.text(PAGE).unwrap_or_default();
    if made == stands {
        return Vec::new();
    }
    let same = made
        .lines()
        .zip(stands.lines())
        .take_while(|(made, stands)| made == stands);
    let line = same.count() + 1;
    let problem = "is not the page that the contract makes";
    vec![Finding::new(PAGE, problem, "BLESS=1 cargo test -p tidy makes it anew").at_line(line)]
}

/// Builds the page from the text of the contract.
pub fn page(contract: &str) -> String {
    let sections = reasons(contract).into_iter().map(|reason| {
        let (meaning, remedy) = reason
            .comment
            .split_once(REMEDY)
            .unwrap_or((&reason.comment, ""));
        let name = reason.name;
        format!("\n## {name}\n\n{meaning}\n\n**Remedy:** {remedy}\n")
    });
    HEAD.to_owned() + &sections.collect::<String>()
}

/// Reads the values of the enum, except the value that is never sent.
fn reasons(contract: &str) -> Vec<Reason<'_>> {
    let (mut reasons, mut comment) = (Vec::new(), Vec::new());
    for (index, line) in contract.lines().enumerate() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("//") {
            comment.push(text.trim());
            continue;
        }
        let value = line
            .strip_prefix(PREFIX)
            .and_then(|value| value.split_once(" = "));
        if let Some((name, _)) = value.filter(|(name, _)| *name != "UNSPECIFIED") {
            reasons.push(Reason {
                name,
                line: index + 1,
                comment: comment.join(" "),
            });
        }
        comment.clear();
    }
    reasons
}
