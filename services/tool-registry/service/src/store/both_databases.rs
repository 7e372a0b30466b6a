//! Facts of the stores, in a file and at a server.

use std::sync::Arc;

use core_types::{Principal, Tenant, Timestamp};
use sql_store::{Database, Migrations};
use tool_domain::identity::{Account, Block, LastToken};
use tool_domain::tenant::{DayAmount, TenantRecord};

use super::{
    MIGRATIONS, SERVER_MIGRATIONS,
    denials::{Counted, Denial, DenialStore},
    identities::IdentityStore,
    plugins::PackageStore,
    tenants::TenantStore,
};

/// The tables at a server, and in a file.
pub(super) const SERVER: [Migrations; 1] = [SERVER_MIGRATIONS];
pub(super) const FILE: [Migrations; 2] = [documents::MIGRATIONS, MIGRATIONS];

postgres_kit::on_every_database! {
    (FILE, SERVER)
    a_package_is_stored_once_and_kept_while_it_is_named
    denials_of_a_minute_are_added_up
    tenants_and_the_amounts_of_a_month_are_kept
    principals_and_the_first_sealing_key_are_kept
    the_latest_token_of_a_principal_is_kept
}

async fn a_package_is_stored_once_and_kept_while_it_is_named(store: Database) {
    store.put("a", b"first\0").await.unwrap();
    store.put("a", b"second").await.unwrap();
    store.put("b", b"other").await.unwrap();
    let first = store.get("a").await.unwrap();
    assert_eq!(first.as_deref(), Some(b"first\0".as_slice()));
    store.retain(&["a"]).await.unwrap();
    assert!(store.get("a").await.unwrap().is_some());
    assert_eq!(store.get("b").await.unwrap(), None);
    store.retain(&[]).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), None);
}

fn counted(minute: i64, tool: &str, count: u64) -> Counted {
    let denial = Denial {
        principal: "ada".to_owned(),
        method: "CallTool".to_owned(),
        reason: "right".to_owned(),
        tool_id: tool.to_owned(),
    };
    Counted {
        minute,
        denial,
        count,
    }
}

async fn denials_of_a_minute_are_added_up(store: Database) {
    let first = [counted(2, "b", 1), counted(1, "NUL \0", 2)];
    store.add(&first).await.unwrap();
    store.add(&[counted(2, "b", 3)]).await.unwrap();
    assert_eq!(
        store.before(9).await.unwrap(),
        [counted(1, "NUL \0", 2), counted(2, "b", 4)]
    );
    assert_eq!(store.before(2).await.unwrap().len(), 1);
    store.remove(&[counted(2, "b", 0)]).await.unwrap();
    assert_eq!(store.before(9).await.unwrap(), [counted(1, "NUL \0", 2)]);
}

fn amount(tenant: Tenant, day: i64, amount: u64) -> DayAmount {
    DayAmount {
        tenant,
        day,
        quantity: 3,
        amount,
    }
}

async fn tenants_and_the_amounts_of_a_month_are_kept(store: Database) {
    let acme = Tenant::new("acme").unwrap();
    let record = TenantRecord::new(acme, Timestamp::from_unix_nanos(7));
    for _ in 0..2 {
        TenantStore::save(&store, &record).await.unwrap();
    }
    assert_eq!(TenantStore::load(&store).await.unwrap(), [record]);

    let first = [amount(acme, 100, 5), amount(Tenant::DEFAULT, 100, 1)];
    store.set_amounts(&first).await.unwrap();
    store.set_amounts(&[amount(acme, 100, 6)]).await.unwrap();
    store.remove_amounts(Tenant::DEFAULT).await.unwrap();
    assert_eq!(store.amounts_of(100).await.unwrap(), [amount(acme, 100, 6)]);
    store.set_amounts(&[amount(acme, 132, 1)]).await.unwrap();
    assert_eq!(store.amounts_of(100).await.unwrap(), []);
}

fn account(name: &str) -> Account {
    let name = Principal::new(name).unwrap();
    Account::new(name, Timestamp::from_unix_nanos(1))
}

async fn principals_and_the_first_sealing_key_are_kept(store: Database) {
    let ada = account("acme/ada");
    let (_, key) = IdentityStore::load(&store, [1; 32]).await.unwrap();
    assert_eq!(key, [1; 32]);
    let saved = IdentityStore::save(&store, std::slice::from_ref(&ada), Some(&ada.name));
    saved.await.unwrap();
    let other = Principal::new("acme/bob").unwrap();
    IdentityStore::save(&store, &[], Some(&other))
        .await
        .unwrap();
    let (accounts, key) = IdentityStore::load(&store, [2; 32]).await.unwrap();
    assert_eq!(key, [1; 32]);
    assert_eq!(accounts.heir(), Some(&ada.name));
    assert_eq!(accounts.get(&ada.name).map(|ada| &**ada), Some(&ada));
    IdentityStore::remove_of(&store, ada.name.tenant())
        .await
        .unwrap();
    let (accounts, _) = IdentityStore::load(&store, [2; 32]).await.unwrap();
    assert!(accounts.get(&ada.name).is_none());
}

fn token(name: &str, issued: i64) -> LastToken {
    LastToken {
        account: Arc::new(account(name)),
        iss: "https://issuer".to_owned(),
        issued: Timestamp::from_unix_nanos(issued),
        ends: Timestamp::from_unix_nanos(100),
    }
}

async fn the_latest_token_of_a_principal_is_kept(store: Database) {
    for (name, issued) in [("acme/ada", 5), ("acme/ada", 4), ("acme/bob", 5)] {
        store.save_last(&token(name, issued), &[]).await.unwrap();
    }
    let [ada, bob, eve] =
        ["acme/ada", "acme/bob", "acme/eve"].map(|name| Principal::new(name).unwrap());
    let block = Block {
        name: eve.clone(),
        since: Timestamp::from_unix_nanos(9),
    };
    store.save_block(&block).await.unwrap();
    let issued = store.load_issued().await.unwrap();
    assert_eq!(issued.last(&ada), Some(&token("acme/ada", 5)));
    assert_eq!(issued.blocked_since(&eve), Some(block.since));

    let forgotten = [bob.clone()];
    store
        .save_last(&token("acme/ada", 6), &forgotten)
        .await
        .unwrap();
    store.remove_block(&eve).await.unwrap();
    let issued = store.load_issued().await.unwrap();
    assert_eq!(issued.last(&ada), Some(&token("acme/ada", 6)));
    assert_eq!(issued.last(&bob), None);
    assert!(!issued.is_blocked(&eve));
}
