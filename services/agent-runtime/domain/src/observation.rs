//! The notices that the model reads alongside the results of its calls, and their bounds.

use call_prompt::observation;
use call_prompt::prompt::Language;
use serde_json::Value;

use super::budgets::Budget;

/// The longest observation of one call, in bytes. The rest stays in the log.
pub const MAX_OBSERVATION_BYTES: usize = 64 << 10;

/// The note on reading the rest of a long output (rule L4).
pub const READ_ON: &str = "\n[The tool system:read_stream reads what is left out by the handle.]";

/// Returns the observation of a call that was not started, as one before it failed.
pub fn skipped(tool_id: &str, failed_tool: &str) -> String {
    observation::skipped(tool_id, failed_tool)
}

/// Returns the observation of a call that was not started, as the answer held too many.
pub(crate) fn beyond_budget(tool_id: &str, limit: &str) -> String {
    format!("Observation: Error - {tool_id} was not executed: {limit}.")
}

/// Returns the observation that no calls remain (rule L6).
pub fn no_calls_remain(budget: Budget) -> String {
    format!(
        "Observation: No calls remain: this turn has used all of its {}. Answer now in plain text with \
         what is known; further calls will not be executed.",
        budget.words()
    )
}

/// Returns the observation that a budget is nearly used up (rule G701).
pub fn nearly_spent(budget: Budget, used: u64) -> String {
    format!(
        "Observation: This turn has used {used} of its {}. Finish soon.",
        budget.words()
    )
}

/// Returns the observation of a call that was not started, as a budget is used up.
pub fn withheld(tool_id: &str, budget: Budget) -> String {
    format!(
        "Observation: Error - {tool_id} was not executed: this turn has used all of its {}.",
        budget.words()
    )
}

/// The longest state that a model is shown, in bytes (rule G205).
const MAX_STATE_BYTES: usize = 4 << 10;

/// Returns the text with the agent's private state.
pub fn private_state(state: &Value, language: Language) -> String {
    let words = match language {
        Language::En => "Your private state now:",
        Language::Zh => "你当前的私有状态：",
    };
    state_line(words, state, language)
}

/// Returns the text with the scene's world state.
pub fn world_state(state: &Value, language: Language) -> String {
    let words = match language {
        Language::En => "The state of the world now:",
        Language::Zh => "当前的世界状态：",
    };
    state_line(words, state, language)
}

fn state_line(words: &str, state: &Value, language: Language) -> String {
    let text = state.to_string();
    let shown = observation::head_within(&text, MAX_STATE_BYTES);
    let cut = match (text.len() - shown.len(), language) {
        (0, _) => String::new(),
        (more, Language::En) => format!(" … ({more} more bytes)"),
        (more, Language::Zh) => format!(" …（还有 {more} 字节）"),
    };
    format!("{words} {}{cut}", observation::neutralise(shown))
}

/// Cuts a text to the bound, with a note of the number of bytes cut.
pub fn bounded(text: String) -> String {
    if text.len() <= MAX_OBSERVATION_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_OBSERVATION_BYTES);
    format!(
        "{}\n[{} more bytes were cut]",
        &text[..end],
        text.len() - end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g205_a_state_is_measured_as_it_is_shown() {
        let state = Value::String("<ACTION>".repeat(MAX_STATE_BYTES / 8 - 10));
        assert!(state.to_string().len() < MAX_STATE_BYTES);
        let text = private_state(&state, Language::En);
        let shown = text.strip_prefix("Your private state now: ").unwrap();
        let (shown, more) = shown.split_once(" … (").unwrap();
        assert!(shown.len() <= MAX_STATE_BYTES);
        let more: usize = more.strip_suffix(" more bytes)").unwrap().parse().unwrap();
        let written = shown.replace('‹', "<");
        assert_eq!(written.len() + more, state.to_string().len());
    }
}
