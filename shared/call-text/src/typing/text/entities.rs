//! Names of letters and typographic signs, which models write in addition to numeric forms (V3).

/// Names of the characters from U+00A0 to U+00FF, in order.
const LATIN: &str = "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr \
    deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest \
    Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml \
    ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig \
    agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml \
    eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";

const SIGNS: &[(&str, char)] = &[
    ("ndash", '–'),
    ("mdash", '—'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("bull", '•'),
    ("hellip", '…'),
    ("euro", '€'),
    ("trade", '™'),
];

/// The character of a name; names that are also common words of programs are not known.
pub(super) fn named(name: &str) -> Option<char> {
    if let Some((_, sign)) = SIGNS.iter().find(|(known, _)| *known == name) {
        return Some(*sign);
    }
    let place = LATIN.split(' ').position(|known| known == name)?;
    char::from_u32(0xA0 + u32::try_from(place).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_their_characters() {
        for (name, character) in [
            ("nbsp", '\u{a0}'),
            ("iquest", '¿'),
            ("Agrave", 'À'),
            ("szlig", 'ß'),
            ("eacute", 'é'),
            ("yuml", 'ÿ'),
            ("mdash", '—'),
        ] {
            assert_eq!(named(name), Some(character), "{name}");
        }
        assert_eq!(named("sum"), None);
        assert_eq!(named(""), None);
    }
}
