//! Keys, tokens of logins and tickets, and everything else that proves no one (rules S601, S602, S611).

use std::{fs, path::Path, time::Duration};

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        BootstrapRequest, Caller, CreateKeyRequest, IssueTicketRequest, LoginRequest,
        ResolveCredentialRequest, ResolvePrincipalRequest, RevokeKeysRequest,
    },
};
use core_types::Principal;
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use crate::fixture::Fixture;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Fixture {
    /// Makes the first key, of the principal `admin`.
    pub(crate) async fn bootstrap(&self) -> String {
        let mut identities = self.identities_for(&Principal::LOCAL);
        let made = identities.bootstrap(BootstrapRequest::default()).await;
        made.unwrap().into_inner().secret_key
    }

    /// Makes a key of a principal, which gets the role if it does not exist.
    pub(crate) async fn key_of(&self, name: &str, role: &str, days: u32) -> String {
        let request = CreateKeyRequest {
            principal: name.to_owned(),
            roles: vec![role.to_owned()],
            days,
            ..CreateKeyRequest::default()
        };
        let mut identities = self.identities_for(&Principal::LOCAL);
        let made = identities.create_key(request).await;
        made.unwrap().into_inner().secret_key
    }

    pub(crate) async fn resolve(&self, credential: &str) -> Result<Caller, Status> {
        let request = ResolveCredentialRequest {
            credential: credential.to_owned(),
        };
        let mut identities = self.identities_for(&Principal::LOCAL);
        let resolved = identities.resolve_credential(request).await?;
        Ok(resolved.into_inner().caller.unwrap())
    }

    pub(crate) async fn login(&self, key: &str) -> Result<(String, Caller), Status> {
        let request = LoginRequest {
            key: key.to_owned(),
        };
        let login = self
            .identities_for(&Principal::LOCAL)
            .login(request)
            .await?;
        let login = login.into_inner();
        Ok((login.token, login.caller.unwrap()))
    }

    pub(crate) async fn ticket(&self, credential: &str) -> Result<String, Status> {
        let request = IssueTicketRequest {
            credential: credential.to_owned(),
        };
        let mut identities = self.identities_for(&Principal::LOCAL);
        let issued = identities.issue_ticket(request).await?;
        Ok(issued.into_inner().ticket)
    }

    pub(crate) async fn revoke(&self, key: &str) -> Result<(), Status> {
        let request = RevokeKeysRequest {
            key_id: id_of(key).to_owned(),
            ..RevokeKeysRequest::default()
        };
        let mut identities = self.identities_for(&Principal::LOCAL);
        identities.revoke_keys(request).await.map(drop)
    }
}

