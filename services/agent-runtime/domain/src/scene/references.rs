//! The names in a scene that have to resolve for it to start: profiles, models and workflows.

use core_types::{Reference, ReferenceKind};

use super::{Scene, instance, moments};

impl Scene {
    /// Returns every name in the scene, with its place.
    pub fn references(&self) -> Vec<Reference> {
        let mut all = Vec::new();
        for (at, agent) in self.instances.iter().enumerate() {
            let place = format!("/{}/{at}", instance::KEY);
            let profile = format!("{place}/profile_id");
            let kind = ReferenceKind::Profile;
            all.push(Reference::new(profile, kind, agent.profile_id.as_str()));
            let section = format!("{place}/custom_runtime_config/tavern");
            all.extend(agent.tavern.references(&section));
        }
        all.extend(self.workflows.iter().map(|workflow| {
            let place = format!("/{}/{}", moments::KEY, workflow.key);
            Reference::new(
                place,
                ReferenceKind::Workflow,
                workflow.workflow_id.as_str(),
            )
        }));
        all
    }
}
