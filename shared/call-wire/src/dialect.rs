//! Dialects.

use call_catalogue::Dialect;
use contracts::tavern::common::v1 as common;

/// A number that names no dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a dialect; leave it out to detect the dialect from the text")]
pub struct UnknownDialect(pub i32);

/// Reads a dialect; `None` for unspecified, which detects it from the text.
///
/// # Errors
/// [`UnknownDialect`] for a number that the contract does not have.
pub fn dialect_from_proto(number: i32) -> Result<Option<Dialect>, UnknownDialect> {
    let dialect = common::Dialect::try_from(number).map_err(|_| UnknownDialect(number))?;
    Ok(match dialect {
        common::Dialect::Unspecified => None,
        common::Dialect::Action => Some(Dialect::Action),
        common::Dialect::TamV1 => Some(Dialect::TamV1),
        common::Dialect::TamV2 => Some(Dialect::TamV2),
        common::Dialect::Vcp => Some(Dialect::Vcp),
        common::Dialect::ToolCallTag => Some(Dialect::ToolTag),
        common::Dialect::Native => Some(Dialect::Native),
    })
}

/// Writes a dialect. The contract does not distinguish JSON inside the tag from XML.
pub fn dialect_to_proto(dialect: Dialect) -> common::Dialect {
    match dialect {
        Dialect::Action => common::Dialect::Action,
        Dialect::TamV1 => common::Dialect::TamV1,
        Dialect::TamV2 => common::Dialect::TamV2,
        Dialect::Vcp => common::Dialect::Vcp,
        Dialect::ToolTag | Dialect::ToolJson => common::Dialect::ToolCallTag,
        Dialect::Native => common::Dialect::Native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_of_the_contract_reads_back() {
        for number in 1..=6 {
            let dialect = dialect_from_proto(number).unwrap().unwrap();
            assert_eq!(dialect_to_proto(dialect) as i32, number);
        }
        assert_eq!(dialect_from_proto(0), Ok(None));
        assert_eq!(dialect_from_proto(99), Err(UnknownDialect(99)));
    }
}
