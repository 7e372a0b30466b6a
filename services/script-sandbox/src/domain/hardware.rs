//! Whether the processor keeps tenants apart, as far as the kernel tells.
//!
//! Isolation ends at what all scripts share. What the kernel says about each known flaw is free text
//! with a few fixed words, which are all that is relied on here; what it calls vulnerable, disabled or
//! unknown is a danger.

use serde::{Deserialize, Serialize};

/// Whose scripts one service runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tenancy {
    /// Those of callers who may learn from each other.
    #[default]
    Single,
    /// Those of callers who must not.
    Multiple,
}

/// Whether threads of several programs run on one core at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multithreading {
    /// They do.
    On,
    /// They do not.
    Off,
    /// The kernel does not tell.
    #[default]
    Unknown,
}

/// What the kernel says about one flaw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Its name.
    pub name: String,
    /// What is said; empty if it could not be read.
    pub state: String,
}

/// What the kernel says about the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The flaws by name; empty if nothing is said.
    pub flaws: Vec<Flaw>,
    /// Whether cores are shared.
    pub multithreading: Multithreading,
    /// Whether loads of this process may overtake stores; empty if nothing is said.
    pub store_bypass: String,
    /// Whether its indirect branches are predicted; empty if nothing is said.
    pub indirect_branches: String,
}

/// The processor with what the operator says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// What the kernel says.
    pub hardware: Hardware,
    /// Why it is not known to keep tenants apart.
    pub dangers: Vec<String>,
    /// Whose scripts are run.
    pub tenancy: Tenancy,
    /// Says that the operator runs them in spite of the dangers.
    pub accepted: bool,
}

impl Flaw {
    /// Says that the kernel calls the processor vulnerable, as a whole or in a part.
    pub fn is_vulnerable(&self) -> bool {
        self.parts().any(|part| part.starts_with("Vulnerable"))
    }

    /// The parts of what is said, such as the last of `Mitigation: Retpolines; BHI: Vulnerable`,
    /// without their labels. What is said about virtual machines is left out: no script can make one.
    fn parts(&self) -> impl Iterator<Item = &str> {
        let parts = self.state.split([';', ',']).map(str::trim);
        parts.filter_map(|part| match part.split_once(": ") {
            Some(("KVM" | "VMX", _)) => None,
            Some((_, rest)) if !part.starts_with("Vulnerable") && !part.starts_with("Unknown") => {
                Some(rest)
            }
            _ => Some(part),
        })
    }

    /// Why tenants could learn from each other by it.
    fn danger(&self, multithreading: Multithreading) -> Option<String> {
        let Self { name, state } = self;
        let says = |words: &str| self.parts().any(|part| part.starts_with(words));
        let sharing = state.contains("SMT vulnerable") && multithreading != Multithreading::Off;
        // What one process has taught about branches is then used by the next one, or beside it.
        let branches = state.contains("IBPB: disabled")
            || state.contains("STIBP: disabled") && multithreading != Multithreading::Off;
        if state.is_empty() {
            Some(format!("{name} could not be read"))
        } else if says("Vulnerable") || says("Unknown") || sharing || branches {
            Some(format!("{name} ({state})"))
        } else if state.contains("SMT Host state unknown") {
            Some(format!(
                "{name} (whether the host's cores are shared is unknown)"
            ))
        } else {
            None
        }
    }
}

impl Hardware {
    /// Why this processor is not known to keep tenants apart.
    pub fn dangers(&self) -> Vec<String> {
        if self.flaws.is_empty() {
            return vec!["the kernel tells nothing about flaws of the processor".to_owned()];
        }
        let dangers = self.flaws.iter();
        dangers
            .filter_map(|flaw| flaw.danger(self.multithreading))
            .collect()
    }
}

impl Processor {
    /// Holds the processor against what it is used for.
    pub fn new(hardware: Hardware, tenancy: Tenancy, accepted: bool) -> Self {
        Self {
            dangers: hardware.dangers(),
            hardware,
            tenancy,
            accepted,
        }
    }

    /// Says that no script is run on it.
    pub fn refuses(&self) -> bool {
        self.is_dangerous() && !self.accepted
    }

    /// Says that tenants who must not could learn from each other.
    pub fn is_dangerous(&self) -> bool {
        self.tenancy == Tenancy::Multiple && !self.dangers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: &str, multithreading: Multithreading, vulnerable: bool, dangerous: bool) {
        let flaw = Flaw {
            name: "flaw".to_owned(),
            state: state.to_owned(),
        };
        assert_eq!(flaw.is_vulnerable(), vulnerable, "{state}");
        let hardware = Hardware {
            flaws: vec![flaw],
            multithreading,
            ..Hardware::default()
        };
        assert_eq!(!hardware.dangers().is_empty(), dangerous, "{state}");
    }

    #[test]
    fn e104_the_kernels_words_about_flaws_are_understood() {
        use Multithreading::{Off, On, Unknown};
        for (state, vulnerable, dangerous) in [
            ("Not affected", false, false),
            ("Mitigation: PTI", false, false),
            (
                "Mitigation: Speculative Store Bypass disabled via prctl",
                false,
                false,
            ),
            ("KVM: Mitigation: VMX disabled", false, false),
            ("KVM: Vulnerable", false, false),
            ("Mitigation: PTE Inversion; VMX: vulnerable", false, false),
            ("Vulnerable", true, true),
            (
                "Vulnerable: Clear CPU buffers attempted, no microcode",
                true,
                true,
            ),
            ("Vulnerable: eIBRS with unprivileged eBPF", true, true),
            (
                "Mitigation: Retpolines; STIBP: disabled; BHI: Vulnerable",
                true,
                true,
            ),
            (
                "Mitigation: Enhanced IBRS; PBRSB-eIBRS: Vulnerable, BHI: Retpoline",
                true,
                true,
            ),
            ("Unknown: No mitigations", false, true),
            ("Unknown: Dependent on hypervisor status", false, true),
            (
                "Mitigation: Clear CPU buffers; SMT Host state unknown",
                false,
                true,
            ),
            ("Mitigation: Clear CPU buffers; SMT disabled", false, false),
            ("Mitigation: Clear CPU buffers; SMT mitigated", false, false),
            ("", false, true),
        ] {
            for multithreading in [On, Off, Unknown] {
                check(state, multithreading, vulnerable, dangerous);
            }
        }
        let shared = "Mitigation: Clear CPU buffers; SMT vulnerable";
        check(shared, On, false, true);
        check(shared, Unknown, false, true);
        check(shared, Off, false, false);
        let shared = "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling";
        check(shared, On, false, true);
        check(shared, Off, false, false);
        let untold = "Mitigation: Retpolines; IBPB: disabled; STIBP: disabled; RSB filling";
        check(untold, Off, false, true);
    }

    #[test]
    fn e104_only_several_tenants_are_refused_and_only_unless_that_is_accepted() {
        let processor = |tenancy, accepted| Processor::new(Hardware::default(), tenancy, accepted);
        assert!(processor(Tenancy::Multiple, false).refuses());
        assert!(!processor(Tenancy::Multiple, true).refuses());
        assert!(processor(Tenancy::Multiple, true).is_dangerous());
        assert!(!processor(Tenancy::Single, false).is_dangerous());
    }
}
