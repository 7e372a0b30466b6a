use super::*;

fn account(tenant: &str, number: usize) -> Account {
    let name = Principal::new(&format!("{tenant}/p{number}")).unwrap();
    Account::new(name, Timestamp::default())
}

fn refused(accounts: &Accounts, name: &str) -> Option<Refusal> {
    let name = Principal::new(name).unwrap();
    accounts.get_or_new(&name, Timestamp::default()).err()
}

#[test]
fn principals_are_bounded_for_each_tenant_and_in_total() {
    let of_acme = (0..MAX_PRINCIPALS).map(|number| account("acme", number));
    let accounts = Accounts::new(None, of_acme);
    let of_tenant = Refusal::Limit {
        limit: "principals",
        maximum: MAX_PRINCIPALS,
    };
    assert_eq!(refused(&accounts, "acme/bob"), Some(of_tenant));
    assert_eq!(refused(&accounts, "acme/p0"), None);
    for other in ["bob", "beta/bob"] {
        assert_eq!(refused(&accounts, other), None);
    }
    let others = (MAX_PRINCIPALS..MAX_PRINCIPALS_OF_ALL).map(|number| account("beta", number));
    let accounts = others.fold(accounts, Accounts::with);
    let of_all = Refusal::Limit {
        limit: "principals of all tenants",
        maximum: MAX_PRINCIPALS_OF_ALL,
    };
    assert_eq!(refused(&accounts, "bob"), Some(of_all));
}
