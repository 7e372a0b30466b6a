//! The facts of methods: who may call them, which replica answers, and when.
//!
//! The contract states them by the option `tavern.access.v1.access` of each method; those of A2A, whose
//! files are not ours, are in a table here.

use crate::tavern::access::v1::{Peer, Permission, Route, Scope};

mod role;

pub use role::Role;

include!(concat!(env!("OUT_DIR"), "/access.rs"));

/// The facts of a method, as `tavern.access.v1.Access` describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    permission: Permission,
    scope: Scope,
    route: Route,
    peers: &'static [Peer],
    while_draining: bool,
    long: bool,
}

impl Access {
    /// Returns the permission that a client needs.
    pub const fn permission(&self) -> Permission {
        self.permission
    }

    /// Returns the reach of the permission.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the replicas that can answer.
    pub const fn route(&self) -> Route {
        self.route
    }

    /// Whether a service may call the method. The gateway, which passes on the calls of clients, may call each. A
    /// method that is public for clients is not for services.
    pub fn admits(&self, peer: Peer) -> bool {
        peer == Peer::Gateway || self.peers.contains(&peer)
    }

    /// Whether a server that drains still answers.
    pub const fn while_draining(&self) -> bool {
        self.while_draining
    }

    /// Whether a call with one answer may take longer than the server's limit for calls.
    pub const fn long(&self) -> bool {
        self.long
    }
}

const INVOKE: Access = Access {
    permission: Permission::Invoke,
    scope: Scope::Own,
    route: Route::Unspecified,
    peers: &[],
    while_draining: false,
    long: false,
};

const READ: Access = Access {
    permission: Permission::Read,
    ..INVOKE
};

const PUBLIC: Access = Access {
    permission: Permission::Public,
    scope: Scope::Cluster,
    ..INVOKE
};

/// The methods of A2A, in the order of the names.
static A2A: &[(&str, Access)] = &[
    (
        "lf.a2a.v1.A2AService/CancelTask",
        Access {
            route: Route::Holder,
            ..INVOKE
        },
    ),
    (
        "lf.a2a.v1.A2AService/CreateTaskPushNotificationConfig",
        INVOKE,
    ),
    (
        "lf.a2a.v1.A2AService/DeleteTaskPushNotificationConfig",
        INVOKE,
    ),
    (
        "lf.a2a.v1.A2AService/GetExtendedAgentCard",
        Access {
            scope: Scope::Tenant,
            ..READ
        },
    ),
    ("lf.a2a.v1.A2AService/GetTask", READ),
    ("lf.a2a.v1.A2AService/GetTaskPushNotificationConfig", READ),
    ("lf.a2a.v1.A2AService/ListTaskPushNotificationConfigs", READ),
    ("lf.a2a.v1.A2AService/ListTasks", READ),
    (
        "lf.a2a.v1.A2AService/SendMessage",
        Access {
            long: true,
            ..INVOKE
        },
    ),
    ("lf.a2a.v1.A2AService/SendStreamingMessage", INVOKE),
    (
        "lf.a2a.v1.A2AService/SubscribeToTask",
        Access {
            route: Route::Holder,
            ..READ
        },
    ),
];

/// The methods of the server itself.
static INFRASTRUCTURE: &[(&str, Access)] = &[
    ("grpc.health.v1.Health/Check", PUBLIC),
    ("grpc.health.v1.Health/Watch", PUBLIC),
    (
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        READ,
    ),
    (
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        READ,
    ),
];

/// Returns the facts of a method (`package.Service/Method`); `None` for a method of neither the contract nor
/// A2A nor the server itself.
pub fn of(method: &str) -> Option<&'static Access> {
    [CONTRACT, A2A, INFRASTRUCTURE]
        .into_iter()
        .find_map(|table| {
            let place = table.binary_search_by_key(&method, |(name, _)| name).ok()?;
            Some(&table[place].1)
        })
}

/// Returns every method of the contract and of A2A with its facts.
pub fn methods() -> impl Iterator<Item = (&'static str, &'static Access)> {
    let all = CONTRACT.iter().chain(A2A);
    all.map(|(name, access)| (*name, access))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn a_service_calls_only_the_methods_that_name_it() {
        let call_tool = of("tavern.registry.v1.CallService/CallTool").unwrap();
        assert!(call_tool.admits(Peer::AgentRuntime) && call_tool.admits(Peer::Gateway));
        assert!(!call_tool.admits(Peer::ToolRegistry) && !call_tool.admits(Peer::Unspecified));
    }

    #[test]
    fn every_method_that_is_served_states_its_facts() {
        let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        let mut served = 0;
        for file in set.file {
            for service in &file.service {
                for method in &service.method {
                    let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    let access = of(&name);
                    assert!(
                        access.is_some_and(|access| access.permission != Permission::Unspecified),
                        "{name}"
                    );
                    served += 1;
                }
            }
        }
        assert_eq!(served, methods().count());
    }

    #[test]
    fn a_run_is_found_followed_and_cancelled_while_its_server_drains() {
        let while_draining = methods().filter(|(_, access)| access.while_draining);
        let names: Vec<&str> = while_draining.map(|(name, _)| name).collect();
        let of_runs = ["CancelRun", "GetRun", "WatchRun"];
        assert_eq!(
            names,
            of_runs.map(|name| format!("tavern.run.v1.RunService/{name}"))
        );
    }

    #[test]
    fn the_tables_are_in_the_order_of_the_names() {
        for table in [CONTRACT, A2A, INFRASTRUCTURE] {
            assert!(table.is_sorted_by_key(|(name, _)| name));
        }
    }

    #[test]
    fn a_method_that_is_not_served_has_no_facts() {
        assert_eq!(of("grpc.health.v1.Health/Other"), None);
        assert_eq!(of(""), None);
    }
}
