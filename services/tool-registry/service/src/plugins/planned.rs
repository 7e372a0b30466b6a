//! The plan of an installation against the plugins in force.

use std::collections::{BTreeMap, BTreeSet};

use call_outcome::Violation;
use plugin_package::{MANIFEST, Plugin, PluginFiles, TAVERN, check};
use serde_json::Map;
use tool_domain::{
    manifest::HookHandler,
    plan::{Dependents, HeldName, NameKind, Plan, PlanInput, PlanRemark, make, render},
    tool::Origin,
};

use super::{approval, catalogue::PluginCatalogue};
use crate::{dispatch::backend::APPLY_HOOK, tools::Revision};

/// A plan as its caller reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planned {
    /// The digest by which it is installed; empty if it cannot be.
    pub(crate) digest: String,
    /// The name of the plugin; empty if its manifest cannot be read.
    pub(crate) plugin: String,
    /// The plan as JSON; empty if there is none.
    pub(crate) json: String,
    /// The plan as text.
    pub(crate) text: String,
    /// Everything that keeps it from being installed.
    pub(crate) violations: Vec<Violation>,
    /// The permissions that it approves.
    pub(crate) permissions: Vec<String>,
    /// The time from which it cannot be installed, in seconds since the epoch.
    pub(crate) expires: Option<i64>,
}

impl Planned {
    /// Makes the plan of a package that is no plugin.
    pub(super) fn refused(violations: Vec<Violation>) -> Self {
        let lines = violations.iter().map(|found| match &*found.pointer {
            "" => format!("  the package {}\n", found.message),
            place => format!("  {place}: {}\n", found.message),
        });
        Self {
            text: format!(
                "The package cannot be installed.\n{}",
                lines.collect::<String>()
            ),
            violations,
            ..Self::default()
        }
    }
}

impl PluginCatalogue {
    /// Plans the installation of files in the place of the plugin in force.
    pub(super) async fn plan_files(
        &self,
        files: &PluginFiles,
        directory: &str,
        expires: i64,
    ) -> Planned {
        let checked = check(files);
        let Some(plugin) = checked.plugin else {
            return Planned::refused(checked.violations);
        };
        let revision = self.inner.tools.revision();
        let mut names = names_of(&revision, plugin.manifest.name.as_str());
        names.extend(plugin.tools.iter().map(|tool| tool.id.to_string()));
        names.extend(plugin.nodes.iter().cloned());
        let unable = self.inner.surroundings.unable(&plugin);
        let (unable, dependents) = tokio::join!(unable, self.dependents(&names));
        let unanswered = self.unanswered(&plugin).await;
        let missing = self.missing_methods(&plugin).await;
        let around = (directory, expires);
        let mut plan = plan_of(&revision, (files, &plugin), around, &dependents);
        let found = checked
            .violations
            .into_iter()
            .chain(unable)
            .chain(unanswered);
        for (planned, (methods, _)) in plan.overrides.iter_mut().zip(&missing) {
            planned.missing_methods.clone_from(methods);
        }
        let found = found.chain(missing.into_iter().filter_map(|(_, found)| found));
        plan.refuse(found.map(PlanRemark::from));
        Planned {
            digest: plan.plan_digest.clone(),
            plugin: plan.plugin.clone(),
            json: serde_json::to_string(&plan).expect("a plan has text keys only"),
            text: render::text(&plan),
            violations: plan.reasons(),
            permissions: approval::asked_for(&plugin),
            expires: Some(expires),
        }
    }

    /// Returns the hooks whose backend is not registered, or has no method for hooks.
    async fn unanswered(&self, plugin: &Plugin) -> Vec<Violation> {
        let mut found = Vec::new();
        for (index, hook) in plugin.manifest.hooks.iter().enumerate() {
            let HookHandler::Backend(name) = &hook.handler else {
                continue;
            };
            let backend = self.inner.tools.backend_of_installation(name).await;
            let (code, message) = match backend {
                Ok(Some(backend)) if backend.has_method(APPLY_HOOK) => continue,
                Ok(Some(_)) => {
                    let message = format!(
                        "the backend '{name}' has no method {APPLY_HOOK}; add it, or name another backend"
                    );
                    ("missing_method", message)
                }
                Ok(None) => {
                    let message =
                        format!("no backend '{name}' is registered; add it by PutBackend");
                    ("unknown_backend", message)
                }
                Err(error) => (
                    "unknown_backend",
                    format!("the backends cannot be read: {error}"),
                ),
            };
            let place = format!("{MANIFEST}/hooks/{index}/handler/backend");
            found.push(Violation::new(place, code, message));
        }
        found
    }

