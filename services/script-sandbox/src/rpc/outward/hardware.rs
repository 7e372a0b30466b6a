//! The processor that scripts share.

use contracts::tavern::sandbox::v1 as wire;
use sandbox_engine::domain::hardware::{Hardware, Multithreading};

pub(super) fn hardware(hardware: &Hardware) -> wire::Hardware {
    let flaws = hardware.flaws.iter();
    wire::Hardware {
        flaws: flaws
            .map(|flaw| wire::ProcessorFlaw {
                name: flaw.name.clone(),
                state: flaw.state.clone(),
                ..wire::ProcessorFlaw::default()
            })
            .collect(),
        multithreading: match hardware.multithreading {
            Multithreading::On => wire::Multithreading::On,
            Multithreading::Off => wire::Multithreading::Off,
            Multithreading::Unknown => wire::Multithreading::Unspecified,
        }
        .into(),
        store_bypass: hardware.store_bypass.clone(),
        indirect_branches: hardware.indirect_branches.clone(),
        ..wire::Hardware::default()
    }
}
