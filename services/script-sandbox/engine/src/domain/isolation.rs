//! The isolation levels and the layers of each.

use sandbox_protocol::report::Layer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An isolation level, from the weakest to the strongest.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// No namespaces.
    Reduced,
    /// Namespaces and a root of its own, without /proc.
    FullWithoutProc,
    /// Namespaces, a root and a /proc of its own.
    Full,
}

impl IsolationLevel {
    /// All levels, the strongest first.
    pub const STRONGEST_FIRST: [IsolationLevel; 3] = [
        IsolationLevel::Full,
        IsolationLevel::FullWithoutProc,
        IsolationLevel::Reduced,
    ];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reduced => "reduced",
            Self::FullWithoutProc => "full_without_proc",
            Self::Full => "full",
        }
    }

    /// The layers that this level lacks, and what a script can do because of that.
    pub fn missing(self) -> Vec<MissingLayer> {
        let missing: &[(Layer, &str)] = match self {
            Self::Full => &[],
            Self::FullWithoutProc => &[(
                Layer::Proc,
                "the script has no /proc: programs that read it fail, nothing leaks by it",
            )],
            Self::Reduced => &REDUCED,
        };
        let missing = missing.iter();
        missing
            .map(|&(layer, text)| MissingLayer::new(layer, text))
            .collect()
    }
}

/// The layers that the level `reduced` lacks.
#[rustfmt::skip] // a layer per line
const REDUCED: [(Layer, &str); 8] = [
    (Layer::UserNamespace, "the script runs as a user of the host"),
    (Layer::MountNamespace, "the script sees the host's paths, and reads only those granted"),
    (Layer::PidNamespace, "the script can tell which process ids exist"),
    (Layer::NetworkNamespace, "the script shares the host's network and can make no socket in it"),
    (Layer::IpcNamespace, "the script shares the host's ipc objects and can make none"),
    (Layer::UtsNamespace, "the script sees the host's name"),
    (Layer::CgroupNamespace, "the script shares the host's cgroup view and cannot read it"),
    (Layer::DiskQuota, "scratch files lie on the host's disk and their sum is sampled"),
];

/// The mechanism that enforces the limits on memory and processes, from the weakest to the
/// strongest.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MemoryEnforcement {
    /// Rlimits per process and a sampled sum.
    Sampled,
    /// Control groups version 2.
    CgroupV2,
    /// Control groups version 1.
    CgroupV1,
}

impl MemoryEnforcement {
    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::CgroupV2 => "cgroup_v2",
            Self::CgroupV1 => "cgroup_v1",
        }
    }
}

/// A missing layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingLayer {
    /// The layer.
    pub layer: Layer,
    /// The reason, and its consequence for the script.
    pub consequence: String,
}

impl MissingLayer {
    /// A layer that the launcher had to do without.
    pub fn reported(layer: Layer) -> Self {
        let consequence = match layer {
            Layer::Keyring => "the script keeps the service's session keyring and cannot use it",
            Layer::LandlockScopes => {
                "landlock cannot keep signals inside; at the reduced level no signal can be sent at all"
            }
            Layer::CgroupLimits => {
                "the host has no writable cgroup: memory and processes are sampled"
            }
            _ => "the host does not have it",
        };
        Self::new(layer, consequence)
    }

    fn new(layer: Layer, consequence: &str) -> Self {
        let consequence = consequence.to_owned();
        Self { layer, consequence }
    }
}
