//! The extra fields of a header: those that change the meaning of the header are read, and times, owners and the like
//! are passed over.

use super::bytes::Cursor;

const ZIP64: u16 = 0x0001;
const PKWARE_UNIX: u16 = 0x000d;
const STRONG_ENCRYPTION: u16 = 0x0017;
const UNICODE_PATH: u16 = 0x7075;
const ASI_UNIX: u16 = 0x756e;
const AES: u16 = 0x9901;
/// The bytes of a field of PKWARE for Unix without the target of a link: two times and two owners.
const PKWARE_UNIX_BYTES: usize = 12;

/// The extra fields of a header that matter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra<'a> {
    /// Sizes and places of 64 bits.
    pub(super) zip64: Option<&'a [u8]>,
    /// The name in UTF-8 that is to replace the name of the header.
    pub(super) unicode_path: Option<&'a [u8]>,
}

/// Reads extra fields.
///
/// # Errors
/// The code and the problem of a field.
pub(super) fn read(bytes: &[u8]) -> Result<Extra<'_>, (&'static str, &'static str)> {
    let malformed = (
        "malformed_record",
        "has extra fields that are cut off; pack it again",
    );
    let twice = ("records_differ", "has an extra field twice; pack it again");
    let mut extra = Extra::default();
    let mut cursor = Cursor::new(bytes, 0);
    while cursor.at() < bytes.len() {
        let kind = cursor.u16().ok_or(malformed)?;
        let size = cursor.u16().ok_or(malformed)?;
        let field = cursor.take(usize::from(size)).ok_or(malformed)?;
        match kind {
            ZIP64 if extra.zip64.replace(field).is_some() => return Err(twice),
            UNICODE_PATH => {
                // A version, and the checksum of the name that is replaced.
                let name = field.get(5..).ok_or(malformed)?;
                if extra.unicode_path.replace(name).is_some() {
                    return Err(twice);
                }
            }
            PKWARE_UNIX if field.len() > PKWARE_UNIX_BYTES => {
                return Err((
                    "link",
                    "is a link or a device; put a plain file in its place",
                ));
            }
            ASI_UNIX => {
                let message =
                    "has an extra field in which links are kept; pack it with another program";
                return Err(("link", message));
            }
            STRONG_ENCRYPTION | AES => {
                return Err(("encrypted", "is encrypted; pack it without a password"));
            }
            _ => {}
        }
    }
    Ok(extra)
}
