//! The exact decimal value of a number, written in one way.

/// The most zeros that are written between the point and the digits, or behind them, instead of an
/// exponent.
const MAX_ZEROS: i64 = 20;

/// Writes a JSON number: its significant digits without zeros at either end, with an exponent only
/// where it saves too many zeros.
pub(crate) fn write(written: &str, text: &mut String) {
    let (negative, unsigned) = match written.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, written),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let leading = (all.len() - digits.len()) as i64;
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        text.push('0');
        return;
    }
    if negative {
        text.push('-');
    }
    // An exponent beyond 64 bits is kept as it is: no number can be equal to it but itself.
    let Ok(exponent) = exponent.parse::<i64>() else {
        text.push_str(unsigned);
        return;
    };
    // The position of the point, counted from the first digit.
    let point = (whole.len() as i64 - leading).saturating_add(exponent);
    place(digits, point, text);
}

fn place(digits: &str, point: i64, text: &mut String) {
    let count = digits.len() as i64;
    if point > count + MAX_ZEROS || point < -MAX_ZEROS {
        let (first, rest) = digits.split_at(1);
        text.push_str(first);
        if !rest.is_empty() {
            text.push('.');
            text.push_str(rest);
        }
        text.push_str(&format!("e{}", point.saturating_sub(1)));
    } else if point <= 0 {
        text.push_str("0.");
        zeros(-point, text);
        text.push_str(digits);
    } else if point >= count {
        text.push_str(digits);
        zeros(point - count, text);
    } else {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(digits.len()));
        text.push_str(whole);
        text.push('.');
        text.push_str(fraction);
    }
}

fn zeros(count: i64, text: &mut String) {
    text.extend((0..count).map(|_| '0'));
}
