//! The processor that scripts share.

use contracts::tavern::sandbox::v1 as wire;
use sandbox_engine::domain::hardware::Hardware;

pub(super) fn hardware(hardware: &Hardware) -> wire::Hardware {
    let flaws = hardware.flaws.iter();
    let flaws = flaws.map(|(name, state)| wire::ProcessorFlaw {
        name: name.clone(),
        state: state.clone(),
        ..wire::ProcessorFlaw::default()
    });
    let multithreading = match hardware.multithreading {
        Some(true) => wire::Multithreading::On,
        Some(false) => wire::Multithreading::Off,
        None => wire::Multithreading::Unspecified,
    };
    wire::Hardware {
        flaws: flaws.collect(),
        multithreading: multithreading.into(),
        store_bypass: hardware.store_bypass.clone(),
        indirect_branches: hardware.indirect_branches.clone(),
        ..wire::Hardware::default()
    }
}
