//! JSON pointers (RFC 6901).

use std::borrow::Cow;

/// Appends one step to a pointer.
pub fn join(pointer: &str, step: &str) -> String {
    format!("{pointer}/{}", escape(step))
}

/// Returns a step as it is written in a pointer.
pub fn escape(step: &str) -> Cow<'_, str> {
    match step.contains(['~', '/']) {
        true => step.replace('~', "~0").replace('/', "~1").into(),
        false => step.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_escaped() {
        assert_eq!(join("/nodes/0", "a/b~c"), "/nodes/0/a~1b~0c");
        assert_eq!(join("", "plain"), "/plain");
    }
}
