use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core_types::Tenant;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_000_000;

/// Signs a header and claims, each as it is written.
fn signed(pair: &Ed25519KeyPair, header: &str, claims: &str) -> String {
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!(
        "{}.{}",
        encoded(header.as_bytes()),
        encoded(claims.as_bytes())
    );
    let signature = pair.sign(signed.as_bytes());
    format!("{signed}.{}", encoded(signature.as_ref()))
}

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn keys_of(pair: &Ed25519KeyPair) -> KeySet {
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x});
    KeySet::read(json!({"keys": [key]}).to_string().as_bytes()).unwrap()
}

fn rule(claim: &str, value: &str, tenant: &str, roles: &[&str]) -> Rule {
    Rule {
        claim: claim.to_owned(),
        value: value.to_owned(),
        tenant: Tenant::new(tenant).unwrap(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        groups: Vec::new(),
    }
}

fn issuer(rules: Vec<Rule>) -> Issuer {
    Issuer {
        name: "idp".to_owned(),
        iss: "i".to_owned(),
        audiences: vec!["tavern".to_owned()],
        rules,
    }
}

fn now() -> Timestamp {
    Timestamp::from_seconds_and_nanos(NOW, 0).unwrap()
}

/// Returns the verdict on a token of a header and claims.
fn verdict(header: &str, claims: &str) -> Result<LastToken, TokenFault> {
    let pair = pair();
    let issuer = issuer(vec![rule("g", "devs", "default", &["viewer"])]);
    let text = signed(&pair, header, claims);
    let token = IssuerToken::read(&text)?;
    issuer.check(&token, now())?;
    keys_of(&pair).verify(&token)?;
    issuer.admit(&token, now())
}

const HEADER: &str = r#"{"alg":"EdDSA","kid":"k"}"#;

fn claims() -> Value {
    json!({"iss": "i", "sub": "ada", "aud": "tavern", "exp": NOW + 60, "g": ["devs"]})
}

#[test]
fn a_token_is_proven_by_the_key_of_its_header() {
    let token = verdict(HEADER, &claims().to_string()).unwrap();
    assert_eq!(token.account.name.as_str(), "idp:ada");
    assert_eq!(token.ends, now().plus(2 * SKEW));
    assert_eq!(token.issued, Timestamp::default());
}

#[test]
fn headers_are_read_strictly() {
    let claims = claims().to_string();
    for (header, fault) in [
        (
            r#"{"alg":"EdDSA","kid":"k","alg":"EdDSA"}"#,
            TokenFault::Form,
        ),
        (r#"{"alg":"EdDSA","kid":"k","kid":"k"}"#, TokenFault::Form),
        (r#"{"alg":["EdDSA"],"kid":"k"}"#, TokenFault::Form),
        (r#"{"alg":"EdDSA"}"#, TokenFault::Form),
        (r#"{"kid":"k"}"#, TokenFault::Form),
        (r"[]", TokenFault::Form),
        (r"", TokenFault::Form),
        (r#"{"alg":"eddsa","kid":"k"}"#, TokenFault::Algorithm),
        (r#"{"alg":"none","kid":"k"}"#, TokenFault::Algorithm),
        (r#"{"alg":"None","kid":"k"}"#, TokenFault::Algorithm),
        (r#"{"alg":"HS256","kid":"k"}"#, TokenFault::Algorithm),
        (r#"{"alg":"ES256K","kid":"k"}"#, TokenFault::Algorithm),
        (r#"{"alg":"ES256","kid":"k"}"#, TokenFault::OtherAlgorithm),
        (r#"{"alg":"EdDSA","kid":"../k"}"#, TokenFault::Key),
        (r#"{"alg":"EdDSA","kid":"k","jku":""}"#, TokenFault::Header),
        (
            r#"{"alg":"EdDSA","kid":"k","crit":["b64"],"b64":false}"#,
            TokenFault::Header,
        ),
        (
            r#"{"alg":"EdDSA","kid":"k","typ":"dpop+jwt"}"#,
            TokenFault::Type,
        ),
    ] {
        assert_eq!(verdict(header, &claims), Err(fault), "{header}");
    }
    for header in [
        r#"{"typ":"JWT","alg":"EdDSA","kid":"k"}"#,
        r#"{"typ":"at+jwt","alg":"EdDSA","kid":"k","x5t":"a","later":1}"#,
    ] {
        assert!(verdict(header, &claims).is_ok(), "{header}");
    }
}

#[test]
fn the_text_of_a_token_has_one_form() {
    let pair = pair();
    let token = signed(&pair, HEADER, &claims().to_string());
    let read = |text: &str| IssuerToken::read(text).err();
    assert_eq!(read(&token), None);
    for text in [
        format!("{token}="),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}\n"),
        token.replacen('.', "..", 1),
        token.replace('.', ""),
        String::new(),
        "..".to_owned(),
    ] {
        assert_eq!(read(&text), Some(TokenFault::Form), "{text}");
    }
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    assert_eq!(verdict(HEADER, &deep), Err(TokenFault::Form));
    let long = "a".repeat(MAX_TOKEN_BYTES + 1);
    assert_eq!(read(&long), Some(TokenFault::Long));
}

#[test]
fn keys_of_rsa_have_2048_to_4096_bits() {
    let set = |bits: usize, e: &[u8]| {
        let mut n = vec![0xff; bits.div_ceil(8)];
        n[0] = 0xff >> (n.len() * 8 - bits);
        let [n, e] = [&n, e].map(|number| URL_SAFE_NO_PAD.encode(number));
        let key = json!({"kty": "RSA", "kid": "k", "n": n, "e": e});
        KeySet::read(json!({"keys": [key]}).to_string().as_bytes()).is_ok()
    };
    for (bits, is_used) in [
        (512, false),
        (1_024, false),
        (2_047, false),
        (2_048, true),
        (4_096, true),
        (4_097, false),
        (8_192, false),
    ] {
        assert_eq!(set(bits, &[1, 0, 1]), is_used, "{bits}");
    }
    assert!(!set(2_048, &[1; 5]) && !set(2_048, &[]));
}

#[test]
fn the_first_rule_decides_about_the_tenant() {
    let rules = vec![
        rule("org", "acme", "acme", &["viewer"]),
        rule("g", "devs", "acme", &["developer", "viewer"]),
        rule("g", "devs", "default", &["admin"]),
        rule("a.b", "1", "beta", &["viewer"]),
        rule("verified", "true", "beta", &["invoker"]),
    ];
    for (more, tenant, roles) in [
        (
            json!({"org": "acme", "g": "devs"}),
            "acme",
            &["viewer", "developer"][..],
        ),
        (json!({"org": ["acme"]}), "acme", &["viewer"]),
        (json!({"a": {"b": 1}}), "beta", &["viewer"]),
        (json!({"a.b": "1"}), "beta", &["viewer"]),
        (json!({"verified": true}), "beta", &["invoker"]),
    ] {
        let mapped = rule::map(&rules, more.as_object().unwrap()).unwrap();
        assert_eq!(
            (mapped.tenant.as_str(), &*mapped.roles),
            (
                tenant,
                &roles.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]
            )
        );
    }
    for other in [
        json!({}),
        json!({"org": "acmes"}),
        json!({"org": {"acme": "acme"}}),
        json!({"org": [["acme"]]}),
        json!({"org": "acme devs"}),
        json!({"org": null}),
        json!({"a": {"c": 1}}),
    ] {
        assert_eq!(
            rule::map(&rules, other.as_object().unwrap()),
            None,
            "{other}"
        );
    }
}
