//! The package that code wanted and did not find, read from the output of a failure.
//!
//! Only the text is read: a program that prints such a text is believed, and harms only itself.

use crate::code_error;

/// The last lines of an output that are read.
const LINES: usize = 60;

/// A package that code wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPackage {
    /// The name of a module or package; `None` where code tried to install and the name is not known.
    pub name: Option<String>,
    /// Whether code tried to install it, and did not just import it.
    pub installs: bool,
}

/// Reads the standard error of code in a language that failed; `None` if it did not fail for a missing package.
pub fn read(language: &str, stderr: &str) -> Option<MissingPackage> {
    let mut lines = stderr.lines().rev().take(LINES).map(str::trim);
    let Some(error) = code_error::read(language, stderr) else {
        // Programs such as pip have the last word in a shell.
        return lines.find_map(of_line);
    };
    match error.kind.as_str() {
        "ModuleNotFoundError" => of_line(&format!("{}: {}", error.kind, error.message)),
        // An install command in the text of a program that is no command of its language.
        "SyntaxError" => stderr.lines().map(str::trim).find_map(install_command),
        // A program that was called, or is missing.
        "CalledProcessError" | "subprocess.CalledProcessError" | "FileNotFoundError" => {
            lines.find_map(of_line)
        }
        // Node.js has one kind for all modules, and a shell has none.
        "" | "Error" => of_line(&error.message).or_else(|| match language {
            "bash" | "sh" => lines.find_map(of_line),
            _ => None,
        }),
        _ => None,
    }
}

fn of_line(line: &str) -> Option<MissingPackage> {
    let named = |name: &str, installs| MissingPackage {
        name: Some(name.to_owned()),
        installs,
    };
    const UNNAMED: [&str; 10] = [
        "No module named pip",
        "pip: command not found",
        "pip3: command not found",
        "pip: not found",
        "pip3: not found",
        "npm: command not found",
        "npm: not found",
        "code ENOTCACHED",
        "error: externally-managed-environment",
        "No such file or directory: 'pip'",
    ];
    if let Some(rest) = line.strip_prefix("ModuleNotFoundError: No module named ") {
        let name = quoted(rest)?.split('.').next()?;
        return Some(named(name, false));
    }
    for (before, after) in [
        ("Cannot find module ", ""),
        ("Cannot find package ", " imported from"),
    ] {
        if let Some((_, rest)) = line.split_once(before)
            && let Some(name) = quoted(rest)
            && rest.contains(after)
            && !name.starts_with(['.', '/'])
        {
            return Some(named(module_of(name), false));
        }
    }
    if let Some((_, rest)) = line.split_once("No matching distribution found for ") {
        return Some(named(
            without_version(rest.split_whitespace().next()?),
            true,
        ));
    }
    let unnamed = UNNAMED.iter().any(|said| line.contains(said));
    unnamed.then_some(MissingPackage {
        name: None,
        installs: true,
    })
}

/// The text between the first quotes of a line.
fn quoted(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(['\'', '"'])?;
    rest.split(['\'', '"'])
        .next()
        .filter(|name| !name.is_empty())
}

/// The package of a module of Node.js: its first part, or two for a scope.
fn module_of(path: &str) -> &str {
    let parts = if path.starts_with('@') { 2 } else { 1 };
    match path.match_indices('/').nth(parts - 1) {
        Some((end, _)) => &path[..end],
        None => path,
    }
}

/// The package of a line that installs one, as a shell or a notebook reads it.
fn install_command(line: &str) -> Option<MissingPackage> {
    let command = line.trim_start_matches(['!', '%']).trim_start();
    let mut words = command.split_whitespace().peekable();
    let program = words.next()?;
    let program = match program {
        "python" | "python3" => {
            words.next_if_eq(&"-m")?;
            words.next()?
        }
        program => program,
    };
    let installs = match program {
        "pip" | "pip3" | "conda" | "apt" | "apt-get" => words.next()? == "install",
        "npm" => matches!(words.next()?, "install" | "i" | "add"),
        "yarn" | "pnpm" => words.next()? == "add",
        _ => false,
    };
    let name = words.find(|word| !word.starts_with('-'));
    installs.then(|| MissingPackage {
        name: name.map(|name| without_version(name).to_owned()),
        installs,
    })
}

