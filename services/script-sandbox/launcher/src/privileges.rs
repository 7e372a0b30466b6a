//! Gives up every right for good.

use rustix::{
    io::Errno,
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::CapabilitySet,
};

use crate::sys;
use sandbox_protocol::{
    plan::{Confinement, INSIDE_ID, LaunchPlan},
    report::{At, Layer, Step},
};

/// Becomes the script's user without any capability, and rules out gaining one.
pub(crate) fn give_up(plan: &LaunchPlan) -> Step {
    let layer = Layer::Privileges;
    let inside = matches!(plan.confinement, Confinement::Namespaces(_));
    let was_root = plan.outside_user.is_some();
    if inside || was_root {
        for capability in 0..64_u64 {
            let one = CapabilitySet::from_bits_retain(1 << capability);
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // The kernel has no further ones.
                Err(Errno::INVAL) => break,
                dropped => dropped.at(layer, "dropping the bounding set")?,
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()
        .at(layer, "clearing the ambient capabilities")?;
    match (inside, plan.outside_user) {
        (true, _) => sys::become_user(INSIDE_ID, was_root),
        (false, Some(user)) => sys::become_user(user, true),
        (false, None) => Ok(()),
    }
    .at(layer, "becoming the script's user")?;
    sys::drop_capabilities().at(layer, "dropping the capabilities")?;
    rustix::thread::set_no_new_privs(true).at(layer, "ruling out new privileges")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(layer, "hiding from the script")?;
    // The change of user has cleared the parent-death signal.
    sys::die_with_parent().at(layer, "tying the life to the supervisor")
}
