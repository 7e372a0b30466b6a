//! The hooks of the plugins in force.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use hook_chain::ActiveHook;
use tool_domain::{hook_point::HookPoint, permissions::Permission, plan::ChainedHook};

use super::ActivePlugin;

/// The hooks of the plugins of a revision by point, each chain in the order in which it runs.
#[derive(Clone, Debug, Default)]
pub struct HookChains {
    chains: BTreeMap<HookPoint, Vec<InForce>>,
}

/// A hook with the plugin that brings it.
#[derive(Clone, Debug)]
struct InForce {
    hook: Arc<ActiveHook>,
    plugin: Weak<ActivePlugin>,
    /// Its place in the manifest.
    place: usize,
}

impl HookChains {
    /// Chains the hooks of plugins whose permissions are in force. A hook of a plugin that `present` has too keeps its
    /// health.
    pub(super) fn of(
        plugins: &BTreeMap<String, Arc<ActivePlugin>>,
        present: &HookChains,
    ) -> HookChains {
        let mut chains: BTreeMap<HookPoint, Vec<InForce>> = BTreeMap::new();
        for plugin in plugins.values() {
            let hooks = plugin.plugin.manifest.hooks.iter().enumerate();
            for (place, hook) in
                hooks.filter(|(_, hook)| plugin.may(&Permission::ServerHook { point: hook.point }))
            {
                let kept = present.find(plugin, place, hook.point);
                let new = || Arc::new(ActiveHook::new(plugin.name(), hook.clone()));
                chains.entry(hook.point).or_default().push(InForce {
                    hook: kept.unwrap_or_else(new),
                    plugin: Arc::downgrade(plugin),
                    place,
                });
            }
        }
        for (point, chain) in &mut chains {
            point.sort(chain, |each| {
                (each.hook.hook.order, &each.hook.plugin, each.place)
            });
        }
        Self { chains }
    }

    fn find(
        &self,
        plugin: &Arc<ActivePlugin>,
        place: usize,
        point: HookPoint,
    ) -> Option<Arc<ActiveHook>> {
        let mut chain = self.chains.get(&point)?.iter();
        let same =
            |each: &&InForce| each.place == place && each.plugin.ptr_eq(&Arc::downgrade(plugin));
        chain.find(same).map(|each| Arc::clone(&each.hook))
    }

    /// Returns the hooks of a point, in order.
    pub fn at(&self, point: HookPoint) -> impl Iterator<Item = &Arc<ActiveHook>> {
        let chain = self.chains.get(&point).into_iter().flatten();
        chain.map(|each| &each.hook)
    }

    /// Returns the points with hooks, in order.
    pub fn points(&self) -> impl Iterator<Item = HookPoint> {
        self.chains.keys().copied()
    }

    /// Returns the points with hooks, as one bit for each.
    pub(super) fn bits(&self) -> u16 {
        self.points().fold(0, |bits, point| bits | bit_of(point))
    }

    /// Returns all hooks as plans compare them, each plugin's in the order of its manifest.
    pub fn chained(&self) -> Vec<ChainedHook> {
        let mut all: Vec<&InForce> = self.chains.values().flatten().collect();
        all.sort_by_key(|each| (&each.hook.plugin, each.place));
        let all = all.into_iter();
        all.map(|each| ChainedHook {
            plugin: each.hook.plugin.clone(),
            id: each.hook.hook.id.clone(),
            point: each.hook.hook.point,
            order: each.hook.hook.order,
        })
        .collect()
    }
}

/// Returns the bit of a point.
pub(super) fn bit_of(point: HookPoint) -> u16 {
    1 << point as u16
}
