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
    /// The programs to try: names on the service's own search path, or absolute paths. Of those that work
    /// in the sandbox, the fastest is used.
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
    /// How an interpreter waits for its script. Missing: every script gets one that is started for
    /// it.
    pub warm: Option<WarmProfile>,
    /// How a session is held. Missing: the runtime has none.
    #[serde(default)]
    pub session: Option<SessionProfile>,
}

/// How a session is held.
///
/// The driver reads frames from descriptor 4 and writes frames to descriptor 3: the length as four
/// bytes, least first, and so many bytes of JSON. It begins with `{"ready": {}}`. For each
/// `{"cell": 1, "source": "...", "limit": 1000}` that it reads it runs the source, in the same
/// namespace every time, flushes both text streams, and writes
/// `{"done": {"cell": 1, "outcome": "ok"}}`. The outcome may be `error` or `interrupted` instead;
/// `value` (`text`, `truncated`) is what the last expression gave, and `error` (`type`, `message`,
/// `frames`, `omitted`, `text`) is what went wrong. SIGINT ends a cell and never the driver. It ends
/// when there is nothing more to read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionProfile {
    /// The command. `{interpreter}` stands for the executable, `{driver}` for the driver's text.
    pub command: Vec<String>,
    /// The driver.
    pub driver: String,
}

/// Stands for the text of a session's driver in a command.
pub const DRIVER: &str = "{driver}";

impl SessionProfile {
    /// The command line of a session.
    pub fn command(&self, interpreter: &str) -> Vec<String> {
        fill(
            &self.command,
            &[(INTERPRETER, interpreter), (DRIVER, &self.driver)],
        )
    }
}

/// Puts values in the place of the parts of a command that stand for them.
fn fill(command: &[String], values: &[(&str, &str)]) -> Vec<String> {
    let value = |part: &String| {
        let value = values.iter().find(|(name, _)| part == name);
        value.map_or(part.as_str(), |(_, value)| value).to_owned()
    };
    command.iter().map(value).collect()
}

/// How an interpreter waits for its script.
///
/// It is started for a script at a certain path, and its boot program holds it up before it looks for
/// that script. The boot program removes its file and the file's directory; writes the names that
/// it has loaded and that no file of a request may have, blanks between them and a newline behind
/// them, to descriptor 4; reads from there to the end; and closes it. If there is nothing to read, it
/// ends. Else it has read texts that each end with a NUL: the number of arguments, the arguments, of
/// which the first is the script's path, and then the whole environment as `NAME=value`. It takes them
/// for its own and lets the interpreter turn to the script.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmProfile {
    /// The command. `{interpreter}` and `{script}` as in the profile's own; `{boot}` stands for the
    /// directory of the boot program.
    pub command: Vec<String>,
    /// What is loaded ahead; `{preload}` in the boot program stands for these words.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Variables that the interpreter looks at while it starts; `*` at the end stands for anything. A
    /// script whose request sets one gets an interpreter of its own.
    #[serde(default)]
    pub startup_variables: Vec<String>,
    /// The name of the boot program's file.
    pub boot_file: String,
    /// The boot program.
    pub boot: String,
    /// Further variables of the waiting interpreter, with `{boot}`; the boot program unsets them.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// Stands for the executable in a command.
pub const INTERPRETER: &str = "{interpreter}";
/// Stands for the script's path in a command.
pub const SCRIPT: &str = "{script}";
/// Stands for the directory of the boot program.
pub const BOOT: &str = "{boot}";
/// Stands for what a boot program loads ahead.
pub const PRELOAD: &str = "{preload}";

impl Profile {
    /// Names what is wrong with the profile.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        let names = "letters, digits and `._-+`";
        let all_words = |words: &[String]| words.iter().all(|each| word(each));
        let runs = |command: &[String], wanted: &str| {
            let begins = command.first().is_some_and(|first| first == INTERPRETER);
            begins && command.iter().filter(|part| *part == wanted).count() == 1
        };
        let fits =
            |text: &str, most: usize| (1..most).contains(&text.len()) && !text.contains('\0');
        demand(word(&self.name), &format!("`name` must be {names}"));
        demand(
            all_words(&self.aliases),
            "each of `aliases` must be such a name",
        );
        demand(
            self.file_suffix.strip_prefix('.').is_some_and(word),
            "`file_suffix` must be a dot and a word",
        );
        demand(
            runs(&self.command, SCRIPT),
            "`command` must begin with {interpreter} and have {script} once",
        );
        demand(!self.find.is_empty(), "`find` must not be empty");
        demand(
            fits(&self.proof, 1 << 20),
            "`proof` must be from 1 byte to 1 MiB, without NUL",
        );
        if let Some(warm) = &self.warm {
            demand(
                runs(&warm.command, SCRIPT),
                "`warm.command` must begin with {interpreter} and have {script} once",
            );
            demand(
                word(&warm.boot_file),
                &format!("`warm.boot_file` must be {names}"),
            );
            demand(
                all_words(&warm.preload),
                "each of `warm.preload` must be such a name",
            );
        }
        if let Some(session) = &self.session {
            demand(
                runs(&session.command, DRIVER),
                "`session.command` must begin with {interpreter} and have {driver} once",
            );
            // What the kernel takes as one argument.
            demand(
                fits(&session.driver, 128 << 10),
                "`session.driver` must be from 1 byte to 128 KiB, without NUL",
            );
        }
        problems
    }

    /// The command line for a script.
    pub fn command(&self, interpreter: &str, script: &str, arguments: &[String]) -> Vec<String> {
        let command = fill(
            &self.command,
            &[(INTERPRETER, interpreter), (SCRIPT, script)],
        );
        [command, arguments.to_vec()].concat()
    }

    /// Returns whether requests may call the runtime so.
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl WarmProfile {
    /// The command line of an interpreter that waits for the script at this path.
    pub fn command(&self, interpreter: &str, boot: &str, script: &str) -> Vec<String> {
        let parts = self.command.iter();
        let command: Vec<String> = parts.map(|part| part.replace(BOOT, boot)).collect();
        fill(&command, &[(INTERPRETER, interpreter), (SCRIPT, script)])
    }

    /// The boot program.
    pub fn boot(&self) -> String {
        self.boot.replace(PRELOAD, &self.preload.join(" "))
    }

    /// Returns whether the interpreter looks at a variable while it starts.
    pub fn looks_at(&self, variable: &str) -> bool {
        self.startup_variables
            .iter()
            .any(|name| match name.strip_suffix('*') {
                Some(beginning) => variable.starts_with(beginning),
                None => variable == name,
            })
    }
}

fn word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
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
