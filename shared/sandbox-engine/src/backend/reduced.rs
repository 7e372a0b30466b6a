//! The host's own root, held by landlock and seccomp, for hosts without namespaces.

use std::{io, path::PathBuf, sync::Arc};

use sandbox_launcher::plan::{Confinement, ReducedPlan};

use super::{Backend, HostSystem, Place, PlaceSpec};
use crate::{domain::isolation::IsolationLevel, scratch::ScratchDirectory};

/// The level `reduced`.
#[derive(Debug)]
pub(super) struct Reduced {
    host: Arc<HostSystem>,
    scratch: PathBuf,
}

impl Reduced {
    pub(super) fn new(host: Arc<HostSystem>, scratch: PathBuf) -> Self {
        Self { host, scratch }
    }
}

impl Backend for Reduced {
    fn level(&self) -> IsolationLevel {
        IsolationLevel::Reduced
    }

    fn place(&self, wanted: &PlaceSpec<'_>) -> io::Result<Place> {
        let scratch = ScratchDirectory::make(&self.scratch, wanted.user)?;
        let below = |name: &str| scratch.path().join(name);
        let (work, input, temporary) = (below("work"), below("input"), below("tmp"));
        let plan = ReducedPlan {
            work: work.clone(),
            input: input.clone(),
            temporary: temporary.clone(),
            readable: self.host.readable(wanted.mounts),
        };
        let confinement = Confinement::Reduced(plan);
        Ok(Place {
            confinement,
            work,
            input,
            temporary,
            scratch: Some(Arc::new(scratch)),
        })
    }
}
