//! The end of an answer: a closed list of reasons for which an answer is whole, in the words of the contract.

/// Returns the contract's word for a reason that an API names; none if an answer with this reason
/// is not whole.
pub(crate) fn reason(named: &str) -> Option<&'static str> {
    Some(match named.to_ascii_lowercase().as_str() {
        "stop" | "end_turn" | "stop_sequence" | "end" | "eos" | "eos_token" | "complete"
        | "completed" => "stop",
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "max_completion_tokens"
        | "model_length"
        | "model_context_window_exceeded" => "length",
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => "tool_calls",
        "content_filter" | "refusal" | "safety" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" => "refused",
        _ => return None,
    })
}

/// Whether the reason of the vendor behind an endpoint names a failure, whatever the endpoint
/// reports.
pub(crate) fn is_failure(native: &str) -> bool {
    const FAILURES: [&str; 9] = [
        "error",
        "abort",
        "cancel",
        "timeout",
        "malformed",
        "unexpected",
        "insufficient",
        "overload",
        "network",
    ];
    let native = native.to_ascii_lowercase();
    FAILURES.iter().any(|failure| native.contains(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_reasons_end_a_whole_answer() {
        for (named, expected) in [
            ("stop", Some("stop")),
            ("STOP", Some("stop")),
            ("end_turn", Some("stop")),
            ("eos_token", Some("stop")),
            ("MAX_TOKENS", Some("length")),
            ("model_length", Some("length")),
            ("tool_use", Some("tool_calls")),
            ("function_call", Some("tool_calls")),
            ("content_filter", Some("refused")),
            ("SAFETY", Some("refused")),
            ("", None),
            ("error", None),
            ("abort", None),
            ("pause_turn", None),
            ("insufficient_system_resource", None),
            ("banana", None),
        ] {
            assert_eq!(reason(named), expected, "{named}");
        }
    }

    #[test]
    fn a_failure_of_the_vendor_behind_is_known_by_its_words() {
        for (native, expected) in [
            ("network_error", true),
            ("MALFORMED_FUNCTION_CALL", true),
            ("aborted", true),
            ("UNEXPECTED_TOOL_CALL", true),
            ("completed", false),
            ("end_turn", false),
            ("STOP", false),
        ] {
            assert_eq!(is_failure(native), expected, "{native}");
        }
    }
}
