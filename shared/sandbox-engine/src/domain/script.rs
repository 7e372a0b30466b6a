//! A request that has been looked at and found sound.

mod room;

use std::collections::BTreeSet;

use super::{
    collect,
    isolation::{IsolationLevel, MemoryEnforcement},
    limits::Limits,
    violation::Violation,
};
use blob_store::BlobDigest;
use room::Taken;

/// The largest script, in bytes.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// The most files.
pub const MAX_FILES: usize = 256;
/// All files together, in bytes.
pub const MAX_FILE_BYTES: usize = 3 << 20;
/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// The most levels in a path.
pub const MAX_PATH_DEPTH: usize = 16;
/// The most arguments, and again the most environment variables.
pub const MAX_ARGUMENTS: usize = 256;
/// The most environment variables.
pub const MAX_VARIABLES: usize = 128;
/// All arguments together, and again all variables together, in bytes.
pub const MAX_STRING_BYTES: usize = 64 << 10;
/// The longest request id.
pub const MAX_REQUEST_ID_BYTES: usize = 128;
/// The longest effect id.
pub const MAX_EFFECT_ID_BYTES: usize = 256;
/// The longest conversation id, in bytes.
pub const MAX_CONVERSATION_ID_BYTES: usize = 256;
/// The longest name of a caller.
pub const MAX_CALLER_BYTES: usize = 128;
/// The largest JSON input, in bytes.
pub const MAX_INPUT_BYTES: usize = 1 << 20;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// This text, in a file of its own.
    Source(String),
    /// One of the files.
    Entry(String),
}

/// One file that the request places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Where, below the working directory.
    pub path: String,
    /// What is in it.
    pub content: Content,
    /// Whether it may be executed.
    pub executable: bool,
}

/// What is in a file that the request places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A blob of the request's caller.
    Blob(BlobDigest),
}

impl Content {
    /// How many bytes the request itself brings.
    pub fn brought(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Blob(_) => 0,
        }
    }
}

/// What happens when a script tries to use a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// It fails inside the script.
    #[default]
    Refuse,
    /// The first attempt ends the script.
    End,
}

/// One script and all it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The runtime's name or alias.
    pub runtime: String,
    /// What to run.
    pub program: Program,
    /// Files that are there when it starts.
    pub files: Vec<InputFile>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it reads from standard input.
    pub stdin: Vec<u8>,
    /// Additional variables.
    pub environment: Vec<(String, String)>,
    /// A JSON value for it; empty if there is none.
    pub input_json: String,
    /// The id of its effect; empty if it has none.
    pub effect_id: String,
    /// The id of its conversation; empty if it has none.
    pub conversation_id: String,
    /// The trace context of the call; empty if there is none.
    pub traceparent: String,
    /// Its limits.
    pub limits: Limits,
    /// The least isolation that the request demands.
    pub minimum_isolation: Option<IsolationLevel>,
    /// The least enforcement of memory that the request demands.
    pub minimum_enforcement: Option<MemoryEnforcement>,
    /// Which of the files that it leaves are collected; none of them if this is missing.
    pub collect: Option<collect::CollectSpec>,
    /// What happens when it tries to use a network.
    pub network: Network,
    /// Whose blobs it is given and leaves.
    pub caller: String,
}

impl Script {
    /// A program and nothing else.
    pub fn of(runtime: String, source: String, limits: Limits) -> Self {
        Self {
            runtime,
            program: Program::Source(source),
            files: Vec::new(),
            arguments: Vec::new(),
            stdin: Vec::new(),
            environment: Vec::new(),
            input_json: String::new(),
            effect_id: String::new(),
            conversation_id: String::new(),
            traceparent: String::new(),
            limits,
            minimum_isolation: None,
            minimum_enforcement: None,
            collect: None,
            network: Network::Refuse,
            caller: String::new(),
        }
    }

    /// Names everything that is wrong, limits excepted: those are checked when they are resolved.
    pub fn problems(&self) -> Vec<Violation> {
        let mut problems = Problems(Vec::new());
        problems.program(&self.program, &self.files);
        problems.files(&self.files);
        // Paths that are too long or too many have more directories than can be counted in time.
        if problems.0.is_empty() {
            problems.room(&Taken::by(self, |_| 0), &self.limits);
        }
        problems.arguments(&self.arguments);
        problems.environment(&self.environment);
        problems.identifier("effect_id", &self.effect_id, MAX_EFFECT_ID_BYTES);
        problems.identifier(
            "conversation_id",
            &self.conversation_id,
            MAX_CONVERSATION_ID_BYTES,
        );
        problems.identifier("caller_id", &self.caller, MAX_CALLER_BYTES);
        if self.input_json.len() > MAX_INPUT_BYTES {
            problems.add(
                "input_json",
                format!("must be at most {MAX_INPUT_BYTES} bytes"),
            );
        } else if !self.input_json.is_empty()
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&self.input_json)
        {
            problems.add("input_json", format!("must be one JSON value: {error}"));
        }
        problems.0
    }

    /// The path of the script below the working directory. A source gets a name that none of its
    /// files has.
    pub fn path(&self, suffix: &str) -> String {
        if let Program::Entry(path) = &self.program {
            return path.clone();
        }
        let taken = |name: &String| {
            let is_it = |file: &InputFile| file.path == *name;
            self.files.iter().any(is_it) || is_directory_of(name, &self.files)
        };
        let numbered = (1..).map(|number| format!("main-{number}{suffix}"));
        std::iter::once(format!("main{suffix}"))
            .chain(numbered)
            .find(|name| !taken(name))
            .expect("there are more numbers than files")
    }

    /// Names what is wrong if the blobs of the script have these sizes, in bytes.
    pub fn problems_with_blobs(&self, size: impl Fn(&BlobDigest) -> u64) -> Vec<Violation> {
        let mut problems = Problems(Vec::new());
        problems.room(&Taken::by(self, size), &self.limits);
        problems.0
    }
}

