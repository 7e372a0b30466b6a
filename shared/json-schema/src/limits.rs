//! Every bound of this crate, with its default and the effect of reaching it.

/// Bounds on a schema, on the instances it validates and on the report about them.
///
/// A zero means zero, never "unlimited".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the schema's compact JSON text; a larger schema does not compile. Default 64 KiB.
    pub schema_bytes: usize,
    /// Nested arrays and objects in the schema; a deeper schema does not compile. Default 32.
    pub schema_depth: usize,
    /// Times that schema parts may be evaluated along one path through an instance, the product of
    /// all branches and references; a schema that exceeds it does not compile. Default 10,000.
    pub expansions: u64,
    /// Patterns (`pattern` and keys of `patternProperties`); more do not compile. Default 64.
    pub patterns: usize,
    /// Bytes of one pattern's text; a longer pattern does not compile. Default 1,024.
    pub pattern_bytes: usize,
    /// Product of nested counted repetitions in one pattern, `(a{10}){20}` being 200; a larger one
    /// does not compile. Default 1,000.
    pub pattern_repetitions: u64,
    /// Approximate bytes of one compiled pattern; a larger one does not compile. Default 128 KiB.
    pub pattern_compiled_bytes: usize,
    /// Nested arrays and objects in an instance; a deeper one is the violation `too_deep`.
    /// Default 64. A recursive schema that branches may lower it.
    pub instance_depth: usize,
    /// Estimated evaluations for one instance; beyond it is the violation `too_large`.
    /// Default 4,000,000.
    pub work: u64,
    /// Violations in one report; later ones are left out. Default 64.
    pub violations: usize,
    /// Values that defaults may fill in at once; beyond it none is filled in. Default 1,024.
    pub defaults: usize,
    /// Bytes of JSON text that defaults may fill in at once; beyond it none is filled in.
    /// Default 256 KiB.
    pub default_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            schema_bytes: 64 * 1024,
            schema_depth: 32,
            expansions: 10_000,
            patterns: 64,
            pattern_bytes: 1_024,
            pattern_repetitions: 1_000,
            pattern_compiled_bytes: 128 * 1024,
            instance_depth: 64,
            work: 4_000_000,
            violations: 64,
            defaults: 1_024,
            default_bytes: 256 * 1024,
        }
    }
}

/// The options of compiling a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Whether `format` refuses values; off by default, as JSON Schema 2020-12 has it.
    pub assert_formats: bool,
    /// Whether the schema describes the parameters of a call. Then the root must be an object, and a
    /// key that the schema does not name is refused, unless the schema opens itself at the root
    /// (`additionalProperties`, `patternProperties` or `unevaluatedProperties`) or names no
    /// properties at all.
    pub closed_root: bool,
    /// The bounds.
    pub limits: Limits,
}

/// Bounds on JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonLimits {
    /// Bytes of text. Default 1 MiB.
    pub max_bytes: usize,
    /// Nested arrays and objects. Default 32, at most 128.
    pub max_depth: usize,
    /// Characters of one number. Default 1,024.
    pub max_number_chars: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            max_bytes: 1024 * 1024,
            max_depth: 32,
            max_number_chars: 1_024,
        }
    }
}
