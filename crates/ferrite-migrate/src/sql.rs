//! SQL as text: quoting, tokens, statements of a file, and the parts of a CREATE TABLE that change on the way.
//!
//! Nothing is replaced inside strings, quoted names or comments. Executable comments (`/*!50100 ... */`) are code: only their
//! brackets are skipped.

/// A name in backticks.
pub fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "``"))
}

/// Database and table in backticks.
pub fn full(database: &str, table: &str) -> String {
    format!("{}.{}", name(database), name(table))
}

/// A string literal that means the same in every SQL mode: quotes are doubled, and a text with a backslash is in hexadecimal.
pub fn text(value: &str) -> String {
    if value.contains('\\') || value.contains('\0') {
        let hex: String = value.bytes().map(|b| format!("{b:02X}")).collect();
        return format!("_utf8mb4 X'{hex}'");
    }
    format!("'{}'", value.replace('\'', "''"))
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word without quotes, or a number.
    Word,
    /// A name in backticks.
    Name,
    /// A string in single or double quotes.
    Text,
    /// One other character.
    Sign(u8),
}

/// One token and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub from: usize,
    /// Behind the last byte.
    pub to: usize,
}

/// Length of a comment that begins at `at`, or of a bracket of an executable one; 0: none begins there.
fn comment(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let line = |from: usize| {
        rest[from..]
            .iter()
            .position(|b| *b == b'\n')
            .map_or(rest.len(), |n| from + n + 1)
    };
    match rest {
        [b'#', ..] => line(1),
        [b'-', b'-'] => 2,
        [b'-', b'-', space, ..] if space.is_ascii_whitespace() => line(2),
        [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => {
            let mark = rest.iter().position(|b| *b == b'!').unwrap_or(2) + 1;
            mark + rest[mark..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        }
        [b'/', b'*', ..] => rest[2..]
            .windows(2)
            .position(|w| w == b"*/")
            .map_or(rest.len(), |n| n + 4),
        [b'*', b'/', ..] => 2,
        _ => 0,
    }
}

/// Behind the quote that closes the one at `at`.
fn quoted(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let mut i = at + 1;
    while i < bytes.len() {
        if bytes[i] == b'\\' && quote != b'`' {
            i += 2;
        } else if bytes[i] != quote {
            i += 1;
        } else if bytes.get(i + 1) == Some(&quote) {
            i += 2;
        } else {
            return i + 1;
        }
    }
    bytes.len()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The token at or behind `at`; none at the end.
fn token(bytes: &[u8], mut at: usize) -> Option<Token> {
    while at < bytes.len() {
        let skip = comment(bytes, at);
        if skip == 0 && !bytes[at].is_ascii_whitespace() {
            break;
        }
        at += skip.max(1);
    }
    let (kind, to) = match *bytes.get(at)? {
        b'`' => (Kind::Name, quoted(bytes, at)),
        b'\'' | b'"' => (Kind::Text, quoted(bytes, at)),
        b if is_word(b) => (
            Kind::Word,
            at + bytes[at..].iter().take_while(|b| is_word(**b)).count(),
        ),
        b => (Kind::Sign(b), at + 1),
    };
    Some(Token { kind, from: at, to })
}

/// All tokens.
pub fn tokens(sql: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(t) = token(sql.as_bytes(), at) {
        at = t.to;
        found.push(t);
    }
    found
}

/// The statements of a file: the delimiter does not count in quotes and comments, and DELIMITER changes it.
pub fn statements(sql: &str) -> Vec<&str> {
    let bytes = sql.as_bytes();
    let (mut found, mut delimiter, mut start, mut at) = (Vec::new(), ";", 0, 0);
    while at < bytes.len() {
        let at_line = bytes[..at]
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |n| n + 1);
        if sql[start..at].trim().is_empty() && at == at_line && has_delimiter(bytes, at) {
            let end = bytes[at..]
                .iter()
                .position(|b| *b == b'\n')
                .map_or(bytes.len(), |n| at + n);
            delimiter = sql[at + 9..end].trim();
            (start, at) = (end, end);
            continue;
        }
        if !delimiter.is_empty() && bytes[at..].starts_with(delimiter.as_bytes()) {
            found.push(sql[start..at].trim());
            at += delimiter.len();
            start = at;
            continue;
        }
        at = match bytes[at] {
            b'`' | b'\'' | b'"' => quoted(bytes, at),
            _ => at + comment(bytes, at).max(1),
        };
    }
    found.push(sql.get(start..).unwrap_or("").trim());
    found.retain(|s| !tokens(s).is_empty());
    found
}

fn has_delimiter(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at..at + 10)
        .is_some_and(|w| w[..9].eq_ignore_ascii_case(b"delimiter") && w[9].is_ascii_whitespace())
}

/// A CREATE TABLE taken apart.
#[derive(Clone, Debug)]
pub struct Create {
    /// The database, if the statement names one.
    pub database: Option<String>,
    /// The table.
    pub table: String,
    /// Columns, keys and checks, one each, without foreign keys.
    pub parts: Vec<String>,
    /// The clauses of foreign keys.
    pub foreign: Vec<String>,
    /// What follows the closing bracket: options, partitions.
    pub options: String,
}

fn is(sql: &str, t: &Token, word: &str) -> bool {
    t.kind == Kind::Word && sql[t.from..t.to].eq_ignore_ascii_case(word)
}

/// A name with or without backticks (or quotes, as in ANSI_QUOTES).
fn plain(sql: &str, t: &Token) -> String {
    let word = &sql[t.from..t.to];
    match t.kind {
        Kind::Name => word[1..word.len().max(2) - 1].replace("``", "`"),
        Kind::Text => word[1..word.len().max(2) - 1].to_owned(),
        _ => word.to_owned(),
    }
}

/// `db.table` or `table` at a place among the tokens; how many tokens it has.
fn qualified(sql: &str, t: &[Token]) -> Option<(Option<String>, String, usize)> {
    let first = t.first().filter(|t| !matches!(t.kind, Kind::Sign(_)))?;
    match (t.get(1), t.get(2)) {
        (Some(dot), Some(second)) if dot.kind == Kind::Sign(b'.') => {
            Some((Some(plain(sql, first)), plain(sql, second), 3))
        }
        _ => Some((None, plain(sql, first), 1)),
    }
}

/// A statement that begins with certain words: where the table's name begins among the tokens.
fn after_words(sql: &str, t: &[Token], words: &[&str], optional: &[&str]) -> Option<usize> {
    let mut at = 0;
    for word in words {
        while t
            .get(at)
            .is_some_and(|t| optional.iter().any(|o| is(sql, t, o)))
        {
            at += 1;
        }
        t.get(at).filter(|t| is(sql, t, word))?;
        at += 1;
    }
    while t
        .get(at)
        .is_some_and(|t| ["IF", "NOT", "EXISTS"].iter().any(|o| is(sql, t, o)))
    {
        at += 1;
    }
    Some(at)
}

impl Create {
    /// Takes a statement apart. None if it is no CREATE TABLE with a list of columns, or one of a temporary table.
    pub fn parse(sql: &str) -> Option<Create> {
        let t = tokens(sql);
        let at = after_words(sql, &t, &["CREATE", "TABLE"], &["OR", "REPLACE"])?;
        let (database, table, used) = qualified(sql, &t[at..])?;
        let open = at + used;
        t.get(open).filter(|t| t.kind == Kind::Sign(b'('))?;
        let (mut depth, mut from) = (0, t[open].to);
        let mut create = Create {
            database,
            table,
            parts: Vec::new(),
            foreign: Vec::new(),
            options: String::new(),
        };
        for token in &t[open..] {
            match (token.kind, depth) {
                (Kind::Sign(b'('), _) => depth += 1,
                (Kind::Sign(b','), 1) => {
                    create.add(sql[from..token.from].trim());
                    from = token.to;
                }
                (Kind::Sign(b')'), 1) => {
                    create.add(sql[from..token.from].trim());
                    create.options = sql[token.to..].trim().to_owned();
                    return Some(create).filter(|c| !c.parts.is_empty());
                }
                (Kind::Sign(b')'), _) => depth -= 1,
                _ => {}
            }
        }
        None
    }

    fn add(&mut self, part: &str) {
        match foreign_at(part) {
            Some(_) => self.foreign.push(part.to_owned()),
            None => self.parts.push(part.to_owned()),
        }
    }

    /// The statement for a table of another name, without foreign keys or with those given.
    pub fn sql(&self, table: &str, foreign: &[String]) -> String {
        let parts: Vec<&str> = self
            .parts
            .iter()
            .chain(foreign)
            .map(String::as_str)
            .collect();
        format!(
            "CREATE TABLE {table} (\n  {}\n) {}",
            parts.join(",\n  "),
            self.options
        )
    }

    /// The engine's name in the options and in those of partitions is replaced, or added if there is none.
    pub fn set_engine(&mut self, engine: &str) {
        let sql = std::mem::take(&mut self.options);
        let t = tokens(&sql);
        let (mut out, mut done, mut found, mut depth) = (String::new(), 0, false, 0);
        for (i, word) in t.iter().enumerate() {
            match word.kind {
                Kind::Sign(b'(') => depth += 1,
                Kind::Sign(b')') => depth -= 1,
                _ => {}
            }
            let equals = t.get(i + 1).is_some_and(|t| t.kind == Kind::Sign(b'='));
            if !(is(&sql, word, "ENGINE") || is(&sql, word, "TYPE") && equals) {
                continue;
            }
            if let Some(value) = t.get(i + 1 + usize::from(equals)) {
                out += &sql[done..value.from];
                out += engine;
                done = value.to;
                found |= depth == 0;
            }
        }
        out += &sql[done..];
        self.options = if found {
            out
        } else {
            format!("ENGINE={engine} {out}")
        };
    }
}

/// The place of FOREIGN in a clause of a table's definition.
fn foreign_at(part: &str) -> Option<usize> {
    let t = tokens(part);
    let at = match t.first() {
        Some(first) if is(part, first, "CONSTRAINT") => {
            1 + usize::from(!t.get(1).is_some_and(|t| is(part, t, "FOREIGN")))
        }
        _ => 0,
    };
    t.get(at).filter(|t| is(part, t, "FOREIGN")).map(|t| t.from)
}

/// The name of the constraint of a clause.
pub fn constraint_name(clause: &str) -> Option<String> {
    let t = tokens(clause);
    let named = t.len() > 1 && is(clause, &t[0], "CONSTRAINT") && !is(clause, &t[1], "FOREIGN");
    named.then(|| plain(clause, &t[1]))
}

/// The clause under another name.
pub fn with_constraint_name(clause: &str, new: &str) -> String {
    let from = foreign_at(clause).unwrap_or(0);
    format!("CONSTRAINT {} {}", name(new), &clause[from..])
}

/// The table to which a clause refers.
pub fn refers_to(clause: &str) -> Option<(Option<String>, String)> {
    let t = tokens(clause);
    let at = t.iter().position(|t| is(clause, t, "REFERENCES"))?;
    qualified(clause, &t[at + 1..]).map(|(d, n, _)| (d, n))
}

/// The clause with another table (already quoted) behind REFERENCES.
pub fn with_reference(clause: &str, table: &str) -> String {
    let t = tokens(clause);
    let Some(at) = t.iter().position(|t| is(clause, t, "REFERENCES")) else {
        return clause.to_owned();
    };
    let Some((_, _, used)) = qualified(clause, &t[at + 1..]) else {
        return clause.to_owned();
    };
    format!(
        "{}{table}{}",
        &clause[..t[at + 1].from],
        &clause[t[at + used].to..]
    )
}

/// ALTER TABLE or CREATE INDEX: the table and the statement's parts before and behind its name.
pub fn alteration(sql: &str) -> Option<(String, &str, &str)> {
    let t = tokens(sql);
    let at = match after_words(sql, &t, &["ALTER", "TABLE"], &["ONLINE", "IGNORE"]) {
        Some(at) => at,
        None => {
            after_words(
                sql,
                &t,
                &["CREATE", "INDEX"],
                &["UNIQUE", "FULLTEXT", "SPATIAL", "OR", "REPLACE"],
            )?;
            t.iter().position(|t| is(sql, t, "ON"))? + 1
        }
    };
    let (_, table, used) = qualified(sql, t.get(at..)?)?;
    Some((table, &sql[..t[at].from], &sql[t[at + used - 1].to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_replaced_in_the_options_only() {
        let sql = "CREATE TABLE `a``b` (\n `x` varchar(9) DEFAULT 'ENGINE=InnoDB)',\n KEY `ENGINE` (`x`)\n) ENGINE=InnoDB \
                   COMMENT='ENGINE=InnoDB it''s'\n PARTITION BY HASH (`x`)\n(PARTITION `p` ENGINE = InnoDB)";
        let mut create = Create::parse(sql).unwrap();
        assert_eq!(create.table, "a`b");
        create.set_engine("FERRITE");
        assert_eq!(
            create.options,
            "ENGINE=FERRITE COMMENT='ENGINE=InnoDB it''s'\n PARTITION BY HASH (`x`)\n(PARTITION `p` ENGINE = FERRITE)"
        );
        assert_eq!(
            create.parts,
            [
                "`x` varchar(9) DEFAULT 'ENGINE=InnoDB)'",
                "KEY `ENGINE` (`x`)"
            ]
        );
    }

    #[test]
    fn an_engine_is_added_where_none_is_named() {
        let mut create =
            Create::parse("CREATE TABLE IF NOT EXISTS d.t (a INT) COMMENT 'x'").unwrap();
        create.set_engine("FERRITE");
        assert_eq!(
            (create.database.as_deref(), create.options.as_str()),
            (Some("d"), "ENGINE=FERRITE COMMENT 'x'")
        );
        let mut old =
            Create::parse("create table t (a int) type = MyISAM /*!50100 row_format=DYNAMIC */")
                .unwrap();
        old.set_engine("FERRITE");
        assert_eq!(old.options, "type = FERRITE /*!50100 row_format=DYNAMIC */");
        assert!(Create::parse("CREATE TEMPORARY TABLE t (a INT)").is_none());
        assert!(Create::parse("CREATE TABLE t LIKE u").is_none());
    }

    #[test]
    fn foreign_keys_are_taken_out_and_renamed() {
        let clause =
            "CONSTRAINT `c``1` FOREIGN KEY (`a`) REFERENCES `d`.`p` (`id`) ON DELETE CASCADE";
        let create = Create::parse(&format!("CREATE TABLE c (a INT, {clause}, KEY (a))")).unwrap();
        assert_eq!(create.foreign, [clause]);
        assert_eq!(refers_to(clause), Some((Some("d".into()), "p".into())));
        assert_eq!(constraint_name(clause).as_deref(), Some("c`1"));
        assert_eq!(
            with_reference(clause, "`x`"),
            "CONSTRAINT `c``1` FOREIGN KEY (`a`) REFERENCES `x` (`id`) ON DELETE CASCADE"
        );
        let bare = "FOREIGN KEY (a) REFERENCES p(id)";
        assert_eq!(
            with_constraint_name(bare, "n"),
            format!("CONSTRAINT `n` {bare}")
        );
        assert_eq!(
            with_reference(bare, "`x`"),
            "FOREIGN KEY (a) REFERENCES `x`(id)"
        );
        assert_eq!(
            create.sql("`n`", &[]),
            "CREATE TABLE `n` (\n  a INT,\n  KEY (a)\n) "
        );
    }

    #[test]
    fn statements_end_at_delimiters_only() {
        let file = "-- a; b\nSELECT ';', \"a\\\";\", `;`; # c;\n/* ; */ /*!40101 SET x=1 */;\nDELIMITER ;;\n\
                    CREATE TRIGGER t BEGIN a; b; END ;;\nDELIMITER ;\nSELECT 2";
        let found = statements(file);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].ends_with("`;`"));
        assert!(found[1].ends_with("*/"));
        assert_eq!(found[2], "CREATE TRIGGER t BEGIN a; b; END");
        assert_eq!(found[3], "SELECT 2");
    }

    #[test]
    fn the_table_of_an_alteration() {
        let (table, head, tail) = alteration("ALTER TABLE `d`.`t` ADD FULLTEXT KEY (x)").unwrap();
        assert_eq!(
            (table.as_str(), head, tail),
            ("t", "ALTER TABLE ", " ADD FULLTEXT KEY (x)")
        );
        let (table, _, tail) = alteration("create unique index i on t (a)").unwrap();
        assert_eq!((table.as_str(), tail), ("t", " (a)"));
        assert!(alteration("INSERT INTO t VALUES (1)").is_none());
    }

    #[test]
    fn quoting_holds_in_every_mode() {
        assert_eq!(name("a`b"), "`a``b`");
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(text("\\"), "_utf8mb4 X'5C'");
    }
}
