//! The commands that lock, build, list and remove sets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::Context;
use testkit::{binary, repository, size};

use super::PROGRAMS;

/// Kills in `make test`.
const KILLS: usize = 4;

/// The directories of the files of sets.
fn shipped() -> [PathBuf; 2] {
    let small = "services/script-sandbox/package-builder/tests/packages";
    [small, "deploy/packages"].map(|path| repository().join(path))
}

/// A directory with `deploy/packages` as the tests have it, and an empty `data`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> anyhow::Result<Self> {
        let place = Self(tempfile::tempdir()?);
        fs::create_dir_all(place.files())?;
        for directory in shipped() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                fs::copy(entry.path(), place.files().join(entry.file_name()))?;
            }
        }
        Ok(place)
    }

    fn files(&self) -> PathBuf {
        self.0.path().join("deploy/packages")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(binary("tavern")?);
        command
            .arg("packages")
            .args(arguments)
            .arg("--deploy-dir")
            .arg(self.0.path().join("deploy"))
            .arg("--data-dir")
            .arg(self.data())
            .env("PATH", PROGRAMS);
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command(arguments)?.output()?)
    }

    /// Returns the output of a command that succeeds.
    fn printed(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(arguments)?;
        anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the error of a command that fails; no half of a set may be left.
    fn refused(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(arguments)?;
        anyhow::ensure!(!output.status.success(), "{arguments:?} succeeded");
        assert_eq!(self.leavings()?, Vec::<PathBuf>::new());
        Ok(String::from_utf8(output.stderr)?)
    }

    /// Directories that are no whole set.
    fn leavings(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let sets = self.data().join("packages");
        let staged = entries(&sets).into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(".building")
        });
        let half = entries(&sets.join(".sets")).into_iter();
        let half = half.filter(|path| !path.join("set.json").is_file());
        Ok(staged.chain(half).collect())
    }

    fn digest(&self, name: &str) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.data().join("packages").join(name).join("set.json"))?;
        let set: serde_json::Value = serde_json::from_str(&text)?;
        Ok(set["digest"].as_str().context("a digest")?.to_owned())
    }
}

#[test]
fn one_lock_gives_one_digest_and_a_set_is_removed_as_a_whole() -> anyhow::Result<()> {
    let (one, other) = (Place::new()?, Place::new()?);
    for name in ["small", "web"] {
        assert!(
            one.printed(&["build", name])?
                .starts_with(&format!("built {name} sha256:"))
        );
        other.printed(&["build", name])?;
        assert_eq!(one.digest(name)?, other.digest(name)?);
        assert!(one.printed(&["build", name])?.starts_with("unchanged"));
    }
    let listed = one.printed(&["list"])?;
    assert!(
        listed.contains("python-dateutil") && listed.contains("lodash"),
        "{listed}"
    );
    one.printed(&["remove", "small"])?;
    let listed = one.printed(&["list"])?;
    assert!(
        !listed.contains("small") && listed.contains("web"),
        "{listed}"
    );
    let absent = one.refused(&["build", "none-such"])?;
    assert!(
        absent.contains("`tavern packages lock none-such PACKAGE...` writes it"),
        "{absent}"
    );
    let twice = one.refused(&["remove", "small"])?;
    assert!(
        twice.contains("no package set is named `small`; there are: web"),
        "{twice}"
    );
    // Another description is another set, and takes the place of the one before it.
    let file = other.files().join("small.set.toml");
    let text = fs::read_to_string(&file)?;
    fs::write(
        &file,
        text.replace("\"dateutil.parser\"", "\"dateutil.tz\""),
    )?;
    let before = other.digest("small")?;
    other.printed(&["build", "small"])?;
    assert_ne!(other.digest("small")?, before);
    assert_eq!(
        fs::read_dir(other.data().join("packages/.sets"))?.count(),
        2
    );
    Ok(())
}

#[test]
fn a_build_leaves_a_set_alone_whose_description_it_cannot_read() -> anyhow::Result<()> {
    let place = Place::new()?;
    place.printed(&["build", "web"])?;
    let manifest = place.data().join("packages/web/set.json");
    let text = fs::read_to_string(&manifest)?;
    fs::write(
        &manifest,
        text.replace("\"runtime\"", "\"of_another_version\""),
    )?;
    place.printed(&["build", "small"])?;
    assert!(
        place
            .data()
            .join("packages/web/tree/node_modules/lodash")
            .is_dir()
    );
    assert!(!place.printed(&["list"])?.contains("web"));
    // Building it again makes it whole, and so it can be removed as it is.
    assert!(place.printed(&["build", "web"])?.starts_with("built web"));
    fs::write(&manifest, "{}")?;
    place.printed(&["remove", "web"])?;
    Ok(())
}

