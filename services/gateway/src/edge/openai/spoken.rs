//! The text of a stream that cannot take back any text, over answers that are void.

/// The text between a void answer and its replacement.
const ANEW: &str = "\n\n(The text above is void. The answer follows.)\n\n";

/// The text of an agent's answers that a client has received.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    /// Whether the client has text from an earlier answer of the model.
    before: bool,
    /// The text of the newest answer that the client has received.
    sent: String,
    /// The text of the answer that replaces a void one, while the client has all of it already.
    again: Option<String>,
}

impl Spoken {
    /// Records that the model begins an answer.
    pub(super) fn begin_answer(&mut self) {
        if self.again.is_none() {
            self.before |= !self.sent.is_empty();
            self.sent.clear();
        }
    }

    /// Records that the newest answer is void and that the next one replaces it.
    pub(super) fn void_answer(&mut self) {
        if !self.sent.is_empty() {
            self.again = Some(String::new());
        }
    }

    /// Adds a piece of text; returns the text that the client has not received.
    pub(super) fn say(&mut self, text: String) -> String {
        let Some(mut again) = self.again.take() else {
            let apart = self.before && self.sent.is_empty() && !text.is_empty();
            self.sent.push_str(&text);
            return match apart {
                true => format!("\n\n{text}"),
                false => text,
            };
        };
        again.push_str(&text);
        if self.sent.starts_with(&again) {
            self.again = Some(again);
            return String::new();
        }
        self.replace(again)
    }

    /// Records the end of the answer; returns the text that the client still lacks.
    pub(super) fn end_answer(&mut self) -> String {
        match self.again.take() {
            Some(again) if again != self.sent => self.replace(again),
            _ => String::new(),
        }
    }

    /// Replaces the text that the client has received; returns the text to send.
    fn replace(&mut self, text: String) -> String {
        let sent = std::mem::replace(&mut self.sent, text);
        match self.sent.strip_prefix(&*sent) {
            Some(rest) => rest.to_owned(),
            None => format!("{ANEW}{}", self.sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that a client reads of answers, the pieces of each between `|`; `!` voids the one before.
    fn read(answers: &[&str]) -> String {
        let mut spoken = Spoken::default();
        let mut read = String::new();
        for answer in answers {
            if *answer == "!" {
                spoken.void_answer();
                continue;
            }
            spoken.begin_answer();
            for piece in answer.split('|') {
                read += &spoken.say(piece.to_owned());
            }
            if answers.last() == Some(answer) {
                read += &spoken.end_answer();
            }
        }
        read
    }

    #[test]
    fn an_answer_that_is_given_again_is_shown_once() {
        let anew = |before: &str, after: &str| format!("{before}{ANEW}{after}");
        let cases: [(&[&str], String); 8] = [
            (&["It |rains."], "It rains.".to_owned()),
            (&["Look.", "It rains."], "Look.\n\nIt rains.".to_owned()),
            (&["It r", "!", "It |rains."], "It rains.".to_owned()),
            (
                &["It r", "!", "It r", "!", "I|t rains."],
                "It rains.".to_owned(),
            ),
            (&["It r", "!", "It |snows."], anew("It r", "It snows.")),
            (&["It rains.", "!", "It"], anew("It rains.", "It")),
            (
                &["Look.", "It r", "!", "It rains."],
                "Look.\n\nIt rains.".to_owned(),
            ),
            // A thought was void, and no text was sent.
            (&["", "!", "It rains."], "It rains.".to_owned()),
        ];
        for (answers, expected) in cases {
            assert_eq!(read(answers), expected, "{answers:?}");
        }
    }
}
