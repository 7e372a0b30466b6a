//! The compiled protobuf contract of Tavern and its descriptor set.
//!
//! The source of everything here is `proto/`; the comments there are the documentation. Modules
//! follow the packages: `tavern.common.v1` is [`tavern::common::v1`].

pub mod access;
pub mod codec;
pub mod in_doubt;
mod secrets;
pub mod watch;

/// The packages below `tavern`.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    clippy::unwrap_used,
    missing_docs,
    rustdoc::all,
    reason = "generated code; its comments come from the proto files"
)]
pub mod tavern {
    /// The facts of methods.
    pub mod access {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.access.v1");
        }
    }
    /// Messages that all services share.
    pub mod common {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.common.v1");
        }
    }
    /// Runs, at every service that owns them.
    pub mod run {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.run.v1");
        }
    }
    /// tool-registry.
    pub mod registry {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.registry.v1");
        }
    }
    /// The services that backends of plugins serve.
    pub mod plugin {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.plugin.v1");
        }
    }
    /// Tenants, as services exchange them.
    pub mod tenant {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.tenant.v1");
        }
    }
    /// workflow-execution.
    pub mod workflow {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.workflow.v1");
        }
    }
    /// script-sandbox.
    pub mod sandbox {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.sandbox.v1");
        }
    }
    /// agent-runtime.
    pub mod agent {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.agent.v1");
        }
    }
    /// gateway.
    pub mod gateway {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("tavern.gateway.v1");
        }
    }
}

/// The protocols of others that Tavern speaks.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    deprecated,
    missing_docs,
    rustdoc::all,
    reason = "generated code; its comments come from the proto files"
)]
pub mod lf {
    /// Agent2Agent.
    pub mod a2a {
        /// Version 1.
        pub mod v1 {
            tonic::include_proto!("lf.a2a.v1");
        }
    }
}

/// The domain of every `ErrorInfo` of ours.
pub const ERROR_DOMAIN: &str = "tavern";

/// The serialised `FileDescriptorSet` of every proto file, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/descriptor_set.bin"));
