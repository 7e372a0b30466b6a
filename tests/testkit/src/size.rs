//! The sizes of tests, small in `make test` and full in `make bars`.

use std::{env, error::Error, str::FromStr};

use anyhow::Context;

/// Returns the number that a variable states for the full size of a test, or the small one.
///
/// # Errors
/// A variable that states no number.
pub fn size<T>(variable: &str, small: T) -> anyhow::Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    match env::var(variable) {
        Ok(number) => number
            .parse()
            .with_context(|| format!("{variable} is no number")),
        Err(_) => Ok(small),
    }
}
