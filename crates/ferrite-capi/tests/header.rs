//! `abi.rs` against `ferrite.h`, by a C++ compiler: each constant has the header's value, each
//! structure its size, each field its place.
//!
//! What is compared is complete: a constant, structure or field that only one side has fails, too.

use ferrite_capi::abi::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::{Command, Stdio};

/// The header's structures: name, size, and each field's name and place.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! layouts {
    ($($name:ident: $($field:ident),+;)+) => {
        vec![$((
            stringify!($name),
            size_of::<$name>(),
            vec![$((stringify!($field), offset_of!($name, $field))),+],
        )),+]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        fe_slice: ptr, len;
        fe_callbacks: log, is_killed, progress, lock_wait_begin, lock_wait_end, wants_wait_reports, report_wait_for, async_begin, async_done, checkpoint_notify, fatal, current_connection, query_of_waiter, prefer_victim, connection_of_token, newest_key_version, encryption_key, is_shutting_down;
        fe_observer: thread_begins, thread_ends, wait_begins, wait_ends, file_opened, file_begins, file_ends, memory;
        fe_config: abi_version, data_dir, buffer_pool_size_bytes, buffer_pool_size_max_bytes, log_budget_bytes, history_ring_bytes, max_history_bytes, flush_log_at_commit, flush_interval_ms, lock_wait_timeout_ms, purge_threads, write_threads, deadlock_detect, use_direct_io, read_only, compression, simulate_crash_point, next_log_start, snapshot_of, snapshot, second_tier, encrypt, encryption_key_id;
        fe_exported_file: dir, file, layout, of, columns, unfit;
        fe_backup_plan: dir, base, owner, kept_bytes, bytes_per_s;
        fe_backup_row: state, dir, base, error, id, owner, started_unix_s, position, page_bytes, copied_bytes, kept_log_bytes, withheld_bytes;
        fe_kept_point: binlog_file, binlog_position, gtid, scheduled;
        fe_kept_row: name, lost, binlog_file, gtid, binlog_position, taken_unix_s, position, file_bytes, changed_bytes, scheduled;
        fe_xid: format_id, gtrid_len, bqual_len, data;
        fe_index_def: name, flags, key_parts;
        fe_table_def: name, flags, compression, indexes, index_count, definition, auto_increment, foreign;
        fe_fk_column: own, other;
        fe_fk_def: name, parent, columns, column_count, on_delete, on_update, carried;
        fe_fk_defs: defs, count, checks, original;
        fe_fk_misfit: at, reason, key, column, other;
        fe_table_change: definition, drop, drop_count, renamed_count, renamed, index_names, index_sources, build, index_count, compression, add, auto_increment;
        fe_link_side: column, kind, flags, width;
        fe_link_part: own, other;
        fe_link: name, other, columns, column_count, on_delete, on_update, carried, index_no, other_index_no, parent_index, parts, part_count;
        fe_fk_row: child, def;
        fe_table_stats: rows, data_bytes, index_bytes, free_bytes, created_unix_s, updated_unix_s, changes_since_stats, clustered_leaf_pages, rows_doubtful;
        fe_entry: index_no, check_unique, key, payload;
        fe_dup_info: index_no, pk_len, pk;
        fe_row: key, payload, pk;
        fe_trx_row: txn_id, thread_id, started_unix_s, rows_changed, locks_held, undo_bytes, waiting_since_unix_s, state, isolation;
        fe_lock_row: lock_id, txn_id, thread_id, mode, table, index, key, until, records, granted, of_table;
        fe_lock_wait_row: requesting_txn_id, requesting_thread_id, requested_lock_id, blocking_txn_id, blocking_lock_id;
        fe_snapshot_row: thread_id, age_ms, csn, held_bytes, held_rows;
        fe_memory_row: part, meaning, bytes, limit_bytes;
        fe_wait_row: reason, meaning, count, sum_us, max_us, p50_us, p99_us;
        fe_deadlock_row: number, at_unix_us, position, victim, thread_id, txn_id, rows_changed, table, index, key, waits_for, holds, query;
        fe_long_wait_row: ended_unix_us, waited_us, reason, thread_id, thread, table, index, page, holder_thread_id, query, txn_id;
    }
}

