//! The depth of nested calls: tool, workflow, tool, and so on.

use std::sync::Arc;

/// The deepest nesting of calls that is accepted.
pub const MAX_CALL_DEPTH: usize = 8;

/// The runs above the present one, outermost first.
///
/// It travels in the metadata of every call between services. A call whose path is already
/// [`MAX_CALL_DEPTH`] long is refused, which ends a workflow that calls itself through a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPath {
    /// Shared, as each call copies the path of its context.
    steps: Arc<[String]>,
}

/// Calls are nested too deep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("calls are nested {MAX_CALL_DEPTH} deep ({path}); a tool or workflow seems to call itself")]
pub struct DepthExceeded {
    /// The path that was about to grow, steps joined by " > ".
    pub path: String,
}

impl CallPath {
    /// Returns how many runs are above the present one.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    /// Returns the steps, outermost first.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// Returns the path of a call that `step` makes.
    ///
    /// # Errors
    /// [`DepthExceeded`] when the path is full.
    pub fn enter(&self, step: impl Into<String>) -> Result<Self, DepthExceeded> {
        if self.steps.len() >= MAX_CALL_DEPTH {
            return Err(DepthExceeded {
                path: self.steps.join(" > "),
            });
        }
        let own = self.steps.iter().cloned();
        let steps = own.chain([step.into()]).collect();
        Ok(Self { steps })
    }

    /// Reads steps from the wire, outermost first.
    ///
    /// # Errors
    /// [`DepthExceeded`] when there are more than [`MAX_CALL_DEPTH`].
    pub fn from_steps(steps: Vec<String>) -> Result<Self, DepthExceeded> {
        if steps.len() > MAX_CALL_DEPTH {
            return Err(DepthExceeded {
                path: steps.join(" > "),
            });
        }
        Ok(Self {
            steps: steps.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_grows_to_the_limit_and_no_further() {
        let mut path = CallPath::default();
        for level in 0..MAX_CALL_DEPTH {
            path = path.enter(format!("run{level}")).unwrap();
        }
        assert_eq!(path.depth(), MAX_CALL_DEPTH);
        assert!(
            path.enter("one more")
                .unwrap_err()
                .to_string()
                .contains("run0 > run1")
        );
    }
}
