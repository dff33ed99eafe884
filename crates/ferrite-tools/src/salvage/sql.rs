//! The statements that bring rescued rows back.
//!
//! CREATE TABLE is made from what the plugin described: columns with types, character sets,
//! NULL and AUTO_INCREMENT; keys over columns that rows have. A key with a computed column ends before it, and is not
//! unique: an AUTO_INCREMENT and foreign keys of other tables may stand on what is left. Defaults, comments, CHECK
//! constraints, generated columns' expressions and partitions are the server's business and
//! not known here: who has the original definition loads into that.

use super::alter::Left;
use crate::describe::{Column, Description, Index, Part, PartKind};
use crate::text::{self, LoadAs};
use ferrite_engine::offline::StoredTable;
use ferrite_engine::{whole_table, Action, ForeignKey, TableSpec};

/// Settings under which every value goes in as it was.
pub(super) fn load_header() -> String {
    "-- Run in this directory: mariadb --local-infile=1 < load.sql\n".to_owned()
}

const SETTINGS: &str = "\
SET NAMES utf8mb4;
SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES';
SET SESSION time_zone = '+00:00';
SET SESSION unique_checks = 1, foreign_key_checks = 0, check_constraint_checks = 0;
";

/// A name in SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Database and table from the engine's name, which is in the server's encoding of file
/// names; a partition's rows go to its table.
fn names(engine_name: &str) -> (String, String) {
    let (db, table) = engine_name.split_once('/').unwrap_or(("", engine_name));
    (decode_file_name(db), decode_file_name(whole_table(table)))
}

/// `@0024` is the character with that number. Other codes (letters of some alphabets) stay. What some systems take for
/// a device has three more of them at its end.
fn decode_file_name(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name.strip_suffix("@@@").unwrap_or(name);
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        let code = after
            .get(..4)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                out.push(c);
                rest = &after[4..];
            }
            None => {
                out.push('@');
                rest = after;
            }
        }
    }
    out + rest
}

/// The table whose VECTOR INDEX that one is, which the server keeps in a table of its own: `db/t#i#01`.
pub(super) fn indexed_by(engine_name: &str) -> Option<&str> {
    // A name that a user gives has no such sign in the encoding of file names, but a partition may be called i.
    let (table, number) = engine_name.rsplit_once("#i#")?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_number && !table.to_ascii_uppercase().contains("#P#")).then_some(table)
}

/// What is known of a table besides its definition.
#[derive(Default)]
pub(super) struct About<'t> {
    pub(super) described: Option<&'t Description>,
    pub(super) has_vector_index: bool,
    /// By what ALTER TABLE it was left.
    pub(super) left: Option<&'t Left>,
}

/// The whole file for one table.
pub(super) fn table(stored: &StoredTable, about: &About<'_>, stem: &str) -> String {
    let spec = &stored.spec;
    let Some(description) = about.described else {
        return format!(
            "-- {}: its columns are not described (made by an earlier version). {stem}.txt has\n\
             -- primary key and row of each row as hexadecimal bytes.\n",
            spec.name
        );
    };
    let (db, name) = names(&spec.name);
    let mut sql = format!("-- {}\n", spec.name);
    if let Some(left) = about.left {
        sql.push_str(&format!("-- {}.\n", left.text()));
    }
    if about.has_vector_index {
        sql.push_str(
            "-- It had a VECTOR INDEX, which is not in its definition here: add it again.\n",
        );
    }
    if ends_early(description) {
        sql.push_str(
            "-- Indexes with computed columns, which are not in it, end before those here, and are not unique.\n",
        );
    }
    sql.push_str(SETTINGS);
    if !db.is_empty() {
        sql.push_str(&format!(
            "CREATE DATABASE IF NOT EXISTS {0};\nUSE {0};\n",
            quoted(&db)
        ));
    }
    let mut lines = create_lines(spec, description);
    if about.left.is_none_or(Left::keeps_foreign_keys) {
        let foreign = stored.foreign_keys.iter();
        lines.extend(foreign.filter_map(|key| foreign_line(key, &db, description)));
    }
    sql.push_str(&format!(
        "CREATE TABLE IF NOT EXISTS {} (\n{}\n) ENGINE=FERRITE{};\n",
        quoted(&name),
        lines.join(",\n"),
        if spec.no_rollback { " SEQUENCE=1" } else { "" }
    ));
    sql.push_str(&load_statement(&name, description, stem));
    sql
}