#[test]
fn names_that_lead_to_code_are_not_resolved() -> anyhow::Result<()> {
    let place = Place::new()?;
    for package in [
        "/tmp/evil",
        "./evil",
        "git+https://example.org/x",
        "x @ file:///tmp/evil",
        "a/b",
    ] {
        let refused = place.refused(&["lock", "texts", package])?;
        assert!(
            refused.contains("only names of an index"),
            "{package}: {refused}"
        );
        assert!(!place.files().join("texts.set.toml").exists());
    }
    let conflict = place.refused(&["lock", "small", "six", "--runtime", "node"])?;
    assert!(
        conflict.contains("its `runtime` is python3, not node"),
        "{conflict}"
    );
    Ok(())
}

#[test]
fn a_lock_is_resolved_with_a_hash_for_every_file() -> anyhow::Result<()> {
    let place = Place::new()?;
    place.printed(&["lock", "texts", "six==1.17.0"])?;
    let lock = fs::read_to_string(place.files().join("texts.lock"))?;
    assert!(
        lock.contains("six==1.17.0") && lock.contains("--hash=sha256:"),
        "{lock}"
    );
    assert!(place.files().join("texts.set.toml").is_file());
    place.printed(&["build", "texts"])?;
    place.printed(&["lock", "pages", "lodash@4.17.21", "--runtime", "node"])?;
    let lock = fs::read_to_string(place.files().join("pages.lock"))?;
    assert!(
        lock.contains("sha512-") && !lock.contains("resolved"),
        "{lock}"
    );
    Ok(())
}

#[test]
fn locks_and_files_that_cannot_be_trusted_are_refused() -> anyhow::Result<()> {
    let place = Place::new()?;
    let lock = fs::read_to_string(place.files().join("small.lock"))?;
    let digest = lock.split("sha256:").nth(1).context("a digest")?;
    let digest = digest.get(..64).context("64 digits")?;
    let cases = [
        (lock.replace(digest, &"0".repeat(64)), "HASH"),
        (
            format!("{lock}\n--index-url https://example.org/simple\n"),
            "option --index-url",
        ),
        (format!("{lock}\nattrs==1.0\n"), "attrs has no --hash"),
        (format!("{lock}\n-e .\n"), "option -e"),
    ];
    for (lock, problem) in cases {
        fs::write(place.files().join("small.lock"), lock)?;
        let refused = place.refused(&["build", "small"])?;
        assert!(refused.contains(problem), "{problem}: {refused}");
    }
    fs::write(place.files().join("small.lock"), lock)?;
    let file = place.files().join("small.set.toml");
    let text = fs::read_to_string(&file)?;
    for (test, problem) in [
        ("import none_such", "No module named 'none_such'"),
        ("raise SystemExit(3)", "does not work in the sandbox"),
    ] {
        fs::write(&file, text.replace("import six, dateutil.parser", test))?;
        let refused = place.refused(&["build", "small"])?;
        assert!(refused.contains(problem), "{problem}: {refused}");
    }
    fs::write(
        &file,
        text.replace("warm = [\"six\", ", "warm = [\"none_such\", "),
    )?;
    let refused = place.refused(&["build", "small"])?;
    assert!(refused.contains("no interpreter waits"), "{refused}");
    assert!(
        place
            .printed(&["list"])?
            .contains("no package set is built")
    );
    Ok(())
}

#[test]
fn a_full_disk_fails_a_build_and_leaves_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::create_dir_all(place.data())?;
    let build = place.command(&["build", "small"])?;
    let arguments: Vec<_> = build
        .get_args()
        .map(|argument| argument.to_owned())
        .collect();
    // A file system of 300 KiB, in a mount namespace of its own, which needs root.
    let script = "mount -t tmpfs -o size=300k full \"$1\" && shift && \"$@\"; code=$?; \
                  find \"$DATA\" -name '.building*' -o -name tree; exit $code";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(place.data())
        .arg(binary("tavern")?)
        .args(arguments)
        .env("PATH", PROGRAMS)
        .env("DATA", place.data())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    Ok(())
}

/// The set of `TAVERN_TEST_SET` is killed `TAVERN_TEST_KILLS` times.
#[test]
fn a_build_that_is_killed_leaves_no_set_and_the_next_one_the_same_digest() -> anyhow::Result<()> {
    let kills = size("TAVERN_TEST_KILLS", KILLS)?;
    let set = std::env::var("TAVERN_TEST_SET").unwrap_or_else(|_| "small".to_owned());
    let set = set.as_str();
    let whole = Place::new()?;
    let begun = std::time::Instant::now();
    whole.printed(&["build", set])?;
    let longest = begun.elapsed();
    let place = Place::new()?;
    for _ in 0..kills {
        let mut build = place.command(&["build", set])?.spawn()?;
        std::thread::sleep(longest.mul_f64(fastrand::f64()));
        build.kill()?;
        build.wait()?;
        let listed = place.printed(&["list"])?;
        match listed.contains("no package set") {
            true => assert!(place.digest(set).is_err()),
            false => {
                assert_eq!(place.digest(set)?, whole.digest(set)?);
                // The next build begins anew.
                place.printed(&["remove", set])?;
            }
        }
    }
    place.printed(&["build", set])?;
    assert_eq!(place.digest(set)?, whole.digest(set)?);
    assert_eq!(place.leavings()?, Vec::<PathBuf>::new());
    Ok(())
}
