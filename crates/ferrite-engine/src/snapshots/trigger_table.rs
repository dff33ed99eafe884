//! Which table a trigger is on.
//!
//! The file of a trigger (`.TRN`) has the table's name as users write it, with the server's escapes; the files of
//! a table have it in the server's encoding of file names: ASCII letters, digits and `_` as they are, letters
//! of some other alphabets as `@` and two characters, everything else as `@` and four hexadecimal digits. Which two
//! characters a letter has stands in tables of the server's: here any two are taken for it. So two tables
//! whose names differ in such letters alone are not told apart.
//!
//! Locking: none.

use std::collections::BTreeSet;

/// The line that names the table begins so.
const TABLE: &str = "trigger_table=";
/// A name of before the encoding: the file has what follows.
const NOT_ENCODED: &str = "#mysql50#";
/// Follows a name that some systems take for a device.
const DEVICE: &str = "@@@";

/// Is the trigger with that file on one of the tables? They are named as their files are.
pub(super) fn is_on_one_of(trigger: &[u8], tables: &BTreeSet<&str>) -> bool {
    let Some(name) = name_in(trigger) else {
        return false;
    };
    // Most names are in a file's name as they are: no walk over all tables for each trigger.
    match name.chars().all(is_plain) {
        true => {
            let device = format!("{name}{DEVICE}");
            tables.contains(name.as_str()) || tables.contains(device.as_str())
        }
        false => tables.iter().any(|file| is_name_of(file, &name)),
    }
}

/// The name of the table.
fn name_in(trigger: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(trigger).ok()?;
    let line = text.split('\n').find_map(|line| line.strip_prefix(TABLE))?;
    let (mut name, mut chars) = (String::with_capacity(line.len()), line.chars());
    while let Some(c) = chars.next() {
        name.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                '0' => '\0',
                'z' => '\x1a',
                c => c,
            },
            c => c,
        });
    }
    debug_assert!(name.len() <= line.len(), "{line}");
    Some(name)
}

/// Is the file name that of the table?
fn is_name_of(file: &str, table: &str) -> bool {
    if let Some(plain) = table.strip_prefix(NOT_ENCODED) {
        return file == plain;
    }
    let encoded = file.strip_suffix(DEVICE).unwrap_or(file);
    encodes(encoded.as_bytes(), table)
}

/// Is it in a file's name as it is?
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn encodes(file: &[u8], table: &str) -> bool {
    let mut chars = table.chars();
    let Some(c) = chars.next() else {
        return file.is_empty();
    };
    let rest = chars.as_str();
    if is_plain(c) {
        return file
            .split_first()
            .is_some_and(|(f, file)| *f == c as u8 && encodes(file, rest));
    }
    let code = format!("@{:04x}", u32::from(c));
    let by_code = file.strip_prefix(code.as_bytes());
    let as_letter = match file {
        [b'@', _, _, left @ ..] if !c.is_ascii() => Some(left),
        _ => None,
    };
    [by_code, as_letter]
        .into_iter()
        .flatten()
        .any(|left| encodes(left, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_on(table: &str, file: &str) -> bool {
        let trigger = format!("TYPE=TRIGGERNAME\ntrigger_table={table}\n");
        let tables = BTreeSet::from(["other", file]);
        is_on_one_of(trigger.as_bytes(), &tables)
    }

    #[test]
    fn a_table_is_found_by_the_name_of_its_files() {
        for (table, file) in [
            ("t1", "t1"),
            ("p-q", "p@002dq"),
            ("a$b c", "a@0024b@0020c"),
            ("my\\'s", "my@0027s"),
            ("a\\\\b\\nc", "a@005cb@000ac"),
            // One letter as two characters, one by its number.
            ("caf\u{e9}", "caf@1i"),
            ("\u{4e2d}\u{6587}", "@4e2d@6587"),
            ("\u{e9}-\u{20ac}", "@1i@002d@20ac"),
            ("con", "con@@@"),
            ("#mysql50#p-q", "p-q"),
        ] {
            assert!(is_on(table, file), "{table} is not {file}");
        }
        for (table, file) in [
            ("p-q", "p@002dr"),
            ("p-q", "pq"),
            ("p-q", "p-q"),
            ("a-", "a@002d@002d"),
            ("caf\u{e9}", "caf"),
            ("caf\u{e9}", "caf@1"),
            ("t", ""),
        ] {
            assert!(!is_on(table, file), "{table} is {file}");
        }
        assert!(!is_on_one_of(b"TYPE=TRIGGERNAME\n", &BTreeSet::from(["t"])));
        assert!(!is_on_one_of(
            b"trigger_table=\xff\n",
            &BTreeSet::from(["t"])
        ));
    }
}
