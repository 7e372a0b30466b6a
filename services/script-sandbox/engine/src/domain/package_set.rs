//! Package sets: libraries that an operator has built ahead for scripts.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::limits::Limits;

/// The placeholder for the directory of the libraries in the variables of a set.
pub const TREE: &str = "{tree}";
/// The placeholder for the directory for temporary files in the variables of a set.
pub const TEMPORARY: &str = "{temporary}";

/// The variables by which numeric libraries choose their number of threads.
const THREADS: [&str; 3] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"];

/// The libraries of one runtime, as they were built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSet {
    /// The name that requests use.
    pub name: String,
    /// `sha256:` and the digest of the files, the runtime, its version and the architecture.
    pub digest: String,
    /// The runtime, by its own name.
    pub runtime: String,
    /// The version of the interpreter for which it was built.
    pub version: String,
    /// The architecture of the processor for which it was built, such as `x86_64`.
    pub architecture: String,
    /// The versions of the packages, by the names under which they are published.
    pub packages: BTreeMap<String, String>,
    /// The names that scripts import.
    pub modules: Vec<String>,
    /// The modules that waiting interpreters import ahead.
    pub warm: Vec<String>,
    /// Variables of every script with the set, with [`TREE`] and [`TEMPORARY`].
    pub environment: BTreeMap<String, String>,
    /// The prepared files of caches: paths below the directory for temporary files, where each script finds them.
    pub caches: Vec<PathBuf>,
    /// The size of all files, in bytes.
    pub bytes: u64,
    /// The memory of an interpreter that has imported `warm`, in bytes.
    pub warm_memory: u64,
}

impl PackageSet {
    /// The reason why the set fits no interpreter of this runtime, of which there are these versions, or not this
    /// processor.
    ///
    /// # Errors
    /// The reason, with the remedy.
    pub fn check(&self, runtime: &str, versions: &[&str]) -> Result<(), String> {
        let name = &self.name;
        if self.runtime != runtime {
            let own = &self.runtime;
            return Err(format!("it has libraries of {own}, not of {runtime}"));
        }
        let here = std::env::consts::ARCH;
        if versions.contains(&self.version.as_str()) && self.architecture == here {
            return Ok(());
        }
        let found = match versions {
            [] => "no version".to_owned(),
            versions => versions.join(" and "),
        };
        Err(format!(
            "it was built for {runtime} {} on {}, and this is {found} on {here}: run `tavern packages build {name}`",
            self.version, self.architecture
        ))
    }
}

/// The number of threads of numeric libraries in a script with these limits: one for each processor, and half of the
/// processes at most, so that the script can start some of its own.
pub fn threads(limits: &Limits, processors: usize) -> u32 {
    let processors = u32::try_from(processors).unwrap_or(u32::MAX);
    processors.min(limits.processes / 2).max(1)
}

/// The variables of a script with a set: the set's own, with the paths of the script, and the number of threads, which
/// libraries choose by the processors of the machine otherwise.
pub fn variables<'a>(
    set: &'a PackageSet,
    threads: u32,
    tree: &'a str,
    temporary: &'a str,
) -> impl Iterator<Item = (&'a str, String)> {
    let bounds = THREADS
        .into_iter()
        .map(move |name| (name, threads.to_string()));
    let filled = move |text: &str| text.replace(TREE, tree).replace(TEMPORARY, temporary);
    let own = set.environment.iter();
    bounds.chain(own.map(move |(name, value)| (name.as_str(), filled(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> PackageSet {
        PackageSet {
            name: "data".to_owned(),
            digest: "sha256:00".to_owned(),
            runtime: "python3".to_owned(),
            version: "3.11.2".to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            packages: BTreeMap::new(),
            modules: Vec::new(),
            warm: Vec::new(),
            environment: BTreeMap::new(),
            caches: Vec::new(),
            bytes: 0,
            warm_memory: 0,
        }
    }

    #[test]
    fn a_set_fits_one_runtime_version_and_architecture() {
        assert_eq!(set().check("python3", &["3.12.1", "3.11.2"]), Ok(()));
        let of_node = set().check("node", &["3.11.2"]).unwrap_err();
        assert_eq!(of_node, "it has libraries of python3, not of node");
        let later = set().check("python3", &["3.12.0"]).unwrap_err();
        assert!(later.contains("3.11.2") && later.contains("tavern packages build data"));
        let mut foreign = set();
        "riscv64".clone_into(&mut foreign.architecture);
        assert!(foreign.check("python3", &["3.12.1", "3.11.2"]).is_err());
    }

    #[test]
    fn threads_follow_the_limit_of_processes() {
        let limited = |processes| {
            let limits = Limits {
                processes,
                ..Limits::DEFAULT
            };
            threads(&limits, 8)
        };
        assert_eq!([1, 3, 8, 64].map(limited), [1, 1, 4, 8]);
    }

    #[test]
    fn the_variables_of_a_set_have_the_paths_of_the_script() {
        let mut set = set();
        set.environment
            .insert("MPLCONFIGDIR".to_owned(), "{temporary}/mpl".to_owned());
        let variables: BTreeMap<_, _> = variables(&set, 4, "/sets/1/tree", "/tmp").collect();
        assert_eq!(variables["MPLCONFIGDIR"], "/tmp/mpl");
        assert_eq!(variables["OPENBLAS_NUM_THREADS"], "4");
    }
}
