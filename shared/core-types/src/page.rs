//! Opaque page tokens for lists.

use std::collections::HashSet;

use uuid::Uuid;

/// The largest page of a list, in entries.
pub const MAX_PAGE_SIZE: usize = 500;

/// The default page of a list, in entries.
pub const DEFAULT_PAGE_SIZE: usize = 100;

/// The point at which a list continues: the key of the last entry of the page before.
///
/// A token is bound to its list: it carries a digest of the list's name and filter, so that a token
/// of one list is refused by another instead of returning a wrong page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken {
    last_key: String,
}

/// A page token that this list did not issue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page token does not belong to this list; start again without one")]
pub struct PageTokenError;

impl PageToken {
    /// Makes the token that follows the entry with `last_key`.
    pub fn after(last_key: impl Into<String>) -> Self {
        Self {
            last_key: last_key.into(),
        }
    }

    /// Returns the key after which the list continues.
    pub fn last_key(&self) -> &str {
        &self.last_key
    }

    /// Writes the token for the list named `list` (its method and filter).
    pub fn encode(&self, list: &str) -> String {
        let mut text = digest(list, &self.last_key).simple().to_string();
        text.push_str(&hex::encode(&self.last_key));
        text
    }

    /// Reads a token that [`PageToken::encode`] wrote for the same `list`; empty text is not a token.
    ///
    /// # Errors
    /// [`PageTokenError`] when the token is damaged or belongs to another list.
    pub fn decode(list: &str, text: &str) -> Result<Option<Self>, PageTokenError> {
        if text.is_empty() {
            return Ok(None);
        }
        let (digest_hex, key_hex) = text.split_at_checked(32).ok_or(PageTokenError)?;
        let last_key = hex::decode(key_hex)
            .ok()
            .and_then(|key| String::from_utf8(key).ok());
        let last_key = last_key.ok_or(PageTokenError)?;
        if digest(list, &last_key).simple().to_string() != digest_hex {
            return Err(PageTokenError);
        }
        Ok(Some(Self { last_key }))
    }
}

/// Returns the page size for a request of `asked` entries.
pub fn page_size(asked: i32) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => DEFAULT_PAGE_SIZE,
        Ok(size) => size.min(MAX_PAGE_SIZE),
    }
}

/// Returns the ids of a request, each once, in their order.
pub fn distinct(ids: Vec<String>) -> impl Iterator<Item = String> {
    let mut seen = HashSet::new();
    ids.into_iter().filter(move |id| seen.insert(id.clone()))
}

fn digest(list: &str, key: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{list}\0{key}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_in_its_own_list_only() {
        let token = PageToken::after("工具/a b");
        let text = token.encode("tools");
        assert_eq!(PageToken::decode("tools", &text), Ok(Some(token)));
        assert_eq!(PageToken::decode("runs", &text), Err(PageTokenError));
        assert_eq!(PageToken::decode("tools", ""), Ok(None));
    }

    #[test]
    fn a_damaged_token_is_refused() {
        let text = PageToken::after("abc").encode("tools");
        for damaged in [&text[1..], &text[..text.len() - 1], "x", "€€€€€€€€€€€€"]
        {
            assert_eq!(
                PageToken::decode("tools", damaged),
                Err(PageTokenError),
                "{damaged}"
            );
        }
    }

    #[test]
    fn a_page_is_never_empty_nor_unbounded() {
        assert_eq!(page_size(0), DEFAULT_PAGE_SIZE);
        assert_eq!(page_size(7), 7);
        assert_eq!(page_size(i32::MAX), MAX_PAGE_SIZE);
    }
}
