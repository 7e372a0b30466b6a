//! The package sets of the sandbox: the one that code takes, their descriptions for models, and the failure of code that
//! tries to install another package.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use call_outcome::{Category, Failure, missing_package::MissingPackage};
use contracts::tavern::sandbox::v1::{
    ListRuntimesRequest, script_sandbox_service_client::ScriptSandboxServiceClient,
};
use core_types::Tenant;
use grpc_kit::{CallContext, Transport};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// The time for which the sets are taken as they were read.
const FRESH: Duration = Duration::from_secs(5);

/// The time after which a sandbox that did not answer is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// The longest wait for the sandbox.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most modules that the description of a set names.
const MODULES: usize = 12;

/// The package sets that can be used, read from the sandbox now and then.
#[derive(Clone, Debug)]
pub struct PackageSets {
    sandbox: Transport,
    /// The sets that code takes which names none, at most one for each runtime.
    defaults: Arc<[String]>,
    /// Locked for a copy only.
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` until they were read.
    sets: Option<Arc<[KnownSet]>>,
    /// The time at which they are read again.
    until: Option<Instant>,
}

/// Code that ran.
#[derive(Clone, Copy, Debug)]
pub(in crate::dispatch) struct Ran<'a> {
    pub(in crate::dispatch) runtime: &'a str,
    /// Its package set; empty for none.
    pub(in crate::dispatch) packages: &'a str,
    /// Whether the definition of a tool chooses the set, and not the call.
    pub(in crate::dispatch) by_definition: bool,
}

/// A package set that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownSet {
    name: String,
    digest: String,
    language: String,
    /// The names of its runtime.
    runtimes: Vec<String>,
    /// The names that code imports.
    modules: Vec<String>,
    /// The names under which its packages are published.
    packages: Vec<String>,
    warm: Vec<String>,
}

impl PackageSets {
    /// Takes script-sandbox behind a transport, and the sets that code takes which names none.
    pub fn new(sandbox: Transport, defaults: &[String]) -> Self {
        Self {
            sandbox,
            defaults: defaults.into(),
            known: Arc::default(),
        }
    }

    /// Returns the sets as they were a moment ago. No call waits for a sandbox that is down: it gets the sets that were
    /// known last, and only the first one waits for them at all.
    pub(crate) async fn current(&self) -> Arc<[KnownSet]> {
        let known = {
            let mut known = self.lock();
            let now = Instant::now();
            let is_due = known.until.is_none_or(|until| until <= now);
            if !is_due {
                return known.sets.clone().unwrap_or_default();
            }
            known.until = Some(now + FRESH);
            known.sets.clone()
        };
        match known {
            Some(sets) => {
                tokio::spawn(self.clone().read_again());
                sets
            }
            None => self.clone().read_again().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_again(self) -> Arc<[KnownSet]> {
        let read = self.read().await;
        let mut known = self.lock();
        match read {
            Some(sets) => known.sets = Some(sets),
            None => known.until = Some(Instant::now() + AGAIN),
        }
        known.sets.clone().unwrap_or_default()
    }

    async fn read(&self) -> Option<Arc<[KnownSet]>> {
        let context = CallContext::of_tenant(Tenant::DEFAULT);
        let mut client = ScriptSandboxServiceClient::new(self.sandbox.with(&context));
        let asked = client.list_runtimes(ListRuntimesRequest {});
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => {
                let runtimes = answer.into_inner().runtimes;
                Some(runtimes.into_iter().flat_map(known_sets).collect())
            }
            Ok(Err(status)) => {
                tracing::debug!(%status, "the package sets cannot be read");
                None
            }
            Err(_) => {
                tracing::debug!("the sandbox does not name its package sets in time");
                None
            }
        }
    }

    /// Returns the set that code of a runtime takes: the one it names, or the default of that runtime.
    pub(in crate::dispatch) async fn choose(&self, named: Option<&str>, runtime: &str) -> String {
        if let Some(named) = named {
            return named.to_owned();
        }
        if self.defaults.is_empty() {
            return String::new();
        }
        let sets = self.current().await;
        let default = self.default_of(&sets, runtime);
        default.map_or_else(String::new, |set| set.name.clone())
    }

    /// The first of the defaults that is built for a runtime.
    fn default_of<'a>(&self, sets: &'a [KnownSet], runtime: &str) -> Option<&'a KnownSet> {
        let mut defaults = self.defaults.iter();
        defaults.find_map(|name| {
            sets.iter()
                .find(|set| set.name == *name && set.is_for(runtime))
        })
    }

    /// Returns a line about each set for the description of a tool, and a digest of them; `None` if there is no set.
    pub(crate) async fn described(&self) -> Option<(String, String)> {
        let sets = self.current().await;
        let mut digest = Sha256::new();
        let mut text = String::new();
        for set in sets.iter() {
            digest.update(&set.digest);
            text += &format!(
                "\nPackage set {} ({}): {}.",
                set.name,
                set.language,
                set.offer()
            );
            let runtime = set.runtimes.first().map_or("", String::as_str);
            if self.default_of(&sets, runtime) == Some(set) {
                text += " It is taken where none is named.";
            }
        }
        (!sets.is_empty()).then(|| (text, hex::encode(digest.finalize())))
    }

    /// Returns the failure of code that wanted a package which cannot be had, in the place of `failure`. Code that had the
    /// set with the package failed for another reason.
    pub(in crate::dispatch) async fn not_installed(
        &self,
        missing: &MissingPackage,
        ran: Ran<'_>,
        failure: Failure,
    ) -> Failure {
        let sets = self.current().await;
        let name = missing.name.as_deref();
        let mut having: Vec<&KnownSet> = sets
            .iter()
            .filter(|set| name.is_some_and(|name| set.has(name)))
            .collect();
        having.sort_by_key(|set| (!set.is_for(ran.runtime), !self.defaults.contains(&set.name)));
        let has_it = having.iter().any(|set| set.name == ran.packages);
        if has_it && !missing.installs {
            return failure;
        }
        let advice = match (name, having.first()) {
            (Some(name), Some(_)) if has_it => {
                format!(
                    "{name} is in the package set {}, which the code has: import it.",
                    ran.packages
                )
            }
            (Some(name), Some(set)) if !set.is_for(ran.runtime) => format!(
                "{name} is in the package set {}, for code in {}.",
                set.name, set.language
            ),
            (Some(name), Some(set)) if ran.by_definition => format!(
                "{name} is in the package set {0}, which the tool's definition can name: \
                 \"packages\": \"{0}\" in its implementation.",
                set.name
            ),
            (Some(name), Some(set)) => format!(
                "{name} is in the package set {0}: pass \"packages\": \"{0}\".",
                set.name
            ),
            (Some(name), None) => format!("{name} is in no package set; {}", there_are(&sets)),
            (None, _) => format!(
                "Instead code imports from a package set; {}",
                there_are(&sets)
            ),
        };
        let message = format!(
            "Packages cannot be installed here. {advice}\n{}",
            failure.message
        );
        let mut failure = failure;
        failure.category = Category::Policy;
        "no_package_install".clone_into(&mut failure.code);
        failure.message = message.trim_end().to_owned();
        failure.retryable = false;
        failure
    }
}

fn there_are(sets: &[KnownSet]) -> String {
    let named = sets
        .iter()
        .map(|set| format!("{} ({})", set.name, set.offer()));
    match sets {
        [] => "there is none here.".to_owned(),
        _ => format!("there are: {}.", named.collect::<Vec<_>>().join("; ")),
    }
}

fn known_sets(runtime: contracts::tavern::sandbox::v1::Runtime) -> Vec<KnownSet> {
    let runtimes = [vec![runtime.name], runtime.aliases].concat();
    let usable = runtime
        .package_sets
        .into_iter()
        .filter(|set| set.problem.is_empty());
    let known = usable.map(|set| KnownSet {
        name: set.name,
        digest: set.digest,
        language: runtime.language.clone(),
        runtimes: runtimes.clone(),
        modules: set.modules,
        packages: set
            .packages
            .into_iter()
            .map(|package| package.name)
            .collect(),
        warm: set.warm,
    });
    known.collect()
}

impl KnownSet {
    fn is_for(&self, runtime: &str) -> bool {
        self.runtimes.iter().any(|name| name == runtime)
    }

    fn has(&self, name: &str) -> bool {
        let plain = |name: &str| name.to_lowercase().replace(['_', '.'], "-");
        let name = plain(name);
        let mut all = self.modules.iter().chain(&self.packages);
        all.any(|other| plain(other) == name)
    }

    /// Its modules in a few words: first those that it was made for.
    fn offer(&self) -> String {
        let first = |module: &String| module.split('.').next().unwrap_or_default().to_owned();
        let mut named: Vec<String> = self.warm.iter().map(first).collect();
        for module in &self.modules {
            if !named.contains(module) && !module.starts_with('_') {
                named.push(module.clone());
            }
        }
        let more = named.len().saturating_sub(MODULES);
        named.truncate(MODULES);
        match more {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}