/// Names what is wrong with the name of a caller.
pub fn caller_problems(caller: &str) -> Vec<Violation> {
    let mut problems = Problems(Vec::new());
    problems.identifier("caller_id", caller, MAX_CALLER_BYTES);
    problems.0
}

/// Names what is wrong with a request id.
pub fn request_id_problems(request_id: &str) -> Vec<Violation> {
    let mut problems = Problems(Vec::new());
    problems.identifier("request_id", request_id, MAX_REQUEST_ID_BYTES);
    problems.0
}

struct Problems(Vec<Violation>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Violation {
            field: field.into(),
            problem: problem.into(),
        });
    }

    fn program(&mut self, program: &Program, files: &[InputFile]) {
        match program {
            Program::Source(source) => {
                if source.is_empty() {
                    self.add("source_text", "must not be empty");
                }
                if source.len() > MAX_SOURCE_BYTES {
                    let most =
                        format!("must be at most {MAX_SOURCE_BYTES} bytes; place a file instead");
                    self.add("source_text", most);
                }
                if source.contains('\0') {
                    self.add("source_text", "must not contain a NUL character");
                }
            }
            Program::Entry(entry) => {
                if !files.iter().any(|file| file.path == *entry) {
                    self.add("entry_path", "must be the path of one of `files`");
                }
            }
        }
    }

    /// What is placed must leave room.
    fn room(&mut self, taken: &Taken, limits: &Limits) {
        if taken.bytes > limits.disk as u64 / 2 {
            let problem = format!(
                "must leave room: source, files and input, in blocks of 4 KiB, may take half of it \
                 and take {} bytes",
                taken.bytes
            );
            self.add("limits.disk_bytes", problem);
        }
        if taken.files > u64::from(limits.disk_files) {
            let problem = format!(
                "must leave room: with the files and their directories at least {} are there",
                taken.files
            );
            self.add("limits.disk_files", problem);
        }
    }

    fn files(&mut self, files: &[InputFile]) {
        if files.len() > MAX_FILES {
            self.add("files", format!("must be at most {MAX_FILES}"));
            return;
        }
        let total: usize = files.iter().map(|file| file.content.brought()).sum();
        if total > MAX_FILE_BYTES {
            self.add(
                "files",
                format!("must be at most {MAX_FILE_BYTES} bytes together"),
            );
        }
        let mut paths = BTreeSet::new();
        for (index, file) in files.iter().enumerate() {
            let field = format!("files[{index}].path");
            if let Some(problem) = path_problem(&file.path) {
                self.add(field, problem);
            } else if !paths.insert(file.path.as_str()) {
                self.add(field, "is the path of another file as well");
            } else if is_directory_of(&file.path, files) {
                self.add(field, "is the directory of another file");
            }
        }
    }

    fn arguments(&mut self, arguments: &[String]) {
        if arguments.len() > MAX_ARGUMENTS {
            self.add("arguments", format!("must be at most {MAX_ARGUMENTS}"));
        }
        if arguments.iter().map(String::len).sum::<usize>() > MAX_STRING_BYTES {
            self.add(
                "arguments",
                format!("must be at most {MAX_STRING_BYTES} bytes together"),
            );
        }
        for (index, _) in arguments
            .iter()
            .enumerate()
            .filter(|(_, text)| text.contains('\0'))
        {
            self.add(
                format!("arguments[{index}]"),
                "must not contain a NUL character",
            );
        }
    }

    fn environment(&mut self, environment: &[(String, String)]) {
        if environment.len() > MAX_VARIABLES {
            self.add(
                "environment",
                format!("must be at most {MAX_VARIABLES} variables"),
            );
            return;
        }
        let total: usize = environment
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if total > MAX_STRING_BYTES {
            self.add(
                "environment",
                format!("must be at most {MAX_STRING_BYTES} bytes together"),
            );
            return;
        }
        for (name, value) in environment {
            let field = format!("environment[{}]", name.escape_default());
            if !is_variable_name(name) {
                self.add(
                    &field,
                    "must be a name of letters, digits and `_`, no digit first",
                );
            }
            if name.starts_with("TAVERN_") || name == "TRACEPARENT" {
                self.add(&field, "is reserved; choose another name");
            }
            if value.contains('\0') {
                self.add(&field, "must not contain a NUL character");
            }
        }
    }

    fn identifier(&mut self, field: &str, id: &str, most: usize) {
        if id.len() > most {
            self.add(field, format!("must be at most {most} characters"));
        }
        if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.add(field, "must be printable ASCII without blanks");
        }
    }
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn path_problem(path: &str) -> Option<String> {
    if path.len() > MAX_PATH_BYTES || path.split('/').count() > MAX_PATH_DEPTH {
        return Some(format!(
            "must be at most {MAX_PATH_BYTES} bytes and {MAX_PATH_DEPTH} levels"
        ));
    }
    if path.split('/').any(|part| part.len() > 255) {
        return Some("must have names of at most 255 bytes".to_owned());
    }
    let sound = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if path.split('/').all(sound) {
        None
    } else {
        Some("must be relative, without `.`, `..`, empty names or NUL".to_owned())
    }
}

fn is_directory_of(path: &str, files: &[InputFile]) -> bool {
    files.iter().any(|file| {
        file.path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests;
