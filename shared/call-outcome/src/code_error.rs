//! The error of code that a model wrote, read from the output of its interpreter.
//!
//! Only the text is read: a program that prints a text like an error is believed, and harms only
//! itself.

/// The stem of the code's file, whatever its directory.
const FILE: &str = "main";

/// The most characters of a trace that are shown.
const MAX_TRACE_CHARS: usize = 2_000;

/// An error in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeError {
    /// Its kind, such as `KeyError`; empty if the language has none.
    pub kind: String,
    /// The message.
    pub message: String,
    /// The line of the code, from 1, as far as it is known.
    pub line: Option<u32>,
    /// The trace as the interpreter prints it, without the directory of the file.
    pub trace: String,
}

impl CodeError {
    /// One line: kind, message and place.
    pub fn headline(&self) -> String {
        let said = match (self.kind.as_str(), self.message.as_str()) {
            ("", message) => message.to_owned(),
            (kind, "") => kind.to_owned(),
            (kind, message) => format!("{kind}: {message}"),
        };
        match self.line {
            Some(line) => format!("{said} (line {line})"),
            None => said,
        }
    }
}

/// Reads the standard error of code in a language that failed; `None` if it has no error of the
/// language.
pub fn read(language: &str, stderr: &str) -> Option<CodeError> {
    let error = match language {
        "python" | "python3" => python(stderr),
        "nodejs" | "node" | "javascript" => node(stderr),
        "bash" | "sh" => bash(stderr),
        _ => None,
    }?;
    Some(CodeError {
        trace: shortened(&error.trace),
        ..error
    })
}

/// The last trace, which for an error while another was handled is the trace of the error that
/// ended the code. An error of syntax has no head, only the place.
fn python(stderr: &str) -> Option<CodeError> {
    const HEAD: &str = "Traceback (most recent call last):";
    let lines: Vec<&str> = stderr.lines().collect();
    let is_place = |line: &&str| line.starts_with("  File \"");
    let begin = lines
        .iter()
        .rposition(|line| *line == HEAD)
        .or_else(|| lines.iter().position(is_place))?;
    let trace = &lines[begin..];
    let last_place = trace.iter().rposition(is_place)?;
    let said = trace[last_place..]
        .iter()
        .position(|line| !line.starts_with(' '))?;
    let said = trace[last_place + said..].join("\n");
    let (kind, message) = kind_and_message(&said);
    let line = trace.iter().rev().find_map(|line| {
        let (path, rest) = line.strip_prefix("  File \"")?.split_once("\", line ")?;
        is_code(path, ".py").then(|| number(rest)).flatten()
    });
    let shown: Vec<String> = trace.iter().map(|line| without_directory(line)).collect();
    Some(CodeError {
        kind,
        message,
        line,
        trace: shown.join("\n"),
    })
}

/// The place, the line of code, and the error with its frames in the code.
fn node(stderr: &str) -> Option<CodeError> {
    let lines: Vec<&str> = stderr.lines().collect();
    let frame = |line: &str| line.starts_with("    at ");
    // The line of code before the mark may name an error too.
    let is_mark = |line: &&str| line.contains('^') && line.trim_matches([' ', '^']).is_empty();
    let begin = lines.iter().position(is_mark).map_or(0, |mark| mark + 1);
    let said = lines[begin..]
        .iter()
        .position(|line| !line.starts_with(' ') && line.contains("Error"))?;
    let said = begin + said;
    let (kind, message) = kind_and_message(lines[said]);
    let in_code = |line: &str| {
        let (path, rest) = line.split_once(".js:")?;
        let begin = path.rfind(['(', ' ']).map_or(0, |place| place + 1);
        is_code(&format!("{}.js", &path[begin..]), ".js").then(|| number(rest))?
    };
    let place = lines[..said]
        .iter()
        .position(|line| in_code(line).is_some());
    let line = match place {
        Some(place) => in_code(lines[place]),
        None => lines[said..].iter().find_map(|line| in_code(line)),
    };
    let frames = lines[said + 1..]
        .iter()
        .take_while(|line| frame(line) || line.starts_with("  "))
        .filter(|line| in_code(line).is_some());
    let shown: Vec<String> = lines[place.unwrap_or(said)..=said]
        .iter()
        .chain(frames)
        .map(|line| without_directory(line))
        .collect();
    Some(CodeError {
        kind,
        message,
        line,
        trace: shown.join("\n"),
    })
}

/// The last line of the form `main.sh: line 3: what`.
fn bash(stderr: &str) -> Option<CodeError> {
    let (line, message) = stderr.lines().rev().find_map(|line| {
        let (path, rest) = line.split_once(": line ")?;
        let (at, message) = rest.split_once(": ")?;
        let line = at.parse::<u32>().ok()?;
        is_code(path, ".sh").then(|| (line, message.to_owned()))
    })?;
    let shown: Vec<String> = stderr.lines().map(without_directory).collect();
    Some(CodeError {
        kind: String::new(),
        message,
        line: Some(line),
        trace: shown.join("\n"),
    })
}

/// Splits `Kind: message`. Only a single word before the colon is a kind.
fn kind_and_message(said: &str) -> (String, String) {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|each| each.is_alphanumeric() || matches!(each, '_' | '.'))
    };
    match said.split_once(": ") {
        Some((kind, message)) if word(kind) => (kind.to_owned(), message.trim_end().to_owned()),
        _ if word(said.trim_end()) => (said.trim_end().to_owned(), String::new()),
        _ => (String::new(), said.trim_end().to_owned()),
    }
}

/// Returns whether a path belongs to the code: `main` and the suffix, or a numbered file.
fn is_code(path: &str, suffix: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name
        .strip_suffix(suffix)
        .and_then(|stem| stem.strip_prefix(FILE));
    stem.is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or("0");
        (rest.is_empty() || rest.starts_with('-'))
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The number at the beginning of a text.
fn number(text: &str) -> Option<u32> {
    let digits = text.find(|each: char| !each.is_ascii_digit());
    text[..digits.unwrap_or(text.len())].parse().ok()
}

/// Returns a line without the directory of the code's file, which has no meaning and differs each
/// time.
fn without_directory(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(slash) = rest.find('/') {
        let path = &rest[slash..];
        let end = path
            .find(|each: char| each.is_whitespace() || matches!(each, '"' | ':' | ')'))
            .unwrap_or(path.len());
        let path = &path[..end];
        let is_code = [".py", ".js", ".sh"]
            .into_iter()
            .any(|suffix| is_code(path, suffix));
        let name = path.rsplit('/').next().unwrap_or(path);
        shown.push_str(&rest[..slash]);
        shown.push_str(if is_code { name } else { path });
        rest = &rest[slash + end..];
    }
    shown.push_str(rest);
    shown
}

/// Returns the beginning and the end of a long trace: its origin and its error.
fn shortened(trace: &str) -> String {
    const HEAD_CHARS: usize = 400;
    let length = trace.chars().count();
    if length <= MAX_TRACE_CHARS {
        return trace.to_owned();
    }
    let head: String = trace.chars().take(HEAD_CHARS).collect();
    let tail: String = trace
        .chars()
        .skip(length - (MAX_TRACE_CHARS - HEAD_CHARS))
        .collect();
    format!("{head}\n[...]\n{tail}")
}

#[cfg(test)]
mod tests;
