//! Runtimes as data.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The way in which scripts of one language run.
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
    /// The way in which an interpreter waits for its script. Missing: an interpreter is started for
    /// every script.
    pub warm: Option<WarmProfile>,
    /// The way in which a session runs. Missing: the runtime has none.
    #[serde(default)]
    pub session: Option<SessionProfile>,
    /// The way in which package sets are built and found. Missing: the runtime has none.
    #[serde(default)]
    pub packages: Option<PackagesProfile>,
}

/// The way in which package sets are built and found.
///
/// `prepare` runs in the sandbox when a set is built, with the set. It reads a JSON object from the file that
/// `TAVERN_INPUT_PATH` names: `test` (code that must not fail) and `caches` (directories below the one for temporary files,
/// which the test fills). `TAVERN_PACKAGES_PATH` names the directory of the libraries. It may leave `prepared.zip`, with
/// bytecode below `tree/` and the files of the caches below `caches/`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackagesProfile {
    /// The program that fetches packages.
    pub installer: Installer,
    /// The variable by which the interpreter finds the libraries. Empty: none.
    #[serde(default)]
    pub path_variable: String,
    /// The directory of the set that scripts find above their working directory. Empty: none.
    #[serde(default)]
    pub above: String,
    /// Arguments with which the interpreter prints, between blanks, the names that no library may have. Empty: all may be
    /// had.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// The script that prepares a set.
    pub prepare: String,
}

/// A program that fetches packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Installer {
    /// Python's.
    Pip,
    /// That of Node.js.
    Npm,
}

/// The way in which a session runs.
///
/// The driver reads frames from descriptor 4 and writes frames to descriptor 3: the length as four
/// bytes, least first, and so many bytes of JSON. It begins with `{"ready": {}}`. For each
/// `{"cell": 1, "source": "...", "limit": 1000}` that it reads it runs the source, in the same
/// namespace every time, flushes both text streams, and writes
/// `{"done": {"cell": 1, "outcome": "ok"}}`. The outcome may be `error` or `interrupted` instead;
/// `value` (`text`, `truncated`) is the value of the last expression, `error` (`type`, `message`,
/// `frames`, `omitted`, `text`) is the error, and `dropped` counts results that it does not report.
/// SIGINT ends a cell and never the driver. It ends at the end of its input.
///
/// A result of the cell is `{"result": {"cell": 1, "origin": "display", "data": {...}, "metadata": ""}}`, with the origin
/// `expression`, `display` or `figure`, a text for each media type (in Base64 if the type is neither text nor JSON), and
/// the text of a JSON object or none. A message may come in pieces, in frames that begin with `<` for the first, `+` and
/// `>` for the last: each is written at once, so that an interrupt leaves no part of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionProfile {
    /// The command. `{interpreter}` stands for the executable, `{driver}` for the driver's text.
    pub command: Vec<String>,
    /// The driver.
    #[serde(default)]
    pub driver: String,
    /// Files of the driver in the place of its text, in order. They stand beside the profile, or come with the service.
    #[serde(default)]
    pub driver_files: Vec<String>,
}

/// The placeholder for the text of a session's driver in a command.
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

/// Replaces the placeholders of a command with values.
fn fill(command: &[String], values: &[(&str, &str)]) -> Vec<String> {
    let value = |part: &String| {
        let value = values.iter().find(|(name, _)| part == name);
        value.map_or(part.as_str(), |(_, value)| value).to_owned()
    };
    command.iter().map(value).collect()
}

/// The way in which an interpreter waits for its script.
///
/// It is started for a script at a certain path, and its boot program holds it up before it looks for
/// that script. The boot program removes its file and the file's directory; writes the names that
/// it has loaded and that no file of a request may have, blanks between them and a newline behind
/// them, to descriptor 4; reads from there to the end; and closes it. If it reads nothing, it ends.
/// Otherwise it has read texts that each end with a NUL: the number of arguments, the arguments, of
/// which the first is the script's path, and then the whole environment as `NAME=value`. It adopts
/// them and lets the interpreter run the script.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmProfile {
    /// The command. `{interpreter}` and `{script}` as in the profile's own; `{boot}` stands for the
    /// directory of the boot program.
    pub command: Vec<String>,
    /// The modules to load ahead; `{preload}` in the boot program stands for these words.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Variables that the interpreter reads while it starts; `*` at the end stands for anything. A
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

/// The placeholder for the executable in a command.
pub const INTERPRETER: &str = "{interpreter}";
/// The placeholder for the script's path in a command.
pub const SCRIPT: &str = "{script}";
/// The placeholder for the directory of the boot program.
pub const BOOT: &str = "{boot}";
/// The placeholder for the modules that a boot program loads ahead.
pub const PRELOAD: &str = "{preload}";

impl Profile {
    /// Returns the faults of the profile.
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
            // The longest argument that the kernel accepts.
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

    /// Returns whether requests may use this name for the runtime.
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

    /// The boot program, which loads these modules too.
    pub fn boot(&self, more: &[String]) -> String {
        let modules = [self.preload.as_slice(), more].concat();
        self.boot.replace(PRELOAD, &modules.join(" "))
    }

    /// Returns whether the interpreter reads a variable while it starts.
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

/// An interpreter's description of itself.
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
