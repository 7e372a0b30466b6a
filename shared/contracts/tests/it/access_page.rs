//! The page of methods with their access.

use std::path::Path;

use contracts::access::{Access, Role, methods};
use contracts::tavern::access::v1::{Peer, Permission, Route, Scope};

const HEAD: &str = "\
# Access to methods

The page for an operator who gives roles, and for a client that was refused: the permission that each method needs, and
the roles that have it. It is made from the options `tavern.access.v1.access` of the contract;
`BLESS=1 cargo test -p contracts` makes it anew. [The guide](guide.md#keys-and-roles) explains keys and roles.

A method *reaches* the caller's own objects (*own*), for which a caller with the permission `operate` reaches those of
its tenant; or the objects of the caller's tenant; or the installation, for which the caller needs the permission in the
tenant `system`.

`peer` methods belong to services among themselves, `public` ones to everyone. *Peers* are the services that call a
method for their own work, beside the gateway, which passes on the calls of clients. *Holder* marks a method that the
replica answers which holds the run, call, scene or session.
";

fn roles(permission: Permission) -> String {
    let mut roles = Role::ALL.to_vec();
    roles.retain(|role| role.permissions().contains(&permission));
    let names: Vec<&str> = roles.into_iter().map(Role::name).collect();
    match permission {
        Permission::Public => "everyone".to_owned(),
        _ if names.len() == Role::ALL.len() => "every role".to_owned(),
        _ => names.join(", "),
    }
}

fn peers(access: &Access) -> String {
    let all = [
        Peer::ToolRegistry,
        Peer::WorkflowExecution,
        Peer::AgentRuntime,
    ];
    let admitted = all.into_iter().filter(|peer| access.admits(*peer));
    let name = |peer: Peer| {
        let name = peer.as_str_name().trim_start_matches("PEER_");
        name.to_lowercase().replace('_', "-")
    };
    match access.permission() {
        Permission::Public => String::new(),
        _ => admitted.map(name).collect::<Vec<_>>().join(", "),
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut service = "";
    for (method, access) in methods() {
        let (of, name) = method.split_once('/').unwrap_or_default();
        if of != service {
            service = of;
            let head = "| method | permission | reaches | roles | peers | holder |\n|---|---|---|---|---|---|";
            page.push_str(&format!("\n## {service}\n\n{head}\n"));
        }
        let permission = access.permission();
        let holder = if access.route() == Route::Holder {
            "yes"
        } else {
            ""
        };
        let reach = match (permission, access.scope()) {
            (Permission::Peer | Permission::Public, _) => "",
            (_, Scope::Own) => "own",
            (_, Scope::Tenant) => "tenant",
            (_, Scope::Cluster | Scope::Unspecified) => "installation",
        };
        let (roles, peers) = (roles(permission), peers(access));
        let cells = [name, permission.name(), reach, &roles, &peers, holder];
        page.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    page
}

#[test]
fn the_page_of_access_is_the_one_that_the_contract_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/access.md");
    let made = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == stands,
        "BLESS=1 cargo test -p contracts makes it anew"
    );
}
