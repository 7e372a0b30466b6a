//! Locks of pip: `name==version --hash=sha256:…`, with a line for each package.

use crate::Lock;

/// Reads a lock.
///
/// # Errors
/// Every wrong line: its number, from 1, and the problem.
pub(super) fn read(text: &str) -> Result<Lock, Vec<(usize, String)>> {
    let mut lock = Lock::default();
    let mut problems = Vec::new();
    for (number, line) in requirements(text) {
        match package(&line) {
            Ok((name, version)) => {
                lock.text += &line.split_whitespace().collect::<Vec<_>>().join(" ");
                lock.text.push('\n');
                if lock.packages.insert(name.clone(), version).is_some() {
                    problems.push((number, format!("{name} stands in an earlier line as well")));
                }
            }
            Err(problem) => problems.push((number, problem)),
        }
    }
    if lock.packages.is_empty() && problems.is_empty() {
        problems.push((1, "no package is named".to_owned()));
    }
    match problems.is_empty() {
        true => Ok(lock),
        false => Err(problems),
    }
}

/// The lines without comments, each with the lines that continue it, under the number of the first.
fn requirements(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (index, line) in text.lines().enumerate() {
        let line = match line.trim_start().starts_with('#') {
            true => "",
            false => line.split(" #").next().unwrap_or_default(),
        };
        let (line, continues) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continued) {
            Some((_, begun)) => *begun += line,
            None if !line.trim().is_empty() => lines.push((index + 1, line.to_owned())),
            None => {}
        }
        continued = continues;
    }
    lines
}

fn package(line: &str) -> Result<(String, String), String> {
    let mut words = line.split_whitespace();
    let named = words.next().unwrap_or_default();
    if named.starts_with('-') {
        return Err(format!(
            "the option {named} is not taken; a lock names packages, and the operator's settings of pip the index"
        ));
    }
    if named.contains("://") || line.contains(" @ ") || named.contains('/') {
        return Err(format!(
            "{named} is not in an index; only `name==version` is taken, without URLs and paths"
        ));
    }
    let Some((name, version)) = named.split_once("==") else {
        return Err(format!(
            "{named} has no exact version; write `name==version`"
        ));
    };
    let plain = |text: &str, more: &[u8]| {
        let one = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
        !text.is_empty() && text.bytes().all(one)
    };
    if !plain(name, b"._-") || !plain(version, b"._-+!") {
        return Err(format!("{named} is not `name==version`"));
    }
    let mut hashes = 0;
    for word in words {
        let digest = word.strip_prefix("--hash=sha256:");
        let hex =
            |digest: &str| digest.len() == 64 && digest.bytes().all(|it| it.is_ascii_hexdigit());
        if !digest.is_some_and(hex) {
            return Err(format!("`{word}` is not `--hash=sha256:` and 64 digits"));
        }
        hashes += 1;
    }
    match hashes {
        0 => Err(format!(
            "{name} has no --hash; `tavern packages lock` writes them"
        )),
        _ => Ok((normalized(name), version.to_owned())),
    }
}

/// The name of a package as indexes compare names: lower case, with one `-` for each run of `-`, `_` and `.`.
pub fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts
        .map(str::to_ascii_lowercase)
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str =
        "--hash=sha256:85cef7cff222d8644161529808465972e51340599459b8ac3ccbac5a854e0d30";

    #[test]
    fn a_lock_names_exact_versions_with_hashes() {
        let text = format!(
            "# made by hand\nsix==1.17.0 {HASH} # compact\n\nPython_Dateutil==2.9.0 \\\n  {HASH} \\\n  {HASH}\n"
        );
        let lock = read(&text).unwrap();
        let found: Vec<_> = lock
            .packages
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        assert_eq!(found, ["python-dateutil 2.9.0", "six 1.17.0"]);
    }

    #[test]
    fn each_line_that_names_something_else_is_refused_at_the_line() {
        let cases = [
            ("six==1.17.0", "no --hash"),
            ("six>=1", "no exact version"),
            ("six==1.17.0 --hash=md5:00", "64 digits"),
            ("-e .", "option -e"),
            (
                "--index-url https://example.org/simple",
                "option --index-url",
            ),
            (
                "--extra-index-url=https://example.org",
                "option --extra-index-url",
            ),
            ("-r other.txt", "option -r"),
            ("https://example.org/six-1.17.0.tar.gz", "not in an index"),
            ("six @ https://example.org/six.whl", "not in an index"),
            ("./six-1.17.0.tar.gz", "not in an index"),
            ("git+https://example.org/six", "not in an index"),
            ("six[x]==1.17.0", "not `name==version`"),
        ];
        for (line, problem) in cases {
            let text = format!("# a comment\nattrs==1.0 {HASH}\n{line}\n");
            let problems = read(&text).unwrap_err();
            assert_eq!(problems.len(), 1, "{line}: {problems:?}");
            assert_eq!(problems[0].0, 3, "{line}");
            assert!(problems[0].1.contains(problem), "{line}: {problems:?}");
        }
        assert_eq!(read("# nothing\n").unwrap_err()[0].0, 1);
        let twice = format!("six==1 {HASH}\nSix==2 {HASH}\n");
        assert_eq!(read(&twice).unwrap_err()[0].0, 2);
    }

    #[test]
    fn pip_reads_only_the_lines_that_were_read_here() {
        let hidden = "evil @ file:///evil.tar.gz";
        for separator in ['\r', '\u{2028}', '\u{b}', '\u{85}', '\u{1c}'] {
            let comment = format!(
                "# harmless{separator}{hidden}\nsix==1.17.0 {HASH} # x{separator}{hidden}\n"
            );
            let lock = read(&comment).unwrap();
            assert_eq!(lock.text, format!("six==1.17.0 {HASH}\n"));
            let inside = format!("six==1.17.0{separator}{hidden} {HASH}\n");
            assert!(read(&inside).is_err(), "{separator:?}");
        }
    }
}
