//! The owner of a blob.

use core_types::Tenant;

use crate::BlobDigest;

/// The beginning of the names of blobs at a server.
pub(crate) const BLOBS: &str = "blobs/";

/// The owner of blobs, in a form that is a valid file name whatever the caller's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller {
    tenant: Tenant,
    /// The name of its directory: a digest, after `<tenant>.` for tenants other than the default one.
    directory: String,
}

impl Caller {
    /// The number of characters of the name's digest that distinguish callers.
    const CHARACTERS: usize = 40;

    /// The caller of this name among those of a tenant; the empty name is a caller like any other.
    pub fn named(tenant: Tenant, name: &str) -> Self {
        let mut text = BlobDigest::of(name.as_bytes()).to_string();
        text.truncate(Self::CHARACTERS);
        let directory = match tenant.is_default() {
            true => text,
            false => format!("{tenant}.{text}"),
        };
        Self { tenant, directory }
    }

    /// Parses the name of a caller's directory.
    pub(crate) fn from_directory(name: &str) -> Option<Self> {
        let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let (tenant, text) = match name.split_once('.') {
            None => (Tenant::DEFAULT, name),
            Some((tenant, text)) => {
                let tenant = Tenant::new(tenant).ok()?;
                (Some(tenant).filter(|tenant| !tenant.is_default())?, text)
            }
        };
        let is_digest = text.len() == Self::CHARACTERS && text.bytes().all(plain);
        is_digest.then(|| Self {
            tenant,
            directory: name.to_owned(),
        })
    }

    /// The name of the blobs of the caller at a server.
    pub(crate) fn place(&self) -> String {
        let (_, text) = self.directory.rsplit_once('.').unwrap_or_default();
        let text = if text.is_empty() {
            &self.directory
        } else {
            text
        };
        format!("{BLOBS}{text}")
    }

    /// Parses the name of blobs at a server.
    pub(crate) fn from_place(tenant: Tenant, place: &str) -> Option<Self> {
        let text = place.strip_prefix(BLOBS)?;
        match tenant.is_default() {
            true => Self::from_directory(text),
            false => Self::from_directory(&format!("{tenant}.{text}")),
        }
    }

    /// The name of the caller's directory.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// The tenant.
    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_caller_has_a_directory_that_is_a_plain_name() {
        for name in ["", "..", "a/b", "alice", "Alice", &"x".repeat(10_000)] {
            let own = Caller::named(Tenant::DEFAULT, name);
            let other = Caller::named(Tenant::new("acme").unwrap(), name);
            assert_ne!(own, other);
            for caller in [own, other] {
                assert!(!caller.directory().contains('/'), "{name}");
                let again = Caller::from_directory(caller.directory());
                assert_eq!(again.as_ref(), Some(&caller), "{name}");
                let again = Caller::from_place(caller.tenant(), &caller.place());
                assert_eq!(again, Some(caller), "{name}");
            }
        }
        let own = |name| Caller::named(Tenant::DEFAULT, name);
        assert_ne!(own("alice"), own("Alice"));
        let digest = own("").directory().to_owned();
        for name in [
            format!("default.{digest}"),
            format!("A.{digest}"),
            "acme.".to_owned(),
        ] {
            assert_eq!(Caller::from_directory(&name), None, "{name}");
        }
        assert_eq!(Caller::from_directory("incoming"), None);
    }
}
