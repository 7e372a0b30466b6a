//! The files and the confinement that each isolation level gives a script.

use std::{
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbox_protocol::plan::{Confinement, INPUT_DIRECTORY, ReducedPlan, RootPlan, WORK_DIRECTORY};

use crate::{
    domain::{isolation::IsolationLevel, limits::Limits},
    packages::{Library, Packages},
    scratch::ScratchDirectory,
};

pub mod host;

pub use host::HostSystem;

/// Plans the roots of scripts at one isolation level.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The level.
    pub level: IsolationLevel,
    /// The parts of the host that scripts see.
    pub host: Arc<HostSystem>,
    /// The directory in which the level `reduced` makes its directories.
    pub scratch: PathBuf,
}

/// The root of one script.
#[derive(Debug)]
pub struct ScriptRoot {
    /// The confinement that the launcher sets up.
    pub confinement: Confinement,
    /// The working directory as the script sees it.
    pub work: PathBuf,
    /// The input directory as the script sees it.
    pub input: PathBuf,
    /// The directory for temporary files as the script sees it.
    pub temporary: PathBuf,
    /// The package set as the script sees it, if it has one.
    pub library: Option<Library>,
    /// The directory on the host that carries them, if there is one; removed on drop.
    pub scratch: Option<Arc<ScratchDirectory>>,
}

impl Backend {
    /// Plans the root of one script: it shows the directories that the interpreter needs, and the package set, of which
    /// scripts find the directory `above` by its name above the working directory. With `reduced`, the files belong to
    /// `user`, if the script has a user of its own.
    ///
    /// # Errors
    /// Fails when a directory on the host could not be made.
    pub fn place(
        &self,
        mounts: &[PathBuf],
        packages: Option<(&Packages, &str)>,
        limits: &Limits,
        user: Option<u32>,
    ) -> io::Result<ScriptRoot> {
        let library = packages.map(|(packages, _)| match self.level {
            IsolationLevel::Full | IsolationLevel::FullWithoutProc => packages.inside(),
            IsolationLevel::Reduced => packages.on_host(),
        });
        let link_in = |root: &Path| {
            let (_, above) = packages.filter(|(_, above)| !above.is_empty())?;
            let tree = &library.as_ref()?.tree;
            Some((root.join(above), tree.join(above)))
        };
        match self.level {
            IsolationLevel::Full | IsolationLevel::FullWithoutProc => Ok(ScriptRoot {
                confinement: Confinement::Namespaces(RootPlan {
                    proc: self.level == IsolationLevel::Full,
                    moved: packages.map_or_else(Vec::new, |(packages, _)| packages.moved()),
                    ..self.host.root(mounts, link_in(Path::new("/")), limits)
                }),
                library: library.clone(),
                work: WORK_DIRECTORY.into(),
                input: INPUT_DIRECTORY.into(),
                temporary: "/tmp".into(),
                scratch: None,
            }),
            IsolationLevel::Reduced => {
                let scratch = ScratchDirectory::make(&self.scratch, user)?;
                if let Some((link, target)) = link_in(scratch.path()) {
                    symlink(target, link)?;
                }
                let below = |name: &str| scratch.path().join(name);
                let packages = packages.map_or_else(Vec::new, |(packages, _)| packages.readable());
                let (work, input, temporary) = (below("work"), below("input"), below("tmp"));
                Ok(ScriptRoot {
                    confinement: Confinement::Reduced(ReducedPlan {
                        work: work.clone(),
                        input: input.clone(),
                        temporary: temporary.clone(),
                        readable: self.host.readable(&[mounts, &packages].concat()),
                    }),
                    library,
                    work,
                    input,
                    temporary,
                    scratch: Some(Arc::new(scratch)),
                })
            }
        }
    }
}
