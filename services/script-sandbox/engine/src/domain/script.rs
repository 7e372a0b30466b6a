//! One validated script and everything it needs.
//!
//! The contract states and enforces the bounds of each field by itself (sizes, counts, presence)
//! before a request gets here. This module checks the rest.

use std::{collections::BTreeSet, ops::Deref};

use super::{
    collect,
    isolation::{IsolationLevel, MemoryEnforcement},
    limits::{BLOCK, Limits},
    owner::Owner,
    path::path_problem,
    violation::Violation,
    workspace::WorkspaceCaps,
};
use blob_store::BlobDigest;

/// The most bytes of all files together.
pub const MAX_FILE_BYTES: usize = 3 << 20;
/// The most bytes of all arguments together, and of all variables together.
pub const MAX_STRING_BYTES: usize = 64 << 10;

/// The program to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// This text, in a file of its own.
    Source(String),
    /// One of the files.
    Entry(String),
    /// The driver of a session, which is not a file.
    #[default]
    Driver,
}

/// One file that the request places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Its path below the working directory.
    pub path: String,
    /// Its content.
    pub content: Content,
    /// Whether it may be executed.
    pub executable: bool,
}

/// The content of a file that the request places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A blob of the request's caller.
    Blob(BlobDigest),
}

impl Content {
    /// The number of bytes that the request itself carries.
    pub fn brought(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Blob(_) => 0,
        }
    }
}

/// The workspace of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedWorkspace {
    /// The position of its first file among the files of the script.
    pub first: usize,
    /// The limits of its changes.
    pub caps: WorkspaceCaps,
    /// The directories that hold all of its files; none: the working directory holds them.
    pub directories: Vec<String>,
}

/// The reaction to a script's attempt to use a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The attempt fails inside the script.
    #[default]
    Refuse,
    /// The first attempt ends the script.
    End,
}

/// A script as it is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptSpec {
    /// The runtime's name or alias.
    pub runtime: String,
    /// The package set that it can import; empty for none.
    pub packages: String,
    /// The program.
    pub program: Program,
    /// Files that exist when it starts.
    pub files: Vec<InputFile>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The content of standard input.
    pub stdin: Vec<u8>,
    /// Additional variables.
    pub environment: Vec<(String, String)>,
    /// A JSON value for it; empty if there is none.
    pub input_json: String,
    /// The options of the plugin that it belongs to, as JSON; empty if there are none.
    pub options_json: String,
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
    /// The files to collect of it; none if this is missing.
    pub collect: Option<collect::CollectSpec>,
    /// The workspace to which the last of the files belong; none if there is none.
    pub workspace: Option<PlacedWorkspace>,
    /// The reaction to an attempt to use a network.
    pub network: Network,
    /// The owner of the blobs that it reads and leaves.
    pub owner: Owner,
}

impl ScriptSpec {
    /// The JSON values that come in files of their own: the name of the file, the variable that names its path, and
    /// the value.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let all = [
            ("input.json", "TAVERN_INPUT_PATH", &*self.input_json),
            ("options.json", "TAVERN_OPTIONS", &*self.options_json),
        ];
        all.into_iter().filter(|(.., value)| !value.is_empty())
    }

    /// The directories that are there when it starts.
    pub fn directories(&self) -> &[String] {
        let workspace = self.workspace.as_ref();
        workspace.map_or(&[], |workspace| &workspace.directories)
    }

    /// A script with a program and nothing else.
    pub fn of(runtime: String, program: Program, limits: Limits) -> Self {
        Self {
            runtime,
            program,
            limits,
            ..Self::default()
        }
    }
}

/// A validated script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script(ScriptSpec);

impl Deref for Script {
    type Target = ScriptSpec;

    fn deref(&self) -> &ScriptSpec {
        &self.0
    }
}

impl Script {
    /// A script, if the request is valid. `known` lists the violations already found in the
    /// request.
    ///
    /// # Errors
    /// Every violation.
    pub fn new(spec: ScriptSpec, known: Vec<Violation>) -> Result<Self, Vec<Violation>> {
        let mut problems = Problems(Vec::new());
        problems.program(&spec.program, &spec.files);
        problems.files(&spec.files);
        // Paths that are too long have more directories than can be counted in time.
        if problems.0.is_empty() {
            problems.room(&spec, |_| 0);
        }
        problems.strings("arguments", &spec.arguments);
        for (index, text) in spec.arguments.iter().enumerate() {
            problems.no_nul(&format!("arguments[{index}]"), text);
        }
        problems.environment(&spec.environment);
        problems.identifier("effect_id", &spec.effect_id);
        problems.identifier("conversation_id", &spec.conversation_id);
        problems.identifier("caller_id", spec.owner.caller_id());
        for (field, json) in [
            ("input_json", &spec.input_json),
            ("options_json", &spec.options_json),
        ] {
            if !json.is_empty()
                && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(json)
            {
                problems.add(field, format!("must be one JSON value: {error}"));
            }
        }
        let all = [known, problems.0].concat();
        if all.is_empty() {
            Ok(Self(spec))
        } else {
            Err(all)
        }
    }