/// Whatever follows `before` as a name in the text.
fn names_after<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let name = |rest: &'a str| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    };
    text.split(before).skip(1).map(name).collect()
}

/// Constants of `abi.rs`: name and value, as text.
fn constants(source: &str) -> Vec<(&str, &str)> {
    let lines = source.lines().filter_map(|l| l.strip_prefix("pub const "));
    let pair = |line: &'_ str| -> Option<(usize, usize, usize)> {
        let value = line.find("= ")? + 2;
        Some((line.find(':')?, value, line.find(';')?))
    };
    lines
        .filter_map(|line| {
            let (name, from, to) = pair(line)?;
            Some((&line[..name], &line[from..to]))
        })
        .collect()
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

/// Compiles the text after the header; what the compiler says if it refuses.
fn compile(text: &str) -> Result<(), String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let mut running = Command::new(compiler)
        .args(["-std=c++17", "-fsyntax-only", "-x", "c++", "-", "-I"])
        .arg(folder().join("include"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a C++ compiler, as the plugin needs");
    let text = format!("#include <stddef.h>\n#include \"ferrite.h\"\n{text}");
    let mut input = running.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let said = running.wait_with_output().unwrap();
    match said.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said.stderr).into_owned()),
    }
}

fn assertions() -> String {
    let mut text = String::new();
    let mut holds = |what: String| {
        let _ = writeln!(text, "static_assert({what}, \"{what}\");");
    };
    for (name, value) in constants(&read("src/abi.rs")) {
        holds(format!("{name} == {value}"));
    }
    for (name, size, fields) in layouts() {
        holds(format!("sizeof({name}) == {size}"));
        for (field, at) in fields {
            holds(format!("offsetof({name}, {field}) == {at}"));
        }
    }
    text
}

#[test]
fn the_header_says_the_same() {
    compile(&assertions()).unwrap();
}

/// The compiler is asked indeed.
#[test]
fn a_difference_is_refused() {
    let text = assertions().replace("FE_BUG == 25", "FE_BUG == 26");
    assert!(compile(&text).unwrap_err().contains("FE_BUG == 26"));
    let text = assertions().replacen(
        "offsetof(fe_row, pk) == 32",
        "offsetof(fe_row, pk) == 33",
        1,
    );
    assert!(compile(&text).unwrap_err().contains("fe_row, pk"));
}

#[test]
fn nothing_stands_on_one_side_only() {
    let (header, source) = (read("include/ferrite.h"), read("src/abi.rs"));
    let defined = |line: &&str| line.contains(" = ") || line.starts_with("#define FE_");
    let lines = header.lines().filter(defined);
    let of_header: BTreeSet<&str> = lines
        .flat_map(|line| names_after(line, "FE_").into_iter().map(move |n| (line, n)))
        .filter(|(line, n)| {
            line.contains(&format!("FE_{n} = ")) || line.starts_with(&format!("#define FE_{n} "))
        })
        .map(|(_, n)| n)
        .collect();
    let constants = constants(&source);
    let of_source: BTreeSet<&str> = constants.iter().map(|(name, _)| &name[3..]).collect();
    assert_eq!(of_header, of_source, "constants");

    let of_header: BTreeSet<&str> = names_after(&header, "\n} ").into_iter().collect();
    let compared = layouts();
    let structures: BTreeSet<&str> = compared.iter().map(|(name, ..)| *name).collect();
    let enums = names_after(&source, "pub struct ");
    assert_eq!(
        structures,
        enums.into_iter().collect(),
        "structures of abi.rs"
    );
    let enumerations = [
        "fe_code",
        "fe_isolation",
        "fe_seek_mode",
        "fe_lock_mode",
        "fe_misfit",
        "fe_link_fault",
        "fe_references",
    ];
    let others: Vec<&&str> = of_header
        .difference(&structures)
        .filter(|name| !enumerations.contains(name))
        .collect();
    assert!(
        others.is_empty(),
        "structures of the header only: {others:?}"
    );
    for (name, _, fields) in compared {
        let body = source
            .split(&format!("pub struct {name} {{"))
            .nth(1)
            .unwrap();
        let body = body.split("\n}").next().unwrap();
        let of_source = names_after(body, "    pub ");
        let listed: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
        assert_eq!(listed, of_source, "fields of {name}");
    }
}
