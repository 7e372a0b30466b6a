//! Namespaces and a root of its own, for hosts that forbid mounting a /proc.

use std::{io, sync::Arc};

use super::{Backend, HostSystem, Place, PlaceSpec};
use crate::domain::isolation::IsolationLevel;

/// The level `full_without_proc`.
#[derive(Debug)]
pub(super) struct FullWithoutProc {
    host: Arc<HostSystem>,
}

impl FullWithoutProc {
    pub(super) fn new(host: Arc<HostSystem>) -> Self {
        Self { host }
    }
}

impl Backend for FullWithoutProc {
    fn level(&self) -> IsolationLevel {
        IsolationLevel::FullWithoutProc
    }

    fn place(&self, wanted: &PlaceSpec<'_>) -> io::Result<Place> {
        Ok(self.host.place_with_own_root(wanted, false))
    }
}
