//! Keys read as commands: whether a key names a tool, and of which step (T18, T20).

use call_catalogue::names;

/// A key read as a command. Read once, when its field is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandKey {
    stem: Stem,
    /// The step, where the key is a command.
    pub(crate) number: Option<u32>,
    /// Whether every character of the key belongs to a name.
    pub(crate) plain: bool,
}

/// A key without its number, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stem {
    Command,
    ToolName,
    Other,
}

impl CommandKey {
    pub(crate) fn read(written: &str) -> Self {
        let other = Self {
            stem: Stem::Other,
            number: None,
            plain: names::is_all_plain(written),
        };
        // Most keys are no commands, by their first letter.
        let first = written.chars().find(|c| c.is_alphanumeric());
        let fits = |c: char| !c.is_ascii() || matches!(c.to_ascii_lowercase(), 'c' | 't');
        if !first.is_some_and(fits) {
            return other;
        }
        names::with_squashed(written, |squashed| {
            let stem = squashed.trim_end_matches(|c: char| c.is_ascii_digit());
            let stem_is = match stem {
                "command" => Stem::Command,
                "toolname" => Stem::ToolName,
                _ => Stem::Other,
            };
            Self {
                stem: stem_is,
                number: match stem_is {
                    Stem::Other => None,
                    _ => squashed[stem.len()..].parse().ok(),
                },
                ..other
            }
        })
    }

    /// Whether the key is `tool_name`, with or without number.
    pub(crate) fn is_tool_name(self) -> bool {
        self.stem == Stem::ToolName
    }

    /// Whether the key names a tool as far as it can be known before the block is closed. In VCP
    /// `command` is an argument as a rule.
    pub(crate) fn names_call(self, vcp: bool) -> bool {
        match vcp {
            true => self.is_tool_name(),
            false => self.is_plain_command(),
        }
    }

    /// Whether the key names a tool in one of the dialects.
    pub(crate) fn is_any_command(self) -> bool {
        self.stem != Stem::Other
    }

    /// Whether the key names a tool; in VCP, next to `tool_name`, `command` is a sub-command.
    pub(crate) fn is_command(self, vcp_reading: bool) -> bool {
        let names_tool = if vcp_reading {
            Stem::ToolName
        } else {
            Stem::Command
        };
        self.stem == names_tool
    }

    /// Whether the key is `command`, with or without number.
    pub(crate) fn is_plain_command(self) -> bool {
        self.stem == Stem::Command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_step_mean_the_same() {
        for written in ["command1", "command_1", "Command 1", "COMMAND-01"] {
            let key = CommandKey::read(written);
            assert!(key.is_plain_command(), "{written}");
            assert_eq!(key.number, Some(1), "{written}");
        }
    }
}
