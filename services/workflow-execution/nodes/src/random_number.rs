//! `core:RandomNumber`: a number that differs between runs and not between replays of one.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Number, Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{Bypass, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

const MIN: usize = 0;
const MAX: usize = 1;
const WHOLE: usize = 2;
const SEED: usize = 3;

/// Draws a number between two bounds by the seed, or by the seed of the run.
#[derive(Debug)]
pub struct RandomNumber;

impl Node for RandomNumber {
    fn definition(&self) -> NodeDefinition {
        let seed = "The same seed and bounds give the same number. Missing takes a seed that is \
                    different in each run and for each node.";
        let inputs = vec![
            Slot::new("min", DataFlow::Float, "The least number.").default(json!(0)),
            Slot::new("max", DataFlow::Float, "The largest number.").default(json!(1)),
            Slot::new(
                "whole",
                DataFlow::Boolean,
                "Whether to draw a whole number.",
            )
            .default(json!(false)),
            Slot::new("seed", DataFlow::Integer, seed),
        ];
        let outputs = vec![Slot::new(
            "number",
            DataFlow::Float,
            "The number: from `min`, up to but not `max`; a whole one may be `max`.",
        )];
        NodeDefinition {
            description: "Draws a random number between two bounds.".into(),
            category: "math".into(),
            bypass: Bypass::Mute,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:RandomNumber",
                "Random number",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let number = |place: usize| call.value(place).and_then(|value| value.as_f64());
        let (min, max) = (number(MIN).unwrap_or(0.0), number(MAX).unwrap_or(1.0));
        if min > max {
            let message = format!("`min` is {min} and `max` is {max}; `min` must not be larger");
            return Err(Failure::invalid("invalid_range", message));
        }
        let seed = call
            .value(SEED)
            .map_or_else(|| call.seed(), |seed| seed_of(seed));
        let whole = call
            .value(WHOLE)
            .is_some_and(|whole| **whole == json!(true));
        // The upper 53 bits, which a float holds exactly.
        let fraction = (splitmix(seed) >> 11) as f64 / (1_u64 << 53) as f64;
        let drawn = match whole {
            true => {
                let (low, high) = (min.ceil(), max.floor());
                if low > high {
                    let message = format!("there is no whole number between {min} and {max}");
                    return Err(Failure::invalid("invalid_range", message));
                }
                (low + (fraction * (high - low + 1.0)).floor()).min(high)
            }
            false => min + fraction * (max - min),
        };
        let number = match whole && drawn.abs() < 9.0e15 {
            true => Some(Number::from(drawn as i64)),
            false => Number::from_f64(drawn),
        };
        let undefined = || Failure::invalid("invalid_range", "the bounds are too far apart");
        let number = number.ok_or_else(undefined)?;
        Ok(Step::Done(vec![Arc::new(Value::Number(number))]))
    }
}

/// Makes a seed of a whole number of any length.
fn seed_of(value: &Value) -> u64 {
    let number = value.as_i64().map(i64::cast_unsigned);
    number.or_else(|| value.as_u64()).unwrap_or_else(|| {
        let text = value.to_string();
        text.bytes()
            .fold(0, |seed, byte| splitmix(seed ^ u64::from(byte)))
    })
}

/// One step of the generator SplitMix64.
fn splitmix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