fn create_lines(spec: &TableSpec, table: &Description) -> Vec<String> {
    let there = table.columns.iter().filter(|c| c.is_there());
    let mut lines: Vec<String> = there.map(column_line).collect();
    for (number, index) in table.indexes.iter().enumerate() {
        let Some(declared) = spec.indexes.get(number).filter(|_| !index.hidden) else {
            continue;
        };
        let known = known_parts(index, table);
        let whole = known.len() == index.parts.len();
        let kind = match (number, declared.unique && whole) {
            (0, _) if declared.name == "PRIMARY" && whole => "PRIMARY KEY".to_owned(),
            // No other key may have this name.
            (0, _) if declared.name == "PRIMARY" => "KEY".to_owned(),
            (_, true) => format!("UNIQUE KEY {}", quoted(&declared.name)),
            (_, false) => format!("KEY {}", quoted(&declared.name)),
        };
        if !known.is_empty() {
            lines.push(format!("  {kind} ({})", parts(known, table)));
        }
    }
    lines
}

/// The parts of an index before the first computed column.
fn known_parts<'i>(index: &'i Index, table: &Description) -> &'i [Part] {
    let known = |part: &&Part| table.columns[usize::from(part.column)].is_there();
    let count = index.parts.iter().take_while(known).count();
    &index.parts[..count]
}

fn ends_early(table: &Description) -> bool {
    let mut shown = table.indexes.iter().filter(|index| !index.hidden);
    shown.any(|index| known_parts(index, table).len() < index.parts.len())
}

/// A foreign key of a table in `db`; none on a computed column, which the file does not have.
fn foreign_line(key: &ForeignKey, db: &str, table: &Description) -> Option<String> {
    let there = |name: &String| {
        let named = |c: &&Column| c.name.eq_ignore_ascii_case(name);
        table
            .columns
            .iter()
            .find(named)
            .is_some_and(Column::is_there)
    };
    if !key.columns.iter().all(|(own, _)| there(own)) {
        return None;
    }
    let list = |names: Vec<String>| names.join(", ");
    let own = key.columns.iter().map(|(own, _)| quoted(own)).collect();
    let other = key.columns.iter().map(|(_, there)| quoted(there)).collect();
    let (parent_db, parent) = names(&key.parent);
    let parent = match parent_db == db {
        true => quoted(&parent),
        false => format!("{}.{}", quoted(&parent_db), quoted(&parent)),
    };
    let action = |on: &str, action: Action| match action {
        Action::Restrict => String::new(),
        Action::NoAction => format!(" ON {on} NO ACTION"),
        Action::Cascade => format!(" ON {on} CASCADE"),
        Action::SetNull => format!(" ON {on} SET NULL"),
    };
    Some(format!(
        "  CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {parent} ({}){}{}",
        quoted(&key.name),
        list(own),
        list(other),
        action("DELETE", key.on_delete),
        action("UPDATE", key.on_update)
    ))
}

fn column_line(column: &Column) -> String {
    let sql_type = match text::is_number_only(column) {
        true => "bigint unsigned",
        false => &column.sql_type,
    };
    let mut line = format!("  {} {sql_type}", quoted(&column.name));
    if column.collation != "binary" && !text::is_number_only(column) {
        line.push_str(&format!(
            " CHARACTER SET {} COLLATE {}",
            column.charset, column.collation
        ));
    }
    let null = if column.nullable() {
        " NULL"
    } else {
        " NOT NULL"
    };
    line.push_str(null);
    if column.auto_increment() {
        line.push_str(" AUTO_INCREMENT");
    }
    line
}

