//! Namespaces and a root of its own, with /proc.

use std::{io, sync::Arc};

use super::{Backend, HostSystem, Place, PlaceSpec};
use crate::domain::isolation::IsolationLevel;

/// The level `full`.
#[derive(Debug)]
pub(super) struct Full {
    host: Arc<HostSystem>,
}

impl Full {
    pub(super) fn new(host: Arc<HostSystem>) -> Self {
        Self { host }
    }
}

impl Backend for Full {
    fn level(&self) -> IsolationLevel {
        IsolationLevel::Full
    }

    fn place(&self, wanted: &PlaceSpec<'_>) -> io::Result<Place> {
        Ok(self.host.place_with_own_root(wanted, true))
    }
}
