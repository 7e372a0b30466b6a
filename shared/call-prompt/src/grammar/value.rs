//! Values as the text of an element or field.

use call_catalogue::Dialect;
use call_catalogue::schema::Types;

use super::GrammarError;
use super::gbnf::{CharClass, Expr};
use super::json::{SchemaPlace, Values};

/// White space that a reader removes from the ends of a line, and invisible characters.
const BLANKS: &str = " \t\n\r\u{b}\u{c}\u{85}\u{a0}\u{1680}\u{3000}\u{feff}";

/// The delimiting of values in a dialect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text {
    /// Between tags: with entities, or as CDATA.
    Element,
    /// Between delimiters: as it is.
    Field,
}

impl Text {
    pub(super) fn of(dialect: Dialect) -> Self {
        match dialect {
            dialect if dialect.is_field_based() => Self::Field,
            _ => Self::Element,
        }
    }

    /// Describes a value that is not a text.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`].
    pub(super) fn other(
        self,
        values: &mut Values,
        place: &SchemaPlace<'_>,
    ) -> Result<Expr, GrammarError> {
        let types = place.schema.types();
        if types.has(Types::OBJECT) || types.has(Types::ARRAY) {
            return values.json(place);
        }
        values.note(place)?;
        Ok(Expr::choice(values.scalars(types)))
    }

    /// Describes a text on one line.
    pub(super) fn line(self, values: &mut Values) -> Expr {
        let marks = match self {
            Self::Element => "<&",
            Self::Field => "<>「」«»{}",
        };
        let blanks = |class: CharClass| {
            class
                .and('\u{2000}'..='\u{200f}')
                .and('\u{2028}'..='\u{202f}')
                .and('\u{205f}'..='\u{2060}')
        };
        let solid = blanks(CharClass::except(&format!("{BLANKS}{marks}"))).and('\0'..='\u{8}');
        let plain = CharClass::except(&format!("{marks}\t")).and('\0'..='\u{1f}');
        let (mut solid, mut plain) = (vec![Expr::OneOf(solid)], vec![Expr::OneOf(plain)]);
        if matches!(self, Self::Element) {
            let entities = ["&lt;", "&gt;", "&amp;", "&quot;", "&apos;"].map(Expr::literal);
            let entity = values.rules.define("entity", Expr::choice(entities.into()));
            solid.push(entity.clone());
            plain.push(entity);
        }
        let solid = values.rules.define("solid", Expr::choice(solid));
        let plain = values.rules.define("plain", Expr::choice(plain));
        let inner = Expr::Sequence(vec![plain.repeated(0, None), solid.clone()]);
        let line = Expr::Sequence(vec![solid, inner.optional()]).optional();
        values.rules.define("line", line)
    }

    /// Describes a text of any number of lines, between delimiters that leave it as it is. Unless white
    /// space is kept, a line break inside each delimiter belongs to the writing.
    pub(super) fn long(self, values: &mut Values, keeps_white_space: bool) -> Expr {
        let within = match self {
            Self::Element => CharClass::except("]"),
            Self::Field => CharClass::except("「」"),
        };
        let within = Expr::OneOf(within.and('\0'..='\u{8}').and('\u{b}'..='\u{1f}'));
        let long = values.rules.define("long", within.repeated(0, None));
        match keeps_white_space {
            true => long,
            false => Expr::Sequence(vec![Expr::literal("\n"), long, Expr::literal("\n")]),
        }
    }
}
