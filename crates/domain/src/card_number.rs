//! Card numbers in free text: a payment card's number must not be stored, logged or published, and
//! people paste it wherever there is room.
//!
//! Order ids are long numbers too, and one in ten passes the check digit; so the network's prefix
//! and length decide as well.

/// What people, and programs, put between the groups of a number. Blanks of any kind count too.
const SEPARATORS: [char; 15] = [
    '-', '.', '_', '\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2010}', '\u{2011}',
    '\u{2012}', '\u{2013}', '\u{2014}', '\u{2060}', '\u{2212}', '\u{feff}',
];

/// The zeros of the scripts whose digits follow each other (Unicode category Nd), by which a number
/// can be written and still be read aloud.
const ZEROS: [char; 25] = [
    '0', '٠', '۰', '߀', '०', '০', '੦', '૦', '୦', '௦', '౦', '೦', '൦', '๐', '໐', '༠', '၀', '០', '᠐',
    '０', '𝟎', '𝟘', '𝟢', '𝟬', '𝟶',
];

const SHORTEST: usize = 12;
const LONGEST: usize = 19;

/// Whether some groups of digits that stand side by side are the number of a card. A number is
/// not looked for inside a longer group of digits, which is an id of something else.
pub fn is_in(text: &str) -> bool {
    // The digits of the run that is being read, and where in it groups begin.
    let (mut digits, mut groups) = (Vec::new(), Vec::new());
    let mut in_group = false;
    for character in text.chars() {
        if let Some(digit) = digit(character) {
            if !in_group {
                groups.push(digits.len());
            }
            digits.push(digit);
            in_group = true;
            continue;
        }
        in_group = false;
        if !character.is_whitespace() && !SEPARATORS.contains(&character) {
            if has_card_number(&digits, &groups) {
                return true;
            }
            digits.clear();
            groups.clear();
        }
    }
    has_card_number(&digits, &groups)
}

fn digit(character: char) -> Option<u8> {
    let value = |zero: &char| u32::from(character).checked_sub(u32::from(*zero));
    let digit = ZEROS.iter().filter_map(value).find(|value| *value < 10)?;
    u8::try_from(digit).ok()
}

/// From any begin of a group to any end of one: the number may stand between others.
fn has_card_number(digits: &[u8], groups: &[usize]) -> bool {
    let ends = groups.iter().skip(1).copied().chain([digits.len()]);
    let ends: Vec<usize> = ends.collect();
    groups.iter().enumerate().any(|(index, begin)| {
        let numbers = ends[index..].iter().map(|end| &digits[*begin..*end]);
        numbers.take_while(|number| number.len() <= LONGEST).any(is_card_number)
    })
}

/// Luhn-valid (ISO/IEC 7812-1), with a prefix and a length that a network issues.
fn is_card_number(digits: &[u8]) -> bool {
    if !(SHORTEST..=LONGEST).contains(&digits.len()) || !luhn(digits) {
        return false;
    }
    let prefix = |length: usize| -> u32 {
        digits.iter().take(length).fold(0, |number, digit| number * 10 + u32::from(*digit))
    };
    match digits.len() {
        // Visa
        13 | 16 | 19 if prefix(1) == 4 => true,
        // American Express
        15 if matches!(prefix(2), 34 | 37) => true,
        // Mastercard; Elo and Hipercard, where they are not Visa's or Discover's
        16 if matches!(prefix(2), 51..=55)
            || matches!(prefix(4), 2221..=2720 | 5041 | 5066 | 5067 | 6277 | 6362 | 6363)
            || prefix(3) == 509
            || prefix(6) == 606_282 =>
        {
            true
        }
        // Diners Club
        14..=19 if matches!(prefix(2), 36 | 38 | 39) || matches!(prefix(3), 300..=305) => true,
        // Discover, JCB, UnionPay, Mir, RuPay
        16..=19
            if matches!(prefix(2), 62 | 65 | 81 | 82)
                || matches!(prefix(3), 508 | 644..=649)
                || matches!(prefix(4), 2200..=2204 | 3528..=3589 | 6011) =>
        {
            true
        }
        // Maestro
        _ => matches!(prefix(4), 5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763),
    }
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .zip([1, 2].into_iter().cycle())
        .map(|(digit, weight)| {
            let product = u32::from(*digit) * weight;
            product / 10 + product % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The numbers are the networks' published test numbers.
    #[test]
    fn a_number_of_every_network_is_found() {
        for number in [
            "4111111111111111",
            "4222222222222",
            "5555555555554444",
            "2223003122003222",
            "378282246310005",
            "6011111111111117",
            "3530111333300000",
            "30569309025904",
            "6200000000000005",
            "6205500000000000004",
            "6759649826438453",
            "5066991111111118",
            "6062826786276634",
            "2201382000000013",
        ] {
            assert!(is_in(number), "{number}");
        }
    }

    #[test]
    fn a_number_is_found_however_it_is_written_and_wherever_it_stands() {
        for text in [
            "paid with 4111 1111 1111 1111 today",
            "x4111111111111111y",
            "5555-5555-5555-4444",
            "3782 822463 10005",
            "4111  1111 - 1111  1111",
            "4111\u{a0}1111\u{202f}1111\u{2003}1111",
            "4111\n1111\r\n1111\t1111",
            "4111.1111.1111.1111",
            "4111–1111—1111‑1111",
            "4111_1111.1111-1111",
            "4\u{200b}1\u{200b}1\u{200b}1\u{200b}1111\u{ad}1111\u{feff}1111",
            "4111 1111 1111 1111 12/27 123",
            "order 12 4111-1111-1111-1111",
            "2026-11-30 4111111111111111",
            "４１１１１１１１１１１１１１１１",
            "٤١١١ ١١١١ ١١١١ ١١١١",
            "४१११११११११११११११",
            "𝟜𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙𝟙",
        ] {
            assert!(is_in(text), "{text:?}");
        }
    }

    #[test]
    fn other_long_numbers_are_none() {
        for text in [
            "",
            "4111111111111112",
            "order 1234567890123452",
            "9999999999999995",
            "0000000000000000",
            "41111111111111111111111",
            "411111111111111",
            "1411111111111111 1",
            "+55 11 91234-5678",
            "4111a1111b1111c1111",
            "2026-11-30T21:00:00.123456Z",
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
            "IBAN BR15 0000 0000 0000 1093 2840 814 P 2",
        ] {
            assert!(!is_in(text), "{text:?}");
        }
    }
}
