//! The address of a database in settings.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use sql_store::PostgresOptions;

/// The parameter of an address that allows a server without syncs, which loses data in a crash of its machine.
const ALLOW_FSYNC_OFF: &str = "tavern.allow_fsync_off=true";

/// The address of a PostgreSQL database, `postgres://user@host:5432/database`; empty for none. It is shown without its
/// password and its parameters.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct DatabaseAddress(String);

impl DatabaseAddress {
    /// Makes an address of a text, which is checked when it is used.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether there is no database.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the options for connecting. The parameter `tavern.allow_fsync_off=true` is read here; all others are
    /// those of PostgreSQL.
    pub fn options(&self) -> PostgresOptions {
        let Some((place, parameters)) = self.0.split_once('?') else {
            return PostgresOptions::new(&self.0);
        };
        let (own, others): (Vec<&str>, Vec<&str>) = parameters
            .split('&')
            .partition(|parameter| *parameter == ALLOW_FSYNC_OFF);
        PostgresOptions {
            allow_fsync_off: !own.is_empty(),
            ..PostgresOptions::new(format!("{place}?{}", others.join("&")))
        }
    }

    /// Returns the address without password and parameters.
    pub fn shown(&self) -> Cow<'_, str> {
        let place = self.0.split('?').next().unwrap_or_default();
        let Some((scheme, rest)) = place.split_once("://") else {
            // It is no address, and may be a password in the wrong place.
            return match place.is_empty() {
                true => Cow::Borrowed(""),
                false => Cow::Borrowed("***"),
            };
        };
        match rest.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split(':').next().unwrap_or_default();
                Cow::Owned(format!("{scheme}://{user}@{host}"))
            }
            None => Cow::Borrowed(place),
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown())
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.shown())
    }
}

impl Serialize for DatabaseAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

impl JsonSchema for DatabaseAddress {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("DatabaseAddress")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_and_no_parameter_is_shown() {
        for (text, shown) in [
            ("", ""),
            ("postgres://tavern@db/tavern", "postgres://tavern@db/tavern"),
            (
                "postgres://u:p@ss:w@db:5432/t?sslmode=require",
                "postgres://u@db:5432/t",
            ),
            (
                "postgres:///t?host=/run&user=u&password=hunter2",
                "postgres:///t",
            ),
            ("hunter2", "***"),
        ] {
            let address = DatabaseAddress::new(text);
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(format!("{address:?}"), format!("{shown:?}"));
        }
    }

    #[test]
    fn a_server_without_syncs_is_allowed_by_name_alone() {
        let strict = DatabaseAddress::new("postgres://u@db/t?sslmode=require").options();
        assert!(!strict.allow_fsync_off);
        assert_eq!(strict.url, "postgres://u@db/t?sslmode=require");
        let lax = "postgres://u@db/t?tavern.allow_fsync_off=true&sslmode=require";
        let lax = DatabaseAddress::new(lax).options();
        assert!(lax.allow_fsync_off);
        assert_eq!(lax.url, strict.url);
    }
}
