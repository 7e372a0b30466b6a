//! Finds the interpreters that the profiles name.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use figment::{
    Figment,
    providers::{Format, Toml},
};
use tokio::{process::Command, task::JoinSet};

use crate::{
    domain::profile::{Description, Profile},
    error::BuildError,
};

/// The profiles that come with the service.
const BUILT_IN: [(&str, &str); 3] = [
    ("python3.toml", include_str!("../profiles/python3.toml")),
    ("node.toml", include_str!("../profiles/node.toml")),
    ("bash.toml", include_str!("../profiles/bash.toml")),
];

/// The files of the drivers of their sessions.
const DRIVERS: [(&str, &str); 4] = [
    (
        "python3_results.py",
        include_str!("../profiles/python3_results.py"),
    ),
    (
        "python3_session.py",
        include_str!("../profiles/python3_session.py"),
    ),
    (
        "node_results.js",
        include_str!("../profiles/node_results.js"),
    ),
    (
        "node_session.js",
        include_str!("../profiles/node_session.js"),
    ),
];

/// The longest time that an interpreter may take to describe itself.
const DESCRIBE_TIME: Duration = Duration::from_secs(60);

/// A runtime, with the interpreters of this host.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Its profile.
    pub profile: Profile,
    /// Other interpreters of this host that it could use, in the profile's order.
    pub others: VecDeque<Interpreter>,
    /// The interpreter, or the reasons why none was found.
    pub interpreter: Result<Interpreter, String>,
    /// Every interpreter that works in the sandbox, in the profile's order.
    pub proven: Vec<Interpreter>,
    problems: Vec<String>,
}

/// An interpreter of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The real executable.
    pub executable: PathBuf,
    /// The version that it reports.
    pub version: String,
    /// Directories that it needs.
    pub mounts: Vec<PathBuf>,
}

/// Finds the interpreters of every profile, built-in or below the directory; by name.
///
/// # Errors
/// Fails when a profile is malformed or the directory cannot be read.
pub async fn find(directory: &Path) -> Result<Vec<Runtime>, BuildError> {
    let mut resolving = JoinSet::new();
    for profile in profiles(directory)? {
        resolving.spawn(Runtime::resolve(profile));
    }
    let mut runtimes = resolving.join_all().await;
    runtimes.sort_by(|one, other| one.profile.name.cmp(&other.profile.name));
    Ok(runtimes)
}

/// Reads all profiles: the built-in ones and those of the operator, which come later and replace
/// built-in ones of the same name.
///
/// # Errors
/// Fails when a profile is malformed or the directory cannot be read.
fn profiles(directory: &Path) -> Result<Vec<Profile>, BuildError> {
    let built_in = BUILT_IN.map(|(name, text)| (name.to_owned(), text.to_owned(), None));
    let mut sources = Vec::from(built_in);
    if !directory.as_os_str().is_empty() {
        let fail = |source| BuildError::Profiles {
            path: directory.to_owned(),
            source,
        };
        let entries = std::fs::read_dir(directory).map_err(fail)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths = paths.collect::<io::Result<Vec<PathBuf>>>().map_err(fail)?;
        paths.retain(|path| path.extension().is_some_and(|it| it == "toml"));
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(fail)?;
            sources.push((path.display().to_string(), text, Some(directory)));
        }
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for (place, text, directory) in sources {
        let profile = read(&place, &text, directory)?;
        profiles.retain(|other| other.name != profile.name);
        profiles.push(profile);
    }
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    match claimed_twice(&profiles) {
        problems if problems.is_empty() => Ok(profiles),
        problems => Err(BuildError::Names(problems)),
    }
}

/// Names that two profiles claim.
fn claimed_twice(profiles: &[Profile]) -> Vec<String> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for profile in profiles {
        let names = std::iter::once(&profile.name).chain(&profile.aliases);
        for name in names {
            if let Some(other) = owners.insert(name, &profile.name) {
                let own = &profile.name;
                problems.push(format!(
                    "`{name}` is a name of `{other}` and of `{own}`; take it from one of them"
                ));
            }
        }
    }
    problems
}

