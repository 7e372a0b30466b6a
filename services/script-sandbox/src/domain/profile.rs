//! Runtimes as data.

use std::collections::BTreeMap;

use serde::Deserialize;

/// How scripts of one language are run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that requests use.
    pub name: String,
    /// Other names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The language.
    pub language: String,
    /// The suffix of script files, with its dot.
    pub file_suffix: String,
    /// The programs to try, in this order: names on the service's own search path, or absolute paths.
    /// The first that works in the sandbox is used.
    pub find: Vec<String>,
    /// Arguments with which the program prints one JSON object: `executable` (an absolute path,
    /// links resolved), `version`, and `mounts` (directories that it needs).
    pub describe: Vec<String>,
    /// The command. `{interpreter}` stands for the executable, `{script}` for the script's path;
    /// the request's arguments follow.
    pub command: Vec<String>,
    /// Variables of every script of this runtime.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Further host directories that the runtime needs; those that do not exist are left out.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// A script that proves that the runtime works; it must end with the code 0.
    pub proof: String,
}

/// Stands for the executable in a command.
pub const INTERPRETER: &str = "{interpreter}";
/// Stands for the script's path in a command.
pub const SCRIPT: &str = "{script}";

impl Profile {
    /// Names what is wrong with the profile.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        let word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
        };
        demand(
            word(&self.name),
            "`name` must be letters, digits and `._-+`",
        );
        demand(
            self.aliases.iter().all(|alias| word(alias)),
            "each of `aliases` must be such a name",
        );
        demand(
            self.file_suffix.strip_prefix('.').is_some_and(word),
            "`file_suffix` must be a dot and a word",
        );
        demand(
            self.command
                .first()
                .is_some_and(|first| first == INTERPRETER),
            "`command` must begin with {interpreter}",
        );
        demand(
            self.command.iter().filter(|part| *part == SCRIPT).count() == 1,
            "`command` must have {script} once",
        );
        demand(!self.find.is_empty(), "`find` must not be empty");
        problems
    }

    /// The command line for a script.
    pub fn command(&self, interpreter: &str, script: &str, arguments: &[String]) -> Vec<String> {
        let fill = |part: &String| match part.as_str() {
            INTERPRETER => interpreter.to_owned(),
            SCRIPT => script.to_owned(),
            _ => part.clone(),
        };
        self.command
            .iter()
            .map(fill)
            .chain(arguments.iter().cloned())
            .collect()
    }

    /// Says that requests may call the runtime so.
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// What an interpreter says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Description {
    /// The real executable.
    pub executable: String,
    /// The version.
    pub version: String,
    /// Directories that it needs.
    #[serde(default)]
    pub mounts: Vec<String>,
}
