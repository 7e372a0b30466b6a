//! The facts of methods: who may call them, which replica answers, and when.
//!
//! The contract states them by the option `tavern.access.v1.access` of each method; those of A2A, whose
//! files are not ours, are in a table here.

use crate::tavern::access::v1::{Access, Permission, Route, Scope};

include!(concat!(env!("OUT_DIR"), "/access.rs"));

const INVOKE: Access = Access {
    permission: Permission::Invoke as i32,
    scope: Scope::Own as i32,
    route: Route::Unspecified as i32,
    while_draining: false,
    long: false,
};

const READ: Access = Access {
    permission: Permission::Read as i32,
    ..INVOKE
};

/// The methods of A2A, in the order of the names.
static A2A: &[(&str, Access)] = &[
    (
        "lf.a2a.v1.A2AService/CancelTask",
        Access {
            route: Route::Holder as i32,
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
            scope: Scope::Tenant as i32,
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
            route: Route::Holder as i32,
            ..READ
        },
    ),
];

/// Returns the facts of a method (`package.Service/Method`); `None` for a method of neither the contract nor
/// A2A.
pub fn of(method: &str) -> Option<&'static Access> {
    [CONTRACT, A2A].into_iter().find_map(|table| {
        let place = table.binary_search_by_key(&method, |(name, _)| name).ok()?;
        Some(&table[place].1)
    })
}

/// Returns every method with its facts.
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
    fn every_method_that_is_served_states_its_facts() {
        let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        let mut served = 0;
        for file in set.file {
            for service in &file.service {
                for method in &service.method {
                    let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    let access = of(&name);
                    assert!(access.is_some_and(|access| access.permission > 0), "{name}");
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
    fn a_method_of_neither_has_no_facts() {
        assert_eq!(of("grpc.health.v1.Health/Check"), None);
        assert_eq!(of(""), None);
    }
}
