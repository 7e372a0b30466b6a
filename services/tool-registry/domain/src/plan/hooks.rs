//! The hooks of a plan in their chains, and the services for which backends stand in.

use super::{
    document::{PlannedHook, PlannedOverride},
    input::PlanInput,
};

/// Returns the hooks of the new version, each with the chain of its point: before an act by order,
/// plugin and place, after it in reverse, observers in no order and alone.
pub(super) fn planned(input: &PlanInput<'_>) -> Vec<PlannedHook> {
    let manifest = input.new.manifest;
    let plugin = manifest.name.as_str();
    let hooks = manifest.hooks.iter().map(|hook| {
        let own = manifest.hooks.iter().enumerate();
        let own =
            own.map(|(place, each)| (each.point, each.order, plugin, place, each.id.as_str()));
        let foreign = input.hooks.iter().enumerate();
        let foreign = foreign.filter(|(_, each)| each.plugin != plugin);
        let foreign = foreign.map(|(place, each)| {
            let (name, id) = (each.plugin.as_str(), each.id.as_str());
            (each.point, each.order, name, place, id)
        });
        let mut chain: Vec<_> = own
            .chain(foreign)
            .filter(|(point, ..)| *point == hook.point)
            .collect();
        let point = hook.point;
        point.sort(&mut chain, |(_, order, name, place, _)| {
            (*order, *name, *place)
        });
        if hook.point.is_observer() {
            chain.retain(|(_, _, name, _, id)| (*name, *id) == (plugin, hook.id.as_str()));
        }
        let chain = chain
            .iter()
            .map(|(_, _, name, _, id)| format!("{name}/{id}"));
        PlannedHook {
            id: hook.id.clone(),
            point: hook.point.to_string(),
            chain: chain.collect(),
            may: hook.point.may().iter().map(ToString::to_string).collect(),
            on_failure: hook.on_failure.as_str().to_owned(),
        }
    });
    hooks.collect()
}

/// Returns the services for which backends of the new version stand in. The methods of a backend are
/// not known here, so none is missing; the service adds them.
pub(super) fn overrides(input: &PlanInput<'_>) -> Vec<PlannedOverride> {
    let each = input.new.manifest.overrides.iter();
    let planned = each.map(|stand_in| PlannedOverride {
        service: stand_in.service.clone(),
        backend: stand_in.backend.clone(),
        fallback: stand_in.fallback.as_str().to_owned(),
        implements: stand_in.contract(),
        missing_methods: Vec::new(),
    });
    planned.collect()
}