    /// Returns the methods that the backend of each override lacks now, with the reason for which it cannot stand in.
    async fn missing_methods(&self, plugin: &Plugin) -> Vec<(Vec<String>, Option<Violation>)> {
        let mut all = Vec::new();
        for stand_in in &plugin.manifest.overrides {
            let (name, contract) = (&stand_in.backend, stand_in.contract());
            let read = self.inner.tools.read_backend_of_installation(name).await;
            let (missing, problem) = match read {
                Ok(backend) => match backend.missing_methods(&contract) {
                    missing if missing.is_empty() => (missing, None),
                    missing => {
                        let methods = missing.join(", ");
                        let message = format!(
                            "the backend '{name}' lacks {methods} of {contract}; add them, or name another backend"
                        );
                        (missing, Some(("missing_method", message)))
                    }
                },
                Err(error) => {
                    let message = format!("the backend '{name}' cannot stand in: {error}");
                    (Vec::new(), Some(("unknown_backend", message)))
                }
            };
            let place = format!("{MANIFEST}/services/override/{}/backend", stand_in.service);
            let problem = problem.map(|(code, message)| Violation::new(place, code, message));
            all.push((missing, problem));
        }
        all
    }

    /// Returns the documents of all tenants that name one of these tools.
    pub(super) async fn dependents(&self, names: &BTreeSet<String>) -> Dependents {
        let records = self.inner.tenants.records();
        let tenants = records.all().map(|tenant| tenant.name).collect();
        self.inner.surroundings.dependents(tenants, names).await
    }
}

fn plan_of(
    revision: &Revision,
    (files, plugin): (&PluginFiles, &Plugin),
    (directory, expires): (&str, i64),
    dependents: &Dependents,
) -> Plan {
    let before = revision.plugins.get(plugin.manifest.name.as_str());
    let files_before = before.map(|before| before.files.packed());
    let in_force = before.zip(files_before.as_ref());
    let in_force = in_force.map(|(before, files)| before.plugin.version(files));
    let tools = revision.catalogue.tools();
    let effects = tools.map(|tool| (tool.id().to_owned(), tool.flags().effect_class()));
    let expire_time = prost_types::Timestamp {
        seconds: expires,
        nanos: 0,
    };
    make(&PlanInput {
        source: match directory {
            "" => "archive",
            _ => "directory",
        },
        expire_time: &expire_time.to_string(),
        in_force,
        new: plugin.version(&files.packed()),
        tavern: &TAVERN,
        held: &held(revision),
        effects: &effects.collect::<BTreeMap<_, _>>(),
        hooks: &revision.hooks.chained(),
        dependents,
        option_values: &Map::new(),
    })
}

/// Returns the ids and aliases of the tools that a plugin has in force, and its node types.
pub(super) fn names_of(revision: &Revision, plugin: &str) -> BTreeSet<String> {
    let in_force = revision.plugins.get(plugin);
    let nodes = in_force
        .into_iter()
        .flat_map(|plugin| plugin.plugin.nodes.clone());
    let origin = Origin::Plugin(plugin.to_owned());
    let tools = revision.catalogue.tools();
    let tools = tools.filter(|tool| *tool.origin() == origin);
    let names = tools.flat_map(|tool| [tool.id().to_owned(), tool.alias().to_owned()]);
    names.chain(nodes).filter(|name| !name.is_empty()).collect()
}

/// Returns the names of the platform and of plugins. Names that tenants gave to tools of their own are not among them,
/// as no plan may show them to another tenant.
fn held(revision: &Revision) -> Vec<HeldName> {
    let tools = revision.catalogue.tools().map(|tool| HeldName {
        kind: NameKind::Tool,
        id: tool.id().to_owned(),
        alias: tool.alias().to_owned(),
        owner: tool.origin().clone(),
    });
    let plugins = revision.plugins.keys().map(|name| HeldName {
        kind: NameKind::Plugin,
        id: name.clone(),
        alias: String::new(),
        owner: Origin::Plugin(name.clone()),
    });
    let overrides = revision.overrides.all().map(|each| HeldName {
        kind: NameKind::Override,
        id: each.stand_in.service.clone(),
        alias: String::new(),
        owner: Origin::Plugin(each.plugin.name().to_owned()),
    });
    tools.chain(plugins).chain(overrides).collect()
}
