//! The processor that scripts share.

use contracts::tavern::sandbox::v1 as wire;

use crate::domain::hardware::{Flaw, Multithreading, Processor, Tenancy};

pub(super) fn hardware(processor: &Processor) -> wire::Hardware {
    let hardware = &processor.hardware;
    wire::Hardware {
        flaws: hardware.flaws.iter().map(flaw).collect(),
        multithreading: match hardware.multithreading {
            Multithreading::On => wire::Multithreading::On,
            Multithreading::Off => wire::Multithreading::Off,
            Multithreading::Unknown => wire::Multithreading::Unspecified,
        }
        .into(),
        store_bypass: hardware.store_bypass.clone(),
        indirect_branches: hardware.indirect_branches.clone(),
        dangers: processor.dangers.clone(),
        tenancy: match processor.tenancy {
            Tenancy::Single => wire::Tenancy::Single,
            Tenancy::Multiple => wire::Tenancy::Multiple,
        }
        .into(),
        dangers_accepted: processor.is_dangerous() && processor.accepted,
        refuses_scripts: processor.refuses(),
    }
}

fn flaw(flaw: &Flaw) -> wire::ProcessorFlaw {
    wire::ProcessorFlaw {
        name: flaw.name.clone(),
        state: flaw.state.clone(),
        vulnerable: flaw.is_vulnerable(),
    }
}
