//! The file of a package set, such as `deploy/packages/data.set.toml`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use figment::{
    Figment,
    providers::{Format, Toml},
};
use sandbox_engine::packages::is_name;
use serde::{Deserialize, Serialize};

use crate::error::{At as _, BuildError};

/// A package set as an operator describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SetFile {
    /// The name that requests use.
    pub name: String,
    /// The runtime, such as `python3`.
    pub runtime: String,
    /// The file of the lock, beside this one.
    pub lock: PathBuf,
    /// The modules that waiting interpreters import ahead.
    #[serde(default)]
    pub warm: Vec<String>,
    /// Code that must not fail with the set.
    #[serde(default)]
    pub test: String,
    /// Variables of every script with the set; `{tree}` stands for the directory of the libraries, `{temporary}` for
    /// the one for temporary files.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Directories below the one for temporary files which the test fills, and which each script finds filled.
    #[serde(default)]
    pub caches: Vec<String>,
}

/// The path of the file of a set.
pub fn path_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.set.toml"))
}

impl SetFile {
    /// Reads the file of a set in a directory.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(directory: &Path, name: &str) -> Result<Self, BuildError> {
        let path = path_of(directory, name);
        let wrong = |problems| BuildError::SetFile {
            path: path.clone(),
            problems,
        };
        if !path.exists() {
            let problem =
                format!("it does not exist; `tavern packages lock {name} PACKAGE...` writes it");
            return Err(wrong(vec![problem]));
        }
        let text = std::fs::read_to_string(&path).at("reading", &path)?;
        let read = Figment::from(Toml::string(&text)).extract::<Self>();
        let set = read
            .map_err(|errors| wrong(errors.into_iter().map(|error| error.to_string()).collect()))?;
        set.check(&path, name)?;
        Ok(set)
    }

    /// Writes the file of a set and its lock to a directory.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn write(
        directory: &Path,
        name: &str,
        runtime: &str,
        lock: &[u8],
    ) -> Result<(), BuildError> {
        let set = Self::new(name, runtime);
        let (path, lock_path) = (path_of(directory, name), directory.join(&set.lock));
        std::fs::write(&path, set.text()).at("writing", &path)?;
        std::fs::write(&lock_path, lock).at("writing", &lock_path)
    }

    /// A set that has no file yet.
    pub(crate) fn new(name: &str, runtime: &str) -> Self {
        Self {
            name: name.to_owned(),
            runtime: runtime.to_owned(),
            lock: format!("{name}.lock").into(),
            warm: Vec::new(),
            test: String::new(),
            environment: BTreeMap::new(),
            caches: Vec::new(),
        }
    }

    /// The text of the file of such a set.
    pub(crate) fn text(&self) -> String {
        format!(
            "name = \"{}\"\nruntime = \"{}\"\nlock = \"{}\"\n\
             # The modules that waiting interpreters import ahead.\nwarm = []\n\
             # Code that must not fail with the set.\ntest = \"\"\n",
            self.name,
            self.runtime,
            self.lock.display()
        )
    }

    /// Checks a set whose file this is.
    pub(crate) fn check(&self, path: &Path, name: &str) -> Result<(), BuildError> {
        match self.problems(name) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(BuildError::SetFile {
                path: path.to_owned(),
                problems,
            }),
        }
    }

    fn problems(&self, name: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        demand(
            is_name(name),
            "a name has letters, digits, `_` and `-`, at most 64",
        );
        demand(self.name == name, "`name` must be the name of the file");
        demand(
            self.lock.components().count() == 1 && self.lock.file_name().is_some(),
            "`lock` must be the name of a file beside it",
        );
        demand(
            self.warm.iter().all(|module| is_module(module)),
            "each of `warm` must be the name of a module",
        );
        demand(
            self.caches.iter().all(|cache| is_name(cache)),
            "each of `caches` must be the name of a directory",
        );
        let reserved = |name: &String| name.starts_with("TAVERN_") || name.contains(['=', '\0']);
        demand(
            !self.environment.keys().any(reserved),
            "names in `environment` must not begin with TAVERN_",
        );
        demand(
            !self.test.contains('\0'),
            "`test` must not contain a NUL character",
        );
        problems
    }
}

/// Whether a text is the name of a module, which stands in the text of a boot program.
fn is_module(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@/".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_wrong_is_refused_with_all_that_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let text = "name = \"other\"\nruntime = \"python3\"\nlock = \"../x\"\nwarm = [\"a b\"]\n";
        std::fs::write(path_of(directory.path(), "data"), text).unwrap();
        let Err(BuildError::SetFile { problems, .. }) = SetFile::read(directory.path(), "data")
        else {
            panic!("the file was accepted");
        };
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn a_new_file_is_sound() {
        let directory = tempfile::tempdir().unwrap();
        let set = SetFile::new("data", "python3");
        std::fs::write(path_of(directory.path(), "data"), set.text()).unwrap();
        assert_eq!(SetFile::read(directory.path(), "data").unwrap(), set);
        assert_eq!(set.lock, Path::new("data.lock"));
    }
}