/// Reads a profile. The files of its driver stand in the directory, or come with the service.
fn read(place: &str, text: &str, directory: Option<&Path>) -> Result<Profile, BuildError> {
    let wrong = |problems| BuildError::Profile {
        place: place.to_owned(),
        problems,
    };
    let mut profile: Profile = Figment::from(Toml::string(text))
        .extract()
        .map_err(|errors| wrong(errors.into_iter().map(|error| error.to_string()).collect()))?;
    let mut problems = Vec::new();
    if let Some(session) = &mut profile.session {
        for name in &session.driver_files {
            match driver_file(name, directory) {
                Ok(text) => session.driver.push_str(&text),
                Err(error) => problems.push(format!("`{name}` cannot be read: {error}")),
            }
        }
    }
    problems.extend(profile.problems());
    match problems {
        problems if problems.is_empty() => Ok(profile),
        problems => Err(wrong(problems)),
    }
}

fn driver_file(name: &str, directory: Option<&Path>) -> io::Result<String> {
    let missing = Err(io::ErrorKind::NotFound.into());
    let beside = directory.map_or(missing, |it| std::fs::read_to_string(it.join(name)));
    let built_in = DRIVERS.iter().find(|(known, _)| *known == name);
    match (beside, built_in) {
        (Err(error), Some((_, text))) if error.kind() == io::ErrorKind::NotFound => {
            Ok((*text).to_owned())
        }
        (text, _) => text,
    }
}

impl Runtime {
    /// Finds the interpreters of a profile.
    ///
    /// Each program is requested to describe itself, outside of any sandbox: it is a program of the
    /// host, trusted as such, and receives nothing but the profile's own words.
    pub async fn resolve(profile: Profile) -> Self {
        let (mut others, mut problems) = (VecDeque::new(), Vec::new());
        let programs = distinct(&profile.find);
        let described = programs.map(|program| describe(&profile, program));
        for found in futures::future::join_all(described).await {
            match found {
                // Another name of a known interpreter.
                Ok(found) if others.contains(&found) => {}
                Ok(found) => others.push_back(found),
                Err(problem) => problems.push(problem),
            }
        }
        let mut runtime = Self {
            profile,
            others,
            interpreter: Err(String::new()),
            proven: Vec::new(),
            problems,
        };
        runtime.next();
        runtime
    }

    /// Returns the interpreter of a version, for libraries that need exactly that one.
    pub fn of_version(&self, version: &str) -> Option<&Interpreter> {
        self.proven
            .iter()
            .find(|interpreter| interpreter.version == version)
    }

    /// Records a problem of the present interpreter and turns to the next one.
    pub fn give_up(&mut self, problem: &str) {
        self.problems.push(problem.to_owned());
        self.next();
    }

    /// Turns to the next interpreter.
    pub fn next(&mut self) {
        let next = self.others.pop_front();
        self.interpreter = next.ok_or_else(|| self.problems.join("; "));
    }
}

/// Leaves out names that lead to the program of an earlier one, as `node` and `/usr/bin/node` often
/// do.
fn distinct(names: &[String]) -> impl Iterator<Item = &String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut seen = BTreeSet::new();
    names.iter().filter(move |name| {
        let mut paths = std::env::split_paths(&search).map(|directory| directory.join(name));
        let path = paths.find(|path| path.is_file());
        path.is_none_or(|path| seen.insert(path))
    })
}

