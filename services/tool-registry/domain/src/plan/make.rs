//! Making a plan.

use super::{
    conflicts,
    document::{Plan, PlannedOption, Replaced},
    files, hooks,
    input::PlanInput,
    remarks, tools, usage,
};
use crate::options::{OptionState, OptionValues};

/// Makes the plan of a change, with its digest if it can be installed.
pub fn make(input: &PlanInput<'_>) -> Plan {
    let (in_force, new) = (input.in_force.as_ref(), &input.new);
    let mut plan = Plan {
        plugin: new.manifest.name.to_string(),
        version: new.manifest.version.clone(),
        package_digest: new.package_digest.to_owned(),
        source: input.source.to_owned(),
        expire_time: input.expire_time.to_owned(),
        replaces: in_force.map(|version| Replaced {
            version: version.manifest.version.clone(),
            package_digest: version.package_digest.to_owned(),
        }),
        files: files::changes(in_force.map_or(&[], |version| version.files), new.files),
        tools: tools::changes(in_force, new),
        nodes: new.nodes.to_vec(),
        workflows: files::workflows(new),
        libraries: new.libraries.cloned().unwrap_or_default(),
        hooks: hooks::planned(input),
        overrides: hooks::overrides(input),
        permissions: usage::permissions(input),
        config_options: options(input),
        conflicts: conflicts::of(input),
        dependents: input.dependents.clone(),
        remarks: remarks::remarks(input),
        violations: remarks::violations(input),
        plan_digest: String::new(),
    };
    plan.refuse([]);
    plan
}

/// Returns the options with their states, missing ones first.
fn options(input: &PlanInput<'_>) -> Vec<PlannedOption> {
    let declared = &input.new.manifest.options;
    let (values, _) = OptionValues::carried_over(declared, input.option_values);
    let mut states: Vec<_> = declared
        .iter()
        .map(|option| (values.state(option), option))
        .collect();
    states.sort_by_key(|(state, _)| *state != OptionState::Missing);
    let planned = states.into_iter().map(|(state, option)| PlannedOption {
        key: option.key.clone(),
        state: state.as_str().to_owned(),
    });
    planned.collect()
}
