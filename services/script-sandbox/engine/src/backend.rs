//! How each isolation level is made.

use std::{io, path::PathBuf, sync::Arc};

use sandbox_protocol::plan::{Confinement, INPUT_DIRECTORY, ReducedPlan, WORK_DIRECTORY};

use crate::{
    domain::{isolation::IsolationLevel, limits::Limits},
    scratch::ScratchDirectory,
};

pub mod host;

pub use host::HostSystem;

/// Makes the places of one isolation level.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The level.
    pub level: IsolationLevel,
    /// What of the host scripts are shown.
    pub host: Arc<HostSystem>,
    /// Where the level `reduced` makes its directories.
    pub scratch: PathBuf,
}

/// The place for one script.
#[derive(Debug)]
pub struct ScriptRoot {
    /// What the launcher is to do.
    pub confinement: Confinement,
    /// The working directory as the script sees it.
    pub work: PathBuf,
    /// The input directory as the script sees it.
    pub input: PathBuf,
    /// The directory for temporary files as the script sees it.
    pub temporary: PathBuf,
    /// The directory on the host that carries them, if there is one; removed when it is dropped.
    pub scratch: Option<Arc<ScratchDirectory>>,
}

impl Backend {
    /// Plans the place for one script: the directories that its interpreter needs are shown, and with
    /// `reduced` its files are those of `user`, if it has one of its own.
    ///
    /// # Errors
    /// When a directory on the host could not be made.
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
