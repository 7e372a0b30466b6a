//! The times at which the keys of an issuer are read.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use super::company::{Company, settings};
use crate::fixture::Fixture;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn a_new_key_of_the_issuer_proves_its_first_token() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    let earlier = company.token_of("ada", "ed").await;
    fixture.resolve(&earlier).await.unwrap();
    company.issuer.rotate().await.unwrap();
    fixture.resolve(&earlier).await.unwrap();
    fixture.clock.advance(Duration::from_secs(31));
    let later = company.token_of("ada", "next").await;
    let calls = (0..50).map(|_| fixture.resolve(&later));
    for caller in join_all(calls).await {
        assert_eq!(caller.unwrap().principal, "company:ada");
    }
    assert_eq!(company.issuer.reads().await.unwrap(), 2);
    assert!(fixture.resolve(&earlier).await.is_err(), "its key is gone");
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_once_in_thirty_seconds() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    let unknown = company.token_of("ada", "next").await;
    for (waited, reads) in [(0, 1), (20, 1), (11, 2), (1, 2), (30, 3)] {
        fixture.clock.advance(Duration::from_secs(waited));
        let calls = (0..20).map(|_| fixture.resolve(&unknown));
        let refused = join_all(calls).await.iter().all(Result::is_err);
        assert!(refused);
        assert_eq!(company.issuer.reads().await.unwrap(), reads, "{waited}");
    }
}

#[tokio::test]
async fn a_read_that_lasts_holds_up_neither_keys_nor_other_tokens() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    let key = fixture.bootstrap().await;
    let token = company.token_of("ada", "ed").await;
    fixture.resolve(&token).await.unwrap();
    company.issuer.answer(&json!({"delay": 3})).await.unwrap();
    fixture.clock.advance(Duration::from_secs(31));
    let unknown = company.token_of("ada", "next").await;
    let waiting = fixture.resolve(&unknown);
    let others = async {
        for credential in [&key, &token] {
            fixture.resolve(credential).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        _ = waiting => panic!("the read is over before other credentials are resolved"),
        () = others => {}
    }
}

#[tokio::test]
async fn keys_are_read_at_the_start_and_hourly() {
    let company = Company::new().await;
    company.fixture.recover().await;
    for reads in 1..4 {
        while company.issuer.reads().await.unwrap() < reads {
            tokio::task::yield_now().await;
        }
        assert_eq!(company.issuer.reads().await.unwrap(), reads);
        company.fixture.clock.advance(HOUR);
    }
}

#[tokio::test]
async fn keys_are_used_for_a_day_while_the_issuer_is_away() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    let key = fixture.bootstrap().await;
    fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    company
        .issuer
        .answer(&json!({"status": 503}))
        .await
        .unwrap();
    fixture.clock.advance(23 * HOUR);
    fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    fixture.clock.advance(HOUR);
    assert!(
        fixture
            .resolve(&company.token_of("ada", "ed").await)
            .await
            .is_err()
    );
    fixture.resolve(&key).await.unwrap();
    company.issuer.answer(&json!({})).await.unwrap();
    fixture.clock.advance(Duration::from_secs(31));
    fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
}

#[tokio::test]
async fn keys_stand_in_a_file_too_and_a_server_of_another_ca_is_not_believed() {
    let company = Company::new().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    let mut issuer = settings(&company.issuer);
    issuer.keys = file.display().to_string();
    let token = company.token_of("ada", "es").await;
    let from_file = Fixture::with_issuers(vec![issuer.clone()]).await;
    assert!(from_file.resolve(&token).await.is_err(), "there is no file");
    let keys =
        r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "es", "x": "AAAA", "y": "AAAA"}]}"#;
    std::fs::write(&file, keys).unwrap();
    from_file.clock.advance(Duration::from_secs(31));
    assert!(
        from_file.resolve(&token).await.is_err(),
        "the point is none"
    );
    std::fs::write(&file, company.issuer.published().await.unwrap()).unwrap();
    from_file.clock.advance(Duration::from_secs(31));
    assert_eq!(
        from_file.resolve(&token).await.unwrap().principal,
        "company:ada"
    );

    let other = doubles::TestIssuer::start().await.unwrap();
    issuer = settings(&company.issuer);
    issuer.ca_file = other.ca_file();
    let strict = Fixture::with_issuers(vec![issuer.clone()]).await;
    assert!(strict.resolve(&token).await.is_err());
    issuer.ca_file = std::path::PathBuf::new();
    let of_host = Fixture::with_issuers(vec![issuer]).await;
    assert!(
        of_host.resolve(&token).await.is_err(),
        "the host has no such CA"
    );
    assert_eq!(company.issuer.reads().await.unwrap(), 0);
}
