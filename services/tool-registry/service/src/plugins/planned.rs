//! The plan of an installation against the plugins in force.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use call_outcome::Violation;
use plugin_package::{Plugin, PluginFiles, check};
use serde_json::Map;
use sha2::{Digest, Sha256};
use tool_domain::{
    manifest::Version,
    plan::{Dependents, HeldName, NameKind, PackedFile, Plan, PlanInput, PlanRemark, make, render},
    tool::Origin,
};

use super::{approval, catalogue::PluginCatalogue};
use crate::tools::Revision;

/// The version of this service, as manifests require it.
static TAVERN: LazyLock<Version> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION").parse();
    version.expect("the version of a package is a semantic version")
});

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
        let unable = self.inner.surroundings.unable(&plugin);
        let (unable, dependents) = tokio::join!(unable, self.dependents(&names));
        let mut plan = plan_of(
            &revision,
            (files, &plugin),
            (directory, expires),
            &dependents,
        );
        let of_files = checked
            .violations
            .iter()
            .chain(&unable)
            .map(|found| PlanRemark {
                code: found.code.to_string(),
                pointer: found.pointer.clone(),
                message: found.message.clone(),
            });
        plan.violations.extend(of_files);
        plan.plan_digest = plan.digest();
        Planned {
            digest: match plan.is_installable() {
                true => plan.plan_digest.clone(),
                false => String::new(),
            },
            plugin: plan.plugin.clone(),
            json: serde_json::to_string(&plan).expect("a plan has text keys only"),
            text: render::text(&plan),
            violations: violations_of(&plan),
            permissions: approval::asked_for(&plugin),
            expires: Some(expires),
        }
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
    let files_before = before.map(|before| packed(&before.files));
    let in_force = before.zip(files_before.as_ref());
    let in_force = in_force.map(|(before, files)| approval::version_of(&before.plugin, files));
    let tools = revision.catalogue.tools();
    let effects = tools.map(|tool| (tool.id().to_owned(), tool.flags().effect_class()));
    let expire_time = prost_types::Timestamp {
        seconds: expires,
        nanos: 0,
    };
    make(&PlanInput {
        plan_id: "",
        source: match directory {
            "" => "archive",
            _ => "directory",
        },
        expire_time: &expire_time.to_string(),
        in_force,
        new: approval::version_of(plugin, &packed(files)),
        tavern: &TAVERN,
        held: &held(revision),
        effects: &effects.collect::<BTreeMap<_, _>>(),
        hooks: &[],
        dependents,
        option_values: &Map::new(),
    })
}

/// Returns the ids and aliases of the tools that a plugin has in force.
pub(super) fn names_of(revision: &Revision, plugin: &str) -> BTreeSet<String> {
    let origin = Origin::Plugin(plugin.to_owned());
    let tools = revision.catalogue.tools();
    let tools = tools.filter(|tool| *tool.origin() == origin);
    let names = tools.flat_map(|tool| [tool.id().to_owned(), tool.alias().to_owned()]);
    names.filter(|name| !name.is_empty()).collect()
}

fn packed(files: &PluginFiles) -> Vec<PackedFile> {
    let files = files.all().into_iter().map(|file| PackedFile {
        path: file.path.clone(),
        size: file.content.len() as u64,
        sha256: hex::encode(Sha256::digest(&file.content)),
    });
    files.collect()
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
    tools.chain(plugins).collect()
}

fn violations_of(plan: &Plan) -> Vec<Violation> {
    let found = plan.violations.iter().map(|found| {
        Violation::new(
            found.pointer.clone(),
            found.code.clone(),
            found.message.clone(),
        )
    });
    let conflicts = plan.conflicts.iter().map(|conflict| {
        let message = format!(
            "'{}' is taken by {}: {}; {}",
            conflict.id, conflict.held_by, conflict.how, conflict.remedy
        );
        Violation::new("", "conflict", message)
    });
    found.chain(conflicts).collect()
}
