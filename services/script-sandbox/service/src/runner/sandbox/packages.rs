//! The package sets of scripts.

use core_types::{IdSource as _, SystemIds};
use sandbox_engine::{
    domain::script::Script,
    packages::{HeldPackages, Packages},
    runtimes::{Interpreter, Runtime},
};

use super::Sandbox;
use crate::error::Refusal;

impl Sandbox {
    /// Every package set of this host.
    pub(crate) async fn package_sets(&self) -> Vec<Packages> {
        let store = self.engine.packages.clone();
        let listing = tokio::task::spawn_blocking(move || store.list());
        listing.await.unwrap_or_default()
    }

    /// Holds the package set of a script, so that it is not removed before the script has ended; returns it with the
    /// interpreter for which it was built, or else the given one. `user` is the name of its session; a script is given a
    /// name.
    pub(super) async fn hold_packages<'a>(
        &self,
        script: &Script,
        runtime: &'a Runtime,
        interpreter: &'a Interpreter,
        user: Option<&str>,
    ) -> Result<(Option<HeldPackages>, &'a Interpreter), Refusal> {
        if script.packages.is_empty() {
            return Ok((None, interpreter));
        }
        let user = user.map_or_else(
            || format!("script_{}", SystemIds.next_uuid().simple()),
            str::to_owned,
        );
        let (store, name) = (self.engine.packages.clone(), script.packages.clone());
        let runtime_name = runtime.profile.name.clone();
        let versions: Vec<String> = versions(runtime).into_iter().map(str::to_owned).collect();
        let holding = tokio::task::spawn_blocking(move || {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            store.hold(&name, &runtime_name, &versions, &user)
        });
        let held = holding.await.map_err(|_| Refusal::Lost)??;
        let made_for = runtime.of_version(&held.packages().set.version);
        Ok((Some(held), made_for.unwrap_or(interpreter)))
    }
}

/// The reason why a set of a runtime cannot be used here; `None` if it can.
pub(crate) fn problem_of(packages: &Packages, runtime: &Runtime) -> Option<String> {
    let fits = packages
        .set
        .check(&runtime.profile.name, &versions(runtime));
    fits.err()
}

/// The versions of the interpreters that work here.
fn versions(runtime: &Runtime) -> Vec<&str> {
    let proven = runtime.proven.iter();
    proven
        .map(|interpreter| interpreter.version.as_str())
        .collect()
}
