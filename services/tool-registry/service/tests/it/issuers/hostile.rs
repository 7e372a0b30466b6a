//! Tokens and sets of keys that prove no one.

use std::time::{Duration, Instant};

use contracts::tavern::common::v1::ErrorReason;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::company::Company;
use crate::credentials::mutated;

/// A token whose `kid` is that of no usable key, so that a newer set might have it.
const WEAK: &str = "an RSA key of 1,024 bits";

/// A token: its name, its key, and the differences from a good one: claims (null removes one), and the algorithm and
/// the headers.
type Hostile = (&'static str, &'static str, Value, Value);

/// Tokens with a hostile header, or signed with another key or algorithm.
fn hostile_headers() -> Vec<Hostile> {
    let header = |name: &str, value: Value| json!({"headers": {name: value}});
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"});
    [
        ("no signature", "ed", json!({"alg": "none"})),
        ("HS256 with the public key", "rs", json!({"alg": "HS256"})),
        ("HS256 with another key", "es", json!({"alg": "HS256"})),
        ("another algorithm of RSA", "rs", json!({"alg": "RS512"})),
        ("PSS", "rs", json!({"alg": "PS256"})),
        (WEAK, "weak", json!({})),
        (
            "a key that is not published",
            "next",
            header("kid", json!("ed")),
        ),
        (
            "a key of another algorithm",
            "ed",
            header("kid", json!("es")),
        ),
        (
            "jku",
            "ed",
            header("jku", json!("https://evil.example/keys")),
        ),
        (
            "x5u",
            "ed",
            header("x5u", json!("https://evil.example/cert")),
        ),
        ("jwk", "ed", header("jwk", jwk)),
        ("x5c", "ed", header("x5c", json!(["AA"]))),
        ("an unknown crit", "ed", header("crit", json!(["exp"]))),
        ("an empty crit", "ed", header("crit", json!([]))),
        ("another type", "ed", header("typ", json!("logout+jwt"))),
        (
            "a kid that is no text",
            "ed",
            json!({"alg": "none", "headers": {"kid": 7}}),
        ),
    ]
    .map(|(name, kid, more)| (name, kid, json!({}), more))
    .into()
}

/// Tokens with hostile claims.
fn hostile_claims(now: i64) -> Vec<Hostile> {
    let day = 24 * 60 * 60;
    [
        ("another issuer", json!({"iss": "https://evil.example"})),
        ("no iss", json!({"iss": null})),
        ("another audience", json!({"aud": "taverna"})),
        ("other audiences", json!({"aud": ["a", "b"]})),
        ("no aud", json!({"aud": null})),
        ("no sub", json!({"sub": null})),
        ("an empty sub", json!({"sub": ""})),
        ("a long sub", json!({"sub": "é".repeat(60)})),
        ("no exp", json!({"exp": null})),
        ("exp beyond any time", json!({"exp": 1e300})),
        ("exp before all time", json!({"exp": -1})),
        ("expired", json!({"exp": now - 61})),
        ("exp beyond 24 h", json!({"exp": now + day + 120})),
        ("not yet valid", json!({"nbf": now + 120})),
        ("issued in the future", json!({"iat": now + 120})),
        ("claims that no rule maps", json!({"groups": ["all"]})),
        ("no claims of rules", json!({"groups": null})),
        ("over 8 KiB", json!({"more": "a".repeat(8 << 10)})),
    ]
    .map(|(name, changed)| (name, "ed", changed, json!({})))
    .into()
}

impl Company {
    async fn hostile_token(&self, (_, kid, changed, more): &Hostile) -> String {
        let mut claims = self.claims("ada");
        for (name, value) in changed.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        self.issuer.sign(kid, &claims, more).await.unwrap()
    }
}

fn assert_same(name: &str, status: &Status, first: &Status) {
    assert_eq!(status.code(), first.code(), "{name}");
    assert_eq!(status.message(), first.message(), "{name}");
    assert_eq!(status.details(), first.details(), "{name}");
    assert_eq!(
        status.metadata().as_ref(),
        first.metadata().as_ref(),
        "{name}"
    );
}

