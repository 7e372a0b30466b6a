//! The texts that a model was shown and that are not trusted, of all turns and states.

/// The most text that the echo rule looks at, in bytes.
const MAX_UNTRUSTED_BYTES: usize = 1 << 20;

/// The texts that the log of the turn does not have.
#[derive(Debug, Default)]
pub(super) struct Untrusted {
    /// The texts of the turns before.
    before: Vec<String>,
    /// The texts of states, each with the number of the turn's own texts before it.
    states: Vec<(usize, String)>,
}

impl Untrusted {
    /// Adds texts of the turns before.
    pub(super) fn add_before(&mut self, texts: impl IntoIterator<Item = String>) {
        self.before.extend(texts);
    }

    /// Adds texts of states that are shown behind the turn's `own` ones.
    pub(super) fn add_states(&mut self, own: &[String], texts: impl IntoIterator<Item = String>) {
        let texts = texts.into_iter().map(|text| (own.len(), text));
        self.states.extend(texts);
    }

    /// Returns the newest texts that fit, with the turn's `own` ones.
    pub(super) fn newest<'a>(&'a self, own: &'a [String]) -> Vec<&'a str> {
        let mut states = self.states.iter().rev().peekable();
        let mut of_turn: Vec<&str> = Vec::new();
        for place in (0..=own.len()).rev() {
            while let Some((_, text)) = states.next_if(|(before, _)| *before >= place) {
                of_turn.push(text);
            }
            of_turn.extend(place.checked_sub(1).map(|last| own[last].as_str()));
        }
        let before = self.before.iter().rev().map(String::as_str);
        let mut room = MAX_UNTRUSTED_BYTES;
        let fitting = of_turn.into_iter().chain(before).take_while(|text| {
            let fits = text.len() <= room;
            room = room.saturating_sub(text.len());
            fits
        });
        fitting.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_texts_count_first_in_the_order_in_which_they_were_shown() {
        let own = ["asked", "given", "later"].map(str::to_owned);
        let mut untrusted = Untrusted::default();
        untrusted.add_before(["before".to_owned()]);
        untrusted.add_states(&own[..1], ["state".to_owned()]);
        untrusted.add_states(&own[..2], ["changed".to_owned()]);
        let newest = ["changed", "given", "state", "asked", "before"];
        assert_eq!(untrusted.newest(&own[..2]), newest);
        let large = "x".repeat(MAX_UNTRUSTED_BYTES - 5);
        let own = [own[0].clone(), large.clone()];
        assert_eq!(untrusted.newest(&own), ["changed"], "the rest does not fit");
    }
}