async fn describe(profile: &Profile, program: &str) -> Result<Interpreter, String> {
    let mut command = Command::new(program);
    let command = command.args(&profile.describe).current_dir("/");
    command.kill_on_drop(true).stdin(Stdio::null());
    let output = match tokio::time::timeout(DESCRIBE_TIME, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("cannot start `{program}`: {error}")),
        Err(_) => return Err(format!("`{program}` did not describe itself in time")),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let end = said.lines().next_back().unwrap_or_default();
        let status = output.status;
        return Err(format!(
            "`{program}` failed to describe itself ({status}): {end}"
        ));
    }
    let description: Description = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("`{program}` described itself wrongly: {error}"))?;
    let executable = PathBuf::from(&description.executable);
    if !executable.is_absolute() || !executable.is_file() {
        let executable = description.executable;
        return Err(format!("`{executable}` is not an executable file"));
    }
    let named = description.mounts.iter().chain(&profile.mounts);
    // A whole /usr is not needed: its parts with programs and libraries are shown anyway.
    let mut mounts: Vec<PathBuf> = (named.map(PathBuf::from))
        .filter(|path| path.is_absolute() && path != Path::new("/") && path != Path::new("/usr"))
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.is_dir())
        .collect();
    let mut shown = ["/usr/bin", "/bin"].into_iter().map(Path::new);
    if !shown.any(|shown| executable.starts_with(shown))
        && !mounts.iter().any(|mount| executable.starts_with(mount))
    {
        mounts.push(executable.clone());
    }
    Ok(Interpreter {
        executable,
        version: description.version,
        mounts,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn the_built_in_profiles_are_sound_and_can_be_replaced() {
        let names = |profiles: &[Profile]| -> Vec<String> {
            profiles
                .iter()
                .map(|profile| profile.name.clone())
                .collect()
        };
        let built_in = profiles(Path::new("")).unwrap();
        assert_eq!(names(&built_in), ["bash", "node", "python3"]);

        let directory = tempfile::tempdir().unwrap();
        let perl = BUILT_IN[2].1.replace("name = \"bash\"", "name = \"perl\"");
        let perl = perl.replace("\"sh\"", "\"pl\"");
        std::fs::write(directory.path().join("perl.toml"), perl).unwrap();
        let slow = BUILT_IN[0]
            .1
            .replace("\"python3\", \"/usr/local", "\"/opt/python\", \"/usr/local");
        std::fs::write(directory.path().join("python.toml"), slow).unwrap();
        let all = profiles(directory.path()).unwrap();
        assert_eq!(names(&all), ["bash", "node", "perl", "python3"]);
        assert_eq!(all[3].find[0], "/opt/python");
    }

    #[test]
    fn the_files_of_a_driver_stand_beside_the_profile_or_come_with_the_service() {
        let directory = tempfile::tempdir().unwrap();
        let beside = Some(directory.path());
        let driver = |text: &str| read("x.toml", text, beside).map(|it| it.session.unwrap().driver);
        let text = BUILT_IN[0].1;
        assert_eq!(driver(text).unwrap(), [DRIVERS[0].1, DRIVERS[1].1].concat());
        std::fs::write(directory.path().join(DRIVERS[0].0), "first = 1\n").unwrap();
        assert_eq!(
            driver(text).unwrap(),
            format!("first = 1\n{}", DRIVERS[1].1)
        );
        let Err(BuildError::Profile { problems, .. }) =
            driver(&text.replace(DRIVERS[1].0, "none.py"))
        else {
            panic!("the profile was accepted");
        };
        assert!(
            problems[0].starts_with("`none.py` cannot be read"),
            "{problems:?}"
        );
    }

    #[tokio::test]
    async fn an_interpreter_is_found_behind_its_shim() {
        let directory = tempfile::tempdir().unwrap();
        let shim = directory.path().join("python3");
        let script = "#!/bin/sh\nexec /usr/bin/env python3 \"$@\"\n";
        std::fs::write(&shim, script).unwrap();
        std::fs::set_permissions(&shim, Permissions::from_mode(0o755)).unwrap();
        let mut profile = read("python3.toml", BUILT_IN[0].1, None).unwrap();
        profile.find = vec![shim.display().to_string()];
        let found = Runtime::resolve(profile).await.interpreter.unwrap();
        assert!(
            found.executable.is_file() && found.executable != shim,
            "{found:?}"
        );
    }

    #[test]
    fn a_program_is_asked_once_however_often_it_is_named() {
        let names = ["sh", "/no/such/program", "sh", "none-such"].map(str::to_owned);
        let asked: Vec<&String> = distinct(&names).collect();
        assert_eq!(asked, ["sh", "/no/such/program", "none-such"]);
    }

    #[test]
    fn no_name_means_two_runtimes() {
        let directory = tempfile::tempdir().unwrap();
        let zsh = BUILT_IN[2].1.replace("name = \"bash\"", "name = \"zsh\"");
        let zsh = zsh.replace("\"sh\"", "\"sh\", \"python\"");
        std::fs::write(directory.path().join("zsh.toml"), zsh).unwrap();
        let error = profiles(directory.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "requests could mean either of two runtimes: `sh` is a name of `bash` and of `zsh`; take it \
             from one of them; `python` is a name of `python3` and of `zsh`; take it from one of them"
        );
    }

    #[test]
    fn a_wrong_profile_is_named_with_all_that_is_wrong() {
        let text = BUILT_IN[2].1.replace("{script}", "x").replace(".sh", "sh");
        let Err(BuildError::Profile { place, problems }) = read("x.toml", &text, None) else {
            panic!("the profile was accepted");
        };
        assert_eq!((place.as_str(), problems.len()), ("x.toml", 3));
        assert!(matches!(
            read("x.toml", "name = 1", None),
            Err(BuildError::Profile { .. })
        ));
    }
}
