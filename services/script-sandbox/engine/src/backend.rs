//! The files and the confinement that each isolation level gives a script.

use std::{io, path::PathBuf, sync::Arc};

use sandbox_protocol::plan::{Confinement, INPUT_DIRECTORY, ReducedPlan, WORK_DIRECTORY};

use crate::{
    domain::{isolation::IsolationLevel, limits::Limits},
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
    /// The directory on the host that carries them, if there is one; removed on drop.
    pub scratch: Option<Arc<ScratchDirectory>>,
}

impl Backend {
    /// Plans the root of one script: it shows the directories that the interpreter needs. With
    /// `reduced`, the files belong to `user`, if the script has a user of its own.
    ///
    /// # Errors
    /// Fails when a directory on the host could not be made.
    pub fn place(
        &self,
        mounts: &[PathBuf],
        limits: &Limits,
        user: Option<u32>,
    ) -> io::Result<ScriptRoot> {
        match self.level {
            IsolationLevel::Full | IsolationLevel::FullWithoutProc => Ok(ScriptRoot {
                confinement: Confinement::Namespaces(self.host.root(
                    mounts,
                    limits,
                    self.level == IsolationLevel::Full,
                )),
                work: WORK_DIRECTORY.into(),
                input: INPUT_DIRECTORY.into(),
                temporary: "/tmp".into(),
                scratch: None,
            }),
            IsolationLevel::Reduced => {
                let scratch = ScratchDirectory::make(&self.scratch, user)?;
                let below = |name: &str| scratch.path().join(name);
                let (work, input, temporary) = (below("work"), below("input"), below("tmp"));
                Ok(ScriptRoot {
                    confinement: Confinement::Reduced(ReducedPlan {
                        work: work.clone(),
                        input: input.clone(),
                        temporary: temporary.clone(),
                        readable: self.host.readable(mounts),
                    }),
                    work,
                    input,
                    temporary,
                    scratch: Some(Arc::new(scratch)),
                })
            }
        }
    }
}
