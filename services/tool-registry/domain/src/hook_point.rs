//! The points at which hooks of plugins run on the server (rule R201).

/// A point of the server at which a hook may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// Before a tool is called.
    ToolBeforeCall,
    /// After a tool was called, before its result is used.
    ToolAfterCall,
    /// Before a workflow begins.
    WorkflowBeforeExecute,
    /// Before a turn of an agent begins.
    TurnBefore,
    /// Before a request to a model.
    ModelBeforeRequest,
    /// After the result of a tool was recorded.
    ToolAfter,
    /// After a workflow ended.
    WorkflowAfterExecute,
    /// After a turn of an agent ended.
    TurnAfter,
    /// After an approval was requested.
    ApprovalRequested,
    /// After a plugin was changed.
    PluginChanged,
}

use HookPoint::{
    ApprovalRequested, ModelBeforeRequest, PluginChanged, ToolAfter, ToolAfterCall, ToolBeforeCall,
    TurnAfter, TurnBefore, WorkflowAfterExecute, WorkflowBeforeExecute,
};

/// A row of the table of points.
struct Row {
    point: HookPoint,
    name: &'static str,
    /// The decisions other than to continue.
    may: &'static [&'static str],
    /// The object of "sees every".
    sees: &'static str,
    /// The rest of "may".
    change: &'static str,
    /// The variables of `when`.
    variables: &'static [&'static str],
    /// The parts of the payload that may change.
    mutable: &'static [&'static str],
}

const ROWS: [Row; 10] = [
    row(
        ToolBeforeCall,
        "tool:before-call",
        &["replace", "deny", "answer"],
        "call of a tool before it runs",
        "change its arguments, refuse it, or answer in the tool's place",
        &["call"],
        &["/call/arguments"],
    ),
    row(
        ToolAfterCall,
        "tool:after-call",
        &["replace", "warn", "fail"],
        "result of a tool before it is used",
        "change the output, add warnings, or turn a success into a failure",
        &["call", "result"],
        &["/result/output", "/result/warnings/-"],
    ),
    row(
        WorkflowBeforeExecute,
        "workflow:before-execute",
        &["replace", "deny"],
        "workflow before it begins",
        "change its inputs, or refuse it",
        &["run"],
        &["/run/inputs"],
    ),
    row(
        TurnBefore,
        "turn:before",
        &["replace", "deny"],
        "text of a user before an agent reads it",
        "change it, or refuse it",
        &["turn"],
        &["/turn/user_text"],
    ),
    row(
        ModelBeforeRequest,
        "model:before-request",
        &["append", "deny"],
        "request to a model before it is sent",
        "add messages to it, or refuse it",
        &["request"],
        &["/request/messages/-"],
    ),
    row(
        ToolAfter,
        "tool:after",
        &[],
        "recorded result of a tool",
        "",
        &["call", "result"],
        &[],
    ),
    row(
        WorkflowAfterExecute,
        "workflow:after-execute",
        &[],
        "workflow that has ended",
        "",
        &["run"],
        &[],
    ),
    row(
        TurnAfter,
        "turn:after",
        &[],
        "turn of an agent that has ended",
        "",
        &["turn"],
        &[],
    ),
    row(
        ApprovalRequested,
        "approval:requested",
        &[],
        "request for an approval",
        "",
        &["approval"],
        &[],
    ),
    row(
        PluginChanged,
        "plugin:changed",
        &[],
        "change of a plugin",
        "",
        &["plugin"],
        &[],
    ),
];

const fn row(
    point: HookPoint,
    name: &'static str,
    may: &'static [&'static str],
    sees: &'static str,
    change: &'static str,
    variables: &'static [&'static str],
    mutable: &'static [&'static str],
) -> Row {
    Row {
        point,
        name,
        may,
        sees,
        change,
        variables,
        mutable,
    }
}

impl HookPoint {
    /// Returns all points, in the order of their table.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.point)
    }

    /// Finds the point of a name, such as `tool:before-call`.
    pub fn parse(name: &str) -> Option<Self> {
        ROWS.iter()
            .find(|row| row.name == name)
            .map(|row| row.point)
    }

    /// Returns the name, such as `tool:before-call`.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Returns the decisions that a hook may take here, other than to continue; none for an observer.
    pub fn may(self) -> &'static [&'static str] {
        self.row().may
    }

    /// Whether a hook here runs before the act that it sees.
    pub fn is_before(self) -> bool {
        matches!(
            self,
            ToolBeforeCall | WorkflowBeforeExecute | TurnBefore | ModelBeforeRequest
        )
    }

    /// Whether a hook here sees and changes nothing.
    pub fn is_observer(self) -> bool {
        self.may().is_empty()
    }

    /// Returns one sentence about the power of a hook here.
    pub fn sentence(self) -> String {
        let row = self.row();
        match self.is_observer() {
            true => format!("Sees every {}, and changes nothing.", row.sees),
            false => format!("Sees every {}, and may {}.", row.sees, row.change),
        }
    }

    /// Returns the variables that the condition of a hook here may use.
    pub fn variables(self) -> &'static [&'static str] {
        self.row().variables
    }

    /// Returns the parts of the payload that hooks here may change, as JSON pointers; one with `/-` at its end is a list
    /// to which they may add.
    pub fn mutable(self) -> &'static [&'static str] {
        self.row().mutable
    }

    /// Returns the actions of a decision here (rule R203).
    pub fn actions(self) -> &'static [&'static str] {
        match self {
            ToolBeforeCall => &["continue", "replace", "deny", "answer"],
            _ if self.is_observer() => &["continue"],
            _ => &["continue", "replace", "deny"],
        }
    }

    /// Sorts hooks of this point into the order in which they run: before an act by order, plugin and place in the
    /// manifest, after it in reverse.
    pub fn sort<T>(self, hooks: &mut [T], key: impl Fn(&T) -> (i64, &str, usize)) {
        hooks.sort_by(|one, other| key(one).cmp(&key(other)));
        if !self.is_before() {
            hooks.reverse();
        }
    }

    fn row(self) -> &'static Row {
        // The rows stand in the order of the enum, which a test compares.
        &ROWS[self as usize]
    }
}

impl std::fmt::Display for HookPoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_has_the_row_of_its_name() {
        for point in HookPoint::all() {
            assert_eq!(HookPoint::parse(point.as_str()), Some(point));
            assert_eq!(point.row().point, point);
        }
    }
}