/// The name of a requirement such as `numpy>=2` or `lodash@4`.
fn without_version(requirement: &str) -> &str {
    let scope = usize::from(requirement.starts_with('@'));
    let rest = &requirement[scope..];
    let end = rest.find(['=', '<', '>', '~', '!', '[', ';', '@', '\'', '"']);
    &requirement[..end.map_or(requirement.len(), |end| scope + end)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_package_is_read_from_the_words_of_each_program() {
        let cases = [
            (
                "Traceback (most recent call last):\n  File \"main.py\", line 1\nModuleNotFoundError: No module named 'matplotlib.pyplot'",
                Some("matplotlib"),
            ),
            (
                "/usr/bin/python3: No module named pip\nTraceback (most recent call last):\n  File \"main.py\", line 1\nsubprocess.CalledProcessError: x",
                None,
            ),
            (
                "  File \"<cell 1>\", line 1\n    !pip install -q pandas>=2 numpy\n    ^\nSyntaxError: invalid syntax",
                Some("pandas"),
            ),
            (
                "  File \"main.py\", line 1\n    pip install six\n        ^^^^^^^\nSyntaxError: invalid syntax",
                Some("six"),
            ),
            (
                "  File \"main.py\", line 1\n    %pip install scikit-learn[all]==1\nSyntaxError: invalid syntax",
                Some("scikit-learn"),
            ),
            (
                "  File \"main.py\", line 1\n    !python -m pip install six\nSyntaxError: invalid syntax",
                Some("six"),
            ),
            (
                "ERROR: Could not find a version that satisfies the requirement six (from versions: none)\n\
                 ERROR: No matching distribution found for six==1.0",
                Some("six"),
            ),
            ("main.sh: line 1: pip: command not found", None),
            (
                "npm error code ENOTCACHED\nnpm error request to x failed",
                None,
            ),
            (
                "Error: Cannot find module 'lodash/fp'\nRequire stack:\n- /script/main.js",
                Some("lodash"),
            ),
            (
                "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/x' imported from /script/main.mjs",
                Some("@scope/x"),
            ),
            (
                "/script/main.js:1\n!npm install date-fns@3\n ^^^\n\nSyntaxError: Invalid or unexpected token",
                Some("date-fns"),
            ),
        ];
        for (stderr, name) in cases {
            let name = name.map(str::to_owned);
            let language = match stderr {
                node if node.contains(".js") || node.contains("npm install") => "nodejs",
                shell if shell.contains("main.sh") || shell.contains("npm error") => "bash",
                _ => "python",
            };
            let missing = read(language, stderr).expect(stderr);
            assert_eq!(missing.name, name, "{stderr}");
        }
    }

    #[test]
    fn other_failures_want_no_package() {
        for (language, stderr) in [
            ("python", ""),
            (
                "python",
                "Traceback (most recent call last):\n  File \"main.py\", line 1\nZeroDivisionError: division by zero",
            ),
            (
                "python",
                "Traceback (most recent call last):\n  File \"main.py\", line 1\nModuleNotFoundError: No module named 'ujson'\n\n\
                 During handling of the above exception, another exception occurred:\n\n\
                 Traceback (most recent call last):\n  File \"main.py\", line 3\nKeyError: 'x'",
            ),
            (
                "python",
                "Cannot find module 'x'\nTraceback (most recent call last):\n  File \"main.py\", line 1\nValueError",
            ),
            (
                "nodejs",
                "Error: Cannot find module './mine.js'\n    at Module (node:internal)",
            ),
            ("nodejs", "Error: Cannot find module '/script/mine.js'"),
            (
                "python",
                "Traceback (most recent call last):\n  File \"main.py\", line 1\nImportError: cannot import name 'x' from 'json'",
            ),
            (
                "python",
                "  File \"main.py\", line 1\n    x = = 1\nSyntaxError: invalid syntax",
            ),
        ] {
            assert_eq!(read(language, stderr), None, "{stderr}");
        }
    }
}