    /// The path of the script below the working directory. A source gets a name that none of its
    /// files has.
    pub fn path(&self, suffix: &str) -> String {
        match &self.program {
            Program::Entry(path) => return path.clone(),
            Program::Driver => return String::new(),
            Program::Source(_) => {}
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

    /// Returns the field of the request that names the blob of a file.
    pub fn field_of_blob(&self, index: usize) -> String {
        let of_workspace = |workspace: &PlacedWorkspace| index.checked_sub(workspace.first);
        match self.workspace.as_ref().and_then(of_workspace) {
            Some(index) => format!("workspace.files[{index}].sha256"),
            None => format!("files[{index}].blob_sha256"),
        }
    }

    /// Returns the violations if the blobs of the script have these sizes, in bytes.
    pub fn problems_with_blobs(&self, size: impl Fn(&BlobDigest) -> u64) -> Vec<Violation> {
        let mut problems = Problems(Vec::new());
        problems.room(self, size);
        problems.0
    }
}

/// Returns the violations of the name of a caller or the id of a request.
pub fn identifier_problems(field: &str, id: &str) -> Vec<Violation> {
    let mut problems = Problems(Vec::new());
    problems.identifier(field, id);
    problems.0
}

struct Problems(Vec<Violation>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Violation::new(field, problem));
    }

    fn program(&mut self, program: &Program, files: &[InputFile]) {
        match program {
            Program::Source(source) => self.no_nul("source_text", source),
            Program::Entry(entry) if !files.iter().any(|file| file.path == *entry) => {
                self.add("entry_path", "must be the path of one of `files`");
            }
            Program::Entry(_) | Program::Driver => {}
        }
    }

    /// Checks that the placed files leave room. Files are rounded up to blocks, and a directory
    /// takes one as well.
    fn room(&mut self, spec: &ScriptSpec, blob_size: impl Fn(&BlobDigest) -> u64) {
        /// Directories that exist before files are placed, with a little room for the script
        /// itself.
        const OTHERS: u64 = 8;
        let mut directories = BTreeSet::new();
        let mut sizes = Vec::new();
        for file in &spec.files {
            sizes.push(match &file.content {
                Content::Bytes(bytes) => bytes.len() as u64,
                Content::Blob(digest) => blob_size(digest),
            });
            let ends = file.path.match_indices('/').map(|(end, _)| end);
            directories.extend(ends.map(|end| &file.path[..end]));
        }
        if let Program::Source(source) = &spec.program {
            sizes.push(source.len() as u64);
        }
        sizes.extend(spec.values().map(|(.., value)| value.len() as u64));
        let directories = directories.len() as u64;
        let blocks = sizes.iter().map(|size| size.div_ceil(BLOCK));
        let blocks = blocks.fold(directories, u64::saturating_add);
        let bytes = blocks.saturating_mul(BLOCK);
        if bytes > spec.limits.disk as u64 / 2 {
            let problem = format!(
                "must leave room: source, files and input, in blocks of 4 KiB, may take half of it \
                 and take {bytes} bytes"
            );
            self.add("limits.disk_bytes", problem);
        }
        let files = OTHERS + directories + sizes.len() as u64;
        if files > u64::from(spec.limits.disk_files) {
            let problem = format!(
                "must leave room: with the files and their directories at least {files} are there"
            );
            self.add("limits.disk_files", problem);
        }
    }

    fn files(&mut self, files: &[InputFile]) {
        let total: usize = files.iter().map(|file| file.content.brought()).sum();
        self.at_most("files", total, MAX_FILE_BYTES);
        let mut paths = BTreeSet::new();
        for (index, file) in files.iter().enumerate() {
            let field = format!("files[{index}].path");
            if let Some(problem) = path_problem(&file.path) {
                self.add(field, problem);
            } else if !paths.insert(file.path.as_str()) {
                self.add(field, "is the path of another file as well");
            }
        }
        for (index, file) in files.iter().enumerate() {
            let below = format!("{}/", file.path);
            let mut after = paths.range(below.as_str()..);
            if after.next().is_some_and(|path| path.starts_with(&below)) {
                let field = format!("files[{index}].path");
                self.add(field, "is the directory of another file");
            }
        }
    }

    fn strings<'a>(&mut self, field: &str, texts: impl IntoIterator<Item = &'a String>) {
        let total = texts.into_iter().map(String::len).sum();
        self.at_most(field, total, MAX_STRING_BYTES);
    }

    fn at_most(&mut self, field: &str, total: usize, most: usize) {
        if total > most {
            self.add(field, format!("must be at most {most} bytes together"));
        }
    }

    fn no_nul(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "must not contain a NUL character");
        }
    }

    fn environment(&mut self, environment: &[(String, String)]) {
        let texts = environment.iter().flat_map(|(name, value)| [name, value]);
        self.strings("environment", texts);
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
            self.no_nul(&field, value);
        }
    }

    fn identifier(&mut self, field: &str, id: &str) {
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

fn is_directory_of(path: &str, files: &[InputFile]) -> bool {
    files.iter().any(|file| {
        file.path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests;