fn parts(parts: &[Part], table: &Description) -> String {
    let one = |part: &Part| {
        let column = &table.columns[usize::from(part.column)];
        let mut text = quoted(&column.name);
        if !part.whole {
            let fixed = matches!(part.kind, PartKind::Bytes);
            let length = if fixed { part.width } else { part.prefix };
            text.push_str(&format!("({length})"));
        }
        if part.descending {
            text.push_str(" DESC");
        }
        text
    };
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn load_statement(name: &str, table: &Description, stem: &str) -> String {
    let (mut targets, mut casts) = (Vec::new(), Vec::new());
    for (number, column) in table.columns.iter().enumerate() {
        if !column.is_there() {
            continue;
        }
        let name = quoted(&column.name);
        let cast = match text::load_as(column) {
            LoadAs::Bytes => {
                targets.push(name);
                continue;
            }
            LoadAs::Number => format!("CAST(@v{number} AS UNSIGNED)"),
            LoadAs::Text => format!("CONVERT(@v{number} USING latin1)"),
        };
        targets.push(format!("@v{number}"));
        casts.push(format!("{name} = {cast}"));
    }
    let set = match casts.is_empty() {
        true => String::new(),
        false => format!("\n  SET {}", casts.join(", ")),
    };
    format!(
        "LOAD DATA LOCAL INFILE '{stem}.txt' INTO TABLE {} CHARACTER SET binary\n  ({}){set};\n",
        quoted(name),
        targets.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_engine::IndexSpec;

    #[test]
    fn names_of_files_and_of_tables() {
        assert_eq!(names("db/t"), ("db".into(), "t".into()));
        assert_eq!(names("a@002db/t@0024#P#p0"), ("a-b".into(), "t$".into()));
        assert_eq!(decode_file_name("x@zz@"), "x@zz@");
        assert_eq!(names("aux@@@/con@@@"), ("aux".into(), "con".into()));
        assert_eq!(names("d/nul@@@#P#p0"), ("d".into(), "nul".into()));
        assert_eq!(names("d/a@0040@0040@0040").1, "a@@@");
        assert_eq!(indexed_by("d/t#i#01"), Some("d/t"));
        assert_eq!(indexed_by("d/t@0023i@002301"), None);
        assert_eq!(indexed_by("d/t#P#i#SP#isp0"), None);
        assert_eq!(indexed_by("d/t#P#i#SP#01"), None);
        assert_eq!(indexed_by("d/t#p#i#TMP#"), None);
        assert_eq!(quoted("a`b"), "`a``b`");
    }

    /// A list of labels that is longer than a description has room for: numbers are a statement that runs.
    #[test]
    fn labels_that_are_not_described() {
        let described = |sql_type: &[u8], collation: &[u8]| {
            let column = b"FRc1\x01\0\0\x01\xf7\0\xff\xff\x02\0\0\0\0\0\0\0\x01\0a";
            let mut bytes = [&[0; 24][..], column].concat();
            for text in [sql_type, b"latin1", collation] {
                bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
                bytes.extend_from_slice(text);
            }
            bytes.extend_from_slice(b"\x01\0\x01\0\0");
            Description::decode(&bytes).unwrap()
        };
        let known = described(b"enum('x')", b"latin1_bin");
        let line = column_line(&known.columns[0]);
        assert_eq!(
            line,
            "  `a` enum('x') CHARACTER SET latin1 COLLATE latin1_bin NOT NULL"
        );
        assert!(load_statement("t", &known, "t").contains("CAST(@v0 AS UNSIGNED)"));
        let unknown = described(b"", b"latin1_bin");
        assert_eq!(
            column_line(&unknown.columns[0]),
            "  `a` bigint unsigned NOT NULL"
        );
        assert!(load_statement("t", &unknown, "t").contains("(`a`)"));
    }

    #[test]
    fn sequences_are_sequences() {
        let described = [
            &[0; 24][..],
            b"FRc1\x01\0\0\x01\x08\0\xff\xff\x08\0\0\0\0\0\0\0\x01\0n\x06\0bigint\x06\0binary\x06\0binary\x01\0\x01\0\0",
        ];
        let description = Description::decode(&described.concat()).unwrap();
        let text = |no_rollback| {
            let stored = StoredTable {
                spec: TableSpec {
                    no_rollback,
                    ..TableSpec::new("d/s", Vec::new())
                },
                foreign_keys: Vec::new(),
            };
            let about = About {
                described: Some(&description),
                has_vector_index: no_rollback,
                left: None,
            };
            table(&stored, &about, "d.s")
        };
        assert!(text(true).contains("\n) ENGINE=FERRITE SEQUENCE=1;\nLOAD DATA"));
        assert!(text(true).contains("-- It had a VECTOR INDEX"));
        assert!(
            text(false).contains("\n) ENGINE=FERRITE;\nLOAD DATA")
                && !text(false).contains("VECTOR")
        );
    }

    /// `a INT NOT NULL AUTO_INCREMENT, v INT AS (...) VIRTUAL`, with a first key that the engine numbers.
    #[test]
    fn keys_end_before_computed_columns() {
        let column = |flags: u8, name: &[u8]| {
            let head = [0, flags, 3, 0, 255, 255, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            [&head[..], name, b"\x03\0int\x06\0binary\x06\0binary"].concat()
        };
        let part = |column: u8| [column, 0, 1, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let index = |parts: &[u8]| {
            let head = [0, parts.len() as u8, 0].to_vec();
            parts
                .iter()
                .fold(head, |all, n| [&all[..], &part(*n)].concat())
        };
        let described = |indexes: &[&[u8]]| {
            let mut bytes = [&[0; 24][..], b"FRc1\x02\0"].concat();
            bytes.extend([column(33, b"a"), column(8, b"v")].concat());
            bytes.extend([indexes.len() as u8, 0]);
            indexes.iter().for_each(|parts| bytes.extend(index(parts)));
            Description::decode(&bytes).unwrap()
        };
        let lines = |names: &[(&str, bool)], indexes: &[&[u8]]| {
            let spec = |(name, unique): &(&str, bool)| IndexSpec::new(name, *unique, 1);
            let spec = TableSpec::new("d/t", names.iter().map(spec).collect());
            create_lines(&spec, &described(indexes)).split_off(1)
        };
        let plain = [("k", false), ("u", true), ("v", false)];
        assert_eq!(
            lines(&plain, &[&[0, 1], &[0, 1], &[1, 0]]),
            ["  KEY `k` (`a`)", "  KEY `u` (`a`)"]
        );
        let whole = [("PRIMARY", true), ("u", true)];
        assert_eq!(
            lines(&whole, &[&[0], &[0]]),
            ["  PRIMARY KEY (`a`)", "  UNIQUE KEY `u` (`a`)"]
        );
        assert_eq!(lines(&whole, &[&[0, 1], &[1]]), ["  KEY (`a`)"]);
        assert!(ends_early(&described(&[&[0], &[0, 1]])));
        assert!(!ends_early(&described(&[&[0]])));
    }

    #[test]
    fn foreign_keys_are_written() {
        let described = [
            &[0; 24][..],
            b"FRc1\x01\0\0\x01\x03\0\xff\xff\x04\0\0\0\0\0\0\0\x01\0a\x03\0int",
        ];
        let ends = [&described.concat()[..], b"\0\0\0\0\x01\0\x01\0\0"].concat();
        let table = Description::decode(&ends).unwrap();
        let key = |own: &str, parent: &str| ForeignKey {
            name: "f".into(),
            parent: parent.into(),
            columns: vec![(own.into(), "b".into())],
            on_delete: Action::SetNull,
            on_update: Action::Restrict,
            stamp: 0,
        };
        let line = |key: ForeignKey| foreign_line(&key, "d", &table);
        let stored = StoredTable {
            spec: TableSpec::new("d/t", Vec::new()),
            foreign_keys: vec![key("a", "d/p")],
        };
        let text = |left: Option<Left>| {
            let about = About {
                described: Some(&table),
                left: left.as_ref(),
                ..About::default()
            };
            super::table(&stored, &about, "d.t")
        };
        assert!(text(None).contains("CONSTRAINT `f`"));
        let aside = text(Some(Left::PutAside(Some("d/t".into()))));
        assert!(aside.contains("\n-- it is d/t, which") && aside.contains("CONSTRAINT `f`"));
        let copy = text(Some(Left::OnlyCopy(Some("d/t".into()))));
        assert!(copy.contains("the place of d/t, which") && !copy.contains("CONSTRAINT"));
        let begin = "  CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES";
        let wanted = format!("{begin} `p` (`b`) ON DELETE SET NULL");
        assert_eq!(line(key("a", "d/p")), Some(wanted));
        let wanted = format!("{begin} `e`.`p-1` (`b`) ON DELETE SET NULL");
        assert_eq!(line(key("a", "e/p@002d1")), Some(wanted));
        assert_eq!(line(key("computed", "d/p")), None);
    }
}