#[tokio::test]
async fn hostile_tokens_get_the_same_status_and_nothing_is_fetched() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    let reads = company.issuer.reads().await.unwrap();
    assert_eq!(reads, 1);
    // From now on the keys could be read again.
    fixture.clock.advance(Duration::from_secs(31));
    let first = fixture.resolve("").await.unwrap_err();
    assert_eq!(first.code(), Code::Unauthenticated);
    assert_eq!(grpc_kit::reason(&first), Some(ErrorReason::Unauthenticated));
    for hostile in [hostile_headers(), hostile_claims(company.now())].concat() {
        let token = company.hostile_token(&hostile).await;
        let (name, reads) = (hostile.0, company.issuer.reads().await.unwrap());
        if token.len() > 8 << 10 {
            // The contract refuses it, and the door does not pass it on.
            assert!(fixture.resolve(&token).await.is_err(), "{name}");
            continue;
        }
        assert_same(name, &fixture.resolve(&token).await.unwrap_err(), &first);
        assert_same(name, &fixture.login(&token).await.unwrap_err(), &first);
        assert_same(name, &fixture.ticket(&token).await.unwrap_err(), &first);
        let read = company.issuer.reads().await.unwrap() - reads;
        assert_eq!(read, u64::from(name == WEAK), "{name}");
        fixture
            .clock
            .advance(Duration::from_secs(u64::from(name == WEAK) * 31));
    }
    let good = company.token_of("ada", "ed").await;
    fixture.resolve(&good).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_a_minute_off_is_tolerated() {
    let company = Company::new().await;
    let now = company.now();
    let day = 24 * 60 * 60;
    for (name, value) in [
        ("exp", now - 30),
        ("nbf", now + 30),
        ("iat", now + 30),
        ("exp", now + day + 30),
    ] {
        let mut claims = company.claims("ada");
        claims[name] = json!(value);
        let caller = company
            .fixture
            .resolve(&company.sign("ed", &claims).await)
            .await;
        assert_eq!(caller.unwrap().principal, "company:ada", "{name} {value}");
    }
}

#[tokio::test]
async fn refused_sets_of_keys_leave_the_earlier_one_in_force() {
    let company = Company::new().await;
    let fixture = &company.fixture;
    let token = company.token_of("ada", "ed").await;
    fixture.resolve(&token).await.unwrap();
    let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "next", "x": "A".repeat(43)});
    let keys = |keys: Value| json!({"body": json!({"keys": keys}).to_string()});
    let with = |name: &str, value: &str| {
        let mut key = key.clone();
        key[name] = json!(value);
        key
    };
    for (name, answer) in [
        ("duplicates", keys(json!([key, key]))),
        (
            "a duplicate of another kind",
            keys(json!([key, {"kty": "RSA", "kid": "next"}])),
        ),
        ("a private key", keys(json!([with("d", "AAAA")]))),
        (
            "a secret",
            keys(json!([key, {"kty": "oct", "kid": "x", "k": "AAAA"}])),
        ),
        ("no key", keys(json!([]))),
        ("keys to encrypt", keys(json!([with("use", "enc")]))),
        (
            "a key of another algorithm",
            keys(json!([with("alg", "ES256")])),
        ),
        (
            "a key without an id",
            keys(json!([{"kty": "OKP", "crv": "Ed25519", "x": "A".repeat(43)}])),
        ),
        ("keys that are no objects", keys(json!([7]))),
        ("no list", keys(json!({}))),
        (
            "HTML",
            json!({"body": "<!doctype html><title>Sign in</title>"}),
        ),
        (
            "10 MB",
            json!({"body": "{\"keys\":[]}     ", "repeat": 655_360}),
        ),
        (
            "a redirect",
            json!({"status": 302, "headers": {"location": "/keys"}}),
        ),
        ("another status", json!({"status": 203})),
        ("an error", json!({"status": 500})),
        (
            "nothing",
            json!({"headers": {"content-length": "100"}, "body": "{"}),
        ),
        ("an answer that takes too long", json!({"delay": 6})),
    ] {
        company.issuer.answer(&answer).await.unwrap();
        fixture.clock.advance(Duration::from_secs(31));
        let reads = company.issuer.reads().await.unwrap();
        let unknown = company.token_of("ada", "next").await;
        let refused = fixture.resolve(&unknown).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{name}");
        assert_eq!(company.issuer.reads().await.unwrap(), reads + 1, "{name}");
        let caller = fixture.resolve(&token).await;
        assert_eq!(caller.unwrap().principal, "company:ada", "{name}");
    }
}

#[tokio::test]
async fn mutated_tokens_prove_no_one() {
    let count = std::env::var("TAVERN_TEST_MUTATIONS");
    let count: usize = count.map_or(100_000, |count| count.parse().unwrap());
    let company = Company::new().await;
    let mut originals = Vec::new();
    for kid in ["ed", "es", "rs"] {
        originals.push(company.token_of("ada", kid).await);
    }
    let identities = company.fixture.registry.as_ref().unwrap().identities();
    for token in &originals {
        assert!(identities.resolve(token).await.is_ok());
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut times = Vec::with_capacity(count);
    while times.len() < count {
        let original = &originals[random.usize(..3)];
        let text = mutated(&mut random, original);
        if originals.contains(&text) {
            continue;
        }
        let begun = Instant::now();
        let proven = identities.resolve(&text).await;
        times.push(begun.elapsed());
        assert!(
            proven.is_err(),
            "`{text}` of `{original}` proves {proven:?}"
        );
    }
    times.sort_unstable();
    let (median, p99) = (times[count / 2], times[count * 99 / 100]);
    println!("{count} mutated tokens: median {median:?}, p99 {p99:?}");
    for (kid, token) in ["ed", "es", "rs"].iter().zip(&originals) {
        let mut times = Vec::new();
        for _ in 0..1_000 {
            let begun = Instant::now();
            assert!(identities.resolve(token).await.is_ok());
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        println!(
            "good tokens of {kid}: median {:?}, p99 {:?}",
            times[500], times[990]
        );
    }
}