/// Returns the id of a key.
pub(crate) fn id_of(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

/// Returns a key of an id and a secret with the checksum that belongs to them.
fn key_with(id: &str, secret: &str) -> String {
    let unchecked = format!("tvk_{id}_{secret}");
    let checksum = hex::encode(&Sha256::digest(&unchecked)[..4]);
    format!("{unchecked}_{checksum}")
}

/// Returns the text with another character at the place of one.
fn altered(text: &str, place: usize) -> String {
    let other = match text.as_bytes()[place] {
        b'0' => "1",
        _ => "0",
    };
    format!("{}{other}{}", &text[..place], &text[place + 1..])
}

#[tokio::test]
async fn s609_without_a_key_every_credential_is_local_with_all_permissions() {
    let fixture = Fixture::new().await;
    for credential in ["", "sk-dummy", "tvk_a_b_c", "tvt_a"] {
        let caller = fixture.resolve(credential).await.unwrap();
        assert!(caller.open && caller.principal == "local", "{caller:?}");
        assert_eq!(caller.permissions.len(), 6);
        assert_eq!(caller.roles, ["admin"]);
    }
    let (token, caller) = fixture.login("any").await.unwrap();
    assert!(caller.open && token.is_empty());
    let ticket = fixture.ticket("").await.unwrap();
    assert!(fixture.resolve(&ticket).await.unwrap().open);
    fixture.bootstrap().await;
    assert!(fixture.resolve(&ticket).await.is_err());
}

#[tokio::test]
async fn s602_a_key_a_token_and_a_ticket_prove_their_principal() {
    let fixture = Fixture::new().await;
    let admin = fixture.bootstrap().await;
    let key = fixture.key_of("ada", "invoker", 1).await;
    let (token, login) = fixture.login(&key).await.unwrap();
    let caller = fixture.resolve(&key).await.unwrap();
    assert_eq!(caller.principal, "ada");
    assert_eq!(caller.permissions, ["read", "invoke"]);
    assert_eq!(caller.key_id, id_of(&key));
    assert_eq!(fixture.resolve(&token).await.unwrap(), login);
    assert_eq!(login.principal, "ada");
    let until = |caller: &Caller| caller.expire_time.unwrap().seconds;
    let half_a_day = 12 * 60 * 60;
    assert!((half_a_day - 1..=half_a_day).contains(&(until(&caller) - until(&login))));
    for (credential, expected) in [(&key, &caller), (&token, &login)] {
        let ticket = fixture.ticket(credential).await.unwrap();
        assert_eq!(&fixture.resolve(&ticket).await.unwrap(), expected);
        assert!(fixture.resolve(&ticket).await.is_err(), "it is used up");
    }
    assert_eq!(fixture.resolve(&admin).await.unwrap().principal, "admin");
}

#[tokio::test]
async fn every_bad_credential_gets_the_same_status() {
    let fixture = Fixture::new().await;
    let admin = fixture.bootstrap().await;
    let other = Fixture::new().await;
    let foreign = other.bootstrap().await;
    let foreign_token = other.login(&foreign).await.unwrap().0;
    let foreign_ticket = other.ticket(&foreign).await.unwrap();
    let secret = |key: &str| key.split('_').nth(2).unwrap().to_owned();

    let revoked = fixture.key_of("ada", "viewer", 1).await;
    let of_revoked = fixture.login(&revoked).await.unwrap().0;
    let ticket_of_revoked = fixture.ticket(&revoked).await.unwrap();
    fixture.revoke(&revoked).await.unwrap();
    let token = fixture.login(&admin).await.unwrap().0;
    let ticket = fixture.ticket(&admin).await.unwrap();
    fixture.resolve(&ticket).await.unwrap();
    let late_ticket = fixture.ticket(&admin).await.unwrap();
    let expired = fixture.key_of("bob", "viewer", 1).await;
    fixture.clock.advance(DAY);
    let bad = [
        ("none", String::new()),
        ("another text", "sk-dummy".to_owned()),
        ("a long text", "é".repeat(256)),
        ("a malformed key", "tvk_a_b_c".to_owned()),
        ("a key without its end", admin[..admin.len() - 1].to_owned()),
        ("a mistyped key", altered(&admin, 40)),
        ("an upper-case key", admin.to_uppercase()),
        (
            "an unknown id",
            key_with("0123456789abcdef", &secret(&admin)),
        ),
        ("a wrong secret", key_with(id_of(&admin), &secret(&foreign))),
        (
            "the digest of a secret",
            key_with(id_of(&admin), &hex::encode(Sha256::digest(secret(&admin)))),
        ),
        ("a key of another installation", foreign),
        ("an expired key", expired),
        ("a revoked key", revoked),
        ("an expired token", token.clone()),
        ("an altered token", altered(&token, token.len() - 1)),
        ("a token of a revoked key", of_revoked),
        ("a token of another installation", foreign_token),
        ("a used ticket", ticket),
        ("an expired ticket", late_ticket),
        ("a ticket of a revoked key", ticket_of_revoked),
        ("a ticket of another installation", foreign_ticket),
    ];
    let first = fixture.resolve("").await.unwrap_err();
    assert_eq!(first.code(), Code::Unauthenticated);
    assert_eq!(grpc_kit::reason(&first), Some(ErrorReason::Unauthenticated));
    for (kind, credential) in &bad {
        let as_credential = fixture.resolve(credential).await.unwrap_err();
        let as_login = fixture.login(credential).await.unwrap_err();
        let for_ticket = fixture.ticket(credential).await.unwrap_err();
        for status in [as_credential, as_login, for_ticket] {
            assert_eq!(status.code(), first.code(), "{kind}");
            assert_eq!(status.message(), first.message(), "{kind}");
            assert_eq!(status.details(), first.details(), "{kind}");
            assert_eq!(
                status.metadata().as_ref(),
                first.metadata().as_ref(),
                "{kind}"
            );
        }
    }
    let (token, _) = fixture.login(&admin).await.unwrap();
    let status = fixture.login(&token).await.unwrap_err();
    assert_eq!(
        status.details(),
        first.details(),
        "a token is renewed by no login"
    );
    let ticket = fixture.ticket(&token).await.unwrap();
    let status = fixture.ticket(&ticket).await.unwrap_err();
    assert_eq!(
        status.details(),
        first.details(),
        "a ticket makes no ticket"
    );
}

/// Changes a text in one to three places: other characters, more or less of them, or two exchanged.
pub(crate) fn mutated(random: &mut fastrand::Rng, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.usize(1..=3) {
        let place = random.usize(..bytes.len());
        match random.u8(..6) {
            0 => bytes[place] = random.u8(0x20..0x7f),
            1 => bytes[place] ^= 1 << random.u8(..7),
            2 => bytes.insert(place, random.u8(0x20..0x7f)),
            3 if bytes.len() > 1 => drop(bytes.remove(place)),
            4 => bytes.swap(place, random.usize(..text.len()).min(place)),
            _ => bytes.truncate(place.max(1)),
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn mutated_keys_tokens_and_tickets_prove_no_one() {
    let count = std::env::var("TAVERN_TEST_MUTATIONS");
    let count: u32 = count.map_or(100_000, |count| count.parse().unwrap());
    let fixture = Fixture::new().await;
    let key = fixture.bootstrap().await;
    let (token, _) = fixture.login(&key).await.unwrap();
    let ticket = fixture.ticket(&key).await.unwrap();
    let identities = fixture.registry.as_ref().unwrap().identities();
    let mut random = fastrand::Rng::with_seed(7);
    let originals = [&key, &token, &ticket];
    let mut tried = 0;
    while tried < count {
        let original = originals[random.usize(..3)];
        let text = mutated(&mut random, original);
        if originals.contains(&&text) {
            continue;
        }
        let proven = identities.resolve(&text).await;
        assert!(
            proven.is_err(),
            "`{text}` of `{original}` proves {proven:?}"
        );
        tried += 1;
    }
    for text in originals {
        assert!(identities.resolve(text).await.is_ok());
    }
}

#[tokio::test]
async fn the_secret_of_a_key_is_in_no_file_and_keys_and_tokens_outlast_a_restart() {
    let mut fixture = Fixture::new().await;
    let admin = fixture.bootstrap().await;
    let ada = fixture.key_of("ada", "invoker", 30).await;
    let (token, _) = fixture.login(&ada).await.unwrap();
    let ticket = fixture.ticket(&ada).await.unwrap();
    let mut files = 0;
    for key in [&admin, &ada] {
        let secret = key.split('_').nth(2).unwrap();
        let raw = hex::decode(secret).unwrap();
        files += files_without(fixture.directory.path(), &[secret.as_bytes(), &raw]);
    }
    assert!(files >= 6, "{files} files were read");
    fixture.crash_and_restart().await;
    files_without(
        fixture.directory.path(),
        &[token.as_bytes(), ticket.as_bytes()],
    );
    assert_eq!(fixture.resolve(&admin).await.unwrap().principal, "admin");
    assert_eq!(fixture.resolve(&ada).await.unwrap().principal, "ada");
    assert_eq!(fixture.resolve(&token).await.unwrap().principal, "ada");
    assert!(fixture.resolve(&ticket).await.is_err());
    assert!(fixture.resolve("").await.is_err());
}

/// Asserts that no file below a directory has one of the texts, and returns the number of files.
pub(crate) fn files_without(directory: &Path, texts: &[&[u8]]) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += files_without(&path, texts);
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for text in texts {
            let found = bytes.windows(text.len()).any(|part| part == *text);
            assert!(!found, "{} has it", path.display());
        }
        files += 1;
    }
    files
}

#[tokio::test]
async fn s601_a_principal_is_resolved_with_the_key_that_proved_it() {
    let fixture = Fixture::new().await;
    let key = fixture.bootstrap().await;
    let ada = fixture.key_of("ada", "invoker", 1).await;
    let resolve = async |principal: &str, key_id: &str| {
        let request = ResolvePrincipalRequest {
            principal: principal.to_owned(),
            key_id: key_id.to_owned(),
        };
        let mut identities = fixture.identities_for(&Principal::LOCAL);
        let resolved = identities.resolve_principal(request).await?;
        Ok::<_, Status>(resolved.into_inner().caller.unwrap())
    };
    let caller = resolve("ada", id_of(&ada)).await.unwrap();
    assert_eq!(caller, fixture.resolve(&ada).await.unwrap());
    assert_eq!(
        resolve("ada", "").await.unwrap().permissions,
        ["read", "invoke"]
    );
    for (principal, key_id) in [
        ("carl", ""),
        ("ada", id_of(&key)),
        ("ada", "x"),
        ("Ada", ""),
    ] {
        let status = resolve(principal, key_id).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{principal} {key_id}");
    }
    let heir = resolve("local", "").await.unwrap();
    assert_eq!(heir.principal, "admin");
    assert_eq!(heir.permissions.len(), 6);
    fixture.revoke(&ada).await.unwrap();
    assert!(resolve("ada", id_of(&ada)).await.is_err());
    assert!(
        resolve("ada", "").await.is_err(),
        "no key of it is left, so its runs have no rights"
    );
}

#[tokio::test]
async fn tickets_that_are_open_are_bounded() {
    let fixture = Fixture::new().await;
    let key = fixture.bootstrap().await;
    for _ in 0..64 {
        fixture.ticket(&key).await.unwrap();
    }
    let status = fixture.ticket(&key).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::LimitExceeded));
    fixture.clock.advance(Duration::from_secs(30));
    fixture.ticket(&key).await.unwrap();
}
