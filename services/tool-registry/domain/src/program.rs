//! The command of a script tool.

use call_outcome::Violation;

/// The most arguments that a command may carry.
const MAX_ARGUMENTS: usize = 32;

/// A program of a plugin: an interpreter and a file of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The interpreter as the command names it, such as `python`.
    pub runtime: String,
    /// The script's path beneath the plugin's directory, without `./`.
    pub entry: String,
    /// The arguments behind the script's path.
    pub arguments: Vec<String>,
    /// The package set that it imports; empty for none.
    pub packages: String,
    /// The output that is its standard output, shown while it is written; its answer is then on its result channel.
    pub streamed: Option<StreamedOutput>,
}

impl Program {
    /// Returns the command, as a manifest spells it.
    pub fn command(&self) -> String {
        let words = [&self.runtime, &self.entry]
            .into_iter()
            .chain(&self.arguments);
        words.cloned().collect::<Vec<_>>().join(" ")
    }
}

/// An output of a node type that a program writes piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamedOutput {
    /// The key of the output in the answer.
    pub key: String,
    /// Whether it is text, and not one JSON value per line.
    pub is_text: bool,
}

/// Splits a command such as `python scripts/fetch.py --brief`.
///
/// No shell ever sees the command, so every character that a shell would interpret is refused
/// instead of being passed on as plain text.
///
/// # Errors
/// All problems, pointing at `pointer`.
pub fn parse_command(pointer: &str, command: &str) -> Result<Program, Vec<Violation>> {
    let mut wrong = Vec::new();
    let mut add = |message: String| {
        wrong.push(Violation::new(pointer, "invalid_command", message));
    };
    if let Some(character) = command
        .chars()
        .find(|c| "|&;<>()$`\\\"'*?[]{}~!\n\r".contains(*c))
    {
        add(format!(
            "the command contains {character:?}; it is not run by a shell: write an interpreter, a \
             script's path and plain arguments"
        ));
    }
    let mut words = command.split_ascii_whitespace().map(str::to_owned);
    let (Some(runtime), Some(entry)) = (words.next(), words.next()) else {
        add("the command names no script; write it like 'python scripts/tool.py'".to_owned());
        return Err(wrong);
    };
    let arguments: Vec<String> = words.collect();
    if runtime.contains('/') {
        add(format!(
            "'{runtime}' is a path; name the interpreter alone, such as 'python' or 'node'"
        ));
    }
    if arguments.len() > MAX_ARGUMENTS {
        add(format!(
            "the command has {} arguments; at most {MAX_ARGUMENTS}",
            arguments.len()
        ));
    }
    let entry = match super::package::relative_path(&entry) {
        Ok(entry) => entry,
        Err(problem) => {
            add(format!("the script's path '{entry}' {problem}"));
            entry
        }
    };
    if wrong.is_empty() {
        Ok(Program {
            runtime,
            entry,
            arguments,
            packages: String::new(),
            streamed: None,
        })
    } else {
        Err(wrong)
    }
}

/// Combines the parts of a version 2 handler.
///
/// # Errors
/// As [`parse_command`].
pub fn from_handler(pointer: &str, language: &str, path: &str) -> Result<Program, Vec<Violation>> {
    if language.contains(char::is_whitespace) || path.contains(char::is_whitespace) {
        let message = "the language and the script's path must not contain white space";
        return Err(vec![Violation::new(pointer, "invalid_command", message)]);
    }
    parse_command(pointer, &format!("{language} {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_command_is_read() {
        let program = parse_command("/c", "python scripts/BilibiliFetch.py").unwrap();
        assert_eq!(program.runtime, "python");
        assert_eq!(program.entry, "scripts/BilibiliFetch.py");
        assert_eq!(program.arguments, [""; 0]);
        let program = parse_command("/c", "node ./a.js --x 1").unwrap();
        assert_eq!(
            (program.entry.as_str(), program.arguments.len()),
            ("a.js", 2)
        );
    }

    #[test]
    fn a_command_that_needs_a_shell_or_leaves_the_plugin_is_refused() {
        for command in [
            "",
            "python",
            "python a.py; rm x",
            "python $(x)",
            "/usr/bin/python a.py",
            "python ../a.py",
            "python /etc/x.py",
            "python a/../../b.py",
            "python \"a b.py\"",
        ] {
            let wrong = parse_command("/implementation/command", command).unwrap_err();
            assert!(
                wrong.iter().all(|v| v.pointer == "/implementation/command"),
                "{command}"
            );
        }
    }
}
