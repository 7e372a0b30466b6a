//! The modes: their operands and their calculations.

use std::f64::consts::{E, PI};

/// An operand of a mode.
#[derive(Debug)]
pub(super) struct Operand {
    /// The key of its input.
    pub(super) key: &'static str,
    /// Its meaning.
    pub(super) description: &'static str,
    /// Its value when it is missing.
    pub(super) default: f64,
}

/// A mode.
#[derive(Debug)]
pub(super) struct Mode {
    /// The name by which the setting selects it.
    pub(super) name: &'static str,
    /// Its operands, at most three.
    pub(super) operands: &'static [Operand],
    /// Calculates; an undefined result that is not just "not a number" is an error.
    pub(super) calculate: fn([f64; 3]) -> Result<f64, &'static str>,
}

const fn operand(key: &'static str, description: &'static str, default: f64) -> Operand {
    Operand {
        key,
        description,
        default,
    }
}

const fn mode(
    name: &'static str,
    operands: &'static [Operand],
    calculate: fn([f64; 3]) -> Result<f64, &'static str>,
) -> Mode {
    Mode {
        name,
        operands,
        calculate,
    }
}

const PAIR: &[Operand] = &[
    operand("a", "The first number.", 0.0),
    operand("b", "The second number.", 0.0),
];
const VALUE: &[Operand] = &[operand("value", "The number.", 0.0)];
const TRIPLE: &[Operand] = &[
    operand("val1", "The first factor.", 0.0),
    operand("val2", "The second factor.", 0.0),
    operand("val3", "What is added.", 0.0),
];
const POWER: &[Operand] = &[
    operand("base", "The base.", 0.0),
    operand("exponent", "The exponent, else 2.", 2.0),
];
const LOGARITHM: &[Operand] = &[
    operand("value", "The number.", 1.0),
    operand("base", "The base, else e.", E),
];
const POINT: &[Operand] = &[
    operand("y", "The ordinate.", 0.0),
    operand("x", "The abscissa.", 0.0),
];
const DEGREES: &[Operand] = &[operand("degrees", "The angle in degrees.", 0.0)];
const RADIANS: &[Operand] = &[operand("radians", "The angle in radians.", 0.0)];

impl Mode {
    /// Every mode.
    pub(super) const ALL: &[Mode] = &[
        mode("add", PAIR, |[a, b, _]| Ok(a + b)),
        mode("subtract", PAIR, |[a, b, _]| Ok(a - b)),
        mode("multiply", PAIR, |[a, b, _]| Ok(a * b)),
        mode("multiply_add", TRIPLE, |[a, b, c]| Ok(a * b + c)),
        mode("divide", PAIR, |[a, b, _]| {
            if b == 0.0 {
                Err("division by zero; `b` must not be 0")
            } else {
                Ok(a / b)
            }
        }),
        mode(
            "power",
            POWER,
            |[base, exponent, _]| Ok(base.powf(exponent)),
        ),
        mode("logarithm", LOGARITHM, |[value, base, _]| {
            Ok(logarithm(value, base))
        }),
        mode("sqrt", VALUE, |[v, ..]| {
            if v < 0.0 {
                Err("`value` must not be negative")
            } else {
                Ok(v.sqrt())
            }
        }),
        mode("inverse_sqrt", VALUE, |[v, ..]| {
            if v <= 0.0 {
                Err("`value` must be positive")
            } else {
                Ok(1.0 / v.sqrt())
            }
        }),
        mode("absolute", VALUE, |[v, ..]| Ok(v.abs())),
        mode("exp", VALUE, |[v, ..]| Ok(v.exp())),
        mode("min", PAIR, |[a, b, _]| Ok(a.min(b))),
        mode("max", PAIR, |[a, b, _]| Ok(a.max(b))),
        mode("lessThan", PAIR, |[a, b, _]| Ok(f64::from(a < b))),
        mode("greaterThan", PAIR, |[a, b, _]| Ok(f64::from(a > b))),
        mode("sign", VALUE, |[v, ..]| {
            Ok(if v == 0.0 { 0.0 } else { v.signum() })
        }),
        mode("round", VALUE, |[v, ..]| Ok(round_half_up(v))),
        mode("floor", VALUE, |[v, ..]| Ok(v.floor())),
        mode("ceil", VALUE, |[v, ..]| Ok(v.ceil())),
        mode("truncate", VALUE, |[v, ..]| Ok(v.trunc())),
        mode("fraction", VALUE, |[v, ..]| {
            Ok(if v < 0.0 { 1.0 + v.fract() } else { v.fract() })
        }),
        mode("modulo", PAIR, |[a, b, _]| {
            if b == 0.0 {
                Err("division by zero; `b` must not be 0")
            } else {
                Ok(a % b)
            }
        }),
        mode("sin", VALUE, |[v, ..]| Ok(v.sin())),
        mode("cos", VALUE, |[v, ..]| Ok(v.cos())),
        mode("tan", VALUE, |[v, ..]| Ok(v.tan())),
        mode("asin", VALUE, |[v, ..]| Ok(v.asin())),
        mode("acos", VALUE, |[v, ..]| Ok(v.acos())),
        mode("atan", VALUE, |[v, ..]| Ok(v.atan())),
        mode("atan2", POINT, |[y, x, _]| Ok(y.atan2(x))),
        mode("sinh", VALUE, |[v, ..]| Ok(v.sinh())),
        mode("cosh", VALUE, |[v, ..]| Ok(v.cosh())),
        mode("tanh", VALUE, |[v, ..]| Ok(v.tanh())),
        mode("asinh", VALUE, |[v, ..]| Ok(v.asinh())),
        mode("acosh", VALUE, |[v, ..]| Ok(v.acosh())),
        mode("atanh", VALUE, |[v, ..]| Ok(v.atanh())),
        mode("to_radians", DEGREES, |[v, ..]| Ok(v * (PI / 180.0))),
        mode("to_degrees", RADIANS, |[v, ..]| Ok(v * (180.0 / PI))),
    ];

    /// Finds a mode.
    pub(super) fn by_name(name: &str) -> Option<&'static Mode> {
        Self::ALL.iter().find(|mode| mode.name == name)
    }
}

fn logarithm(value: f64, base: f64) -> f64 {
    if value <= 0.0 || base <= 0.0 || base == 1.0 {
        f64::NAN
    } else {
        value.ln() / base.ln()
    }
}

/// Rounds halves upwards, also below zero: -2.5 becomes -2.
fn round_half_up(value: f64) -> f64 {
    let floor = value.floor();
    if value - floor >= 0.5 {
        floor + 1.0
    } else {
        floor
    }
}
