//! Prepared transactions, of which only the server knows whether they were committed.
//!
//! The database has a table `d/t`, empty in its snapshot `monday`, with the rows `c`, committed since, and `p` and `q`, inserted
//! by two transactions that are prepared.

use crate::place::{take, Place};
use ferrite_engine::{DupInfo, Engine, IndexSpec, Isolation, Session, TableSpec, Xid};
use ferrite_sync::Arc;

fn text16(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// What the plugin writes of a table with one column, `letter BINARY(1)`, and a key that the engine gives.
fn definition() -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes.extend_from_slice(b"FRc1");
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&[0, 1, 254, 0, 255, 255]);
    bytes.extend_from_slice(&1u32.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for text in ["letter", "binary(1)", "binary", "binary"] {
        text16(text, &mut bytes);
    }
    bytes.extend_from_slice(&[1, 0, 1, 0, 0]);
    bytes
}

fn insert(engine: &Arc<Engine>, letter: u8) -> Session {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut session = Session::new(engine, 0, letter.into());
    session.begin_statement(Isolation::RepeatableRead);
    let key = u64::from(letter).to_be_bytes();
    let mut dup = DupInfo::default();
    session
        .insert_row(&t, Some(&key), &[0, 1, letter], &[], false, &mut dup)
        .unwrap();
    session
}

fn database(name: &str, xids: &[Xid]) -> Place {
    let place = Place::new(name);
    let engine = place.open();
    let spec = TableSpec {
        definition: definition(),
        ..TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)])
    };
    engine.dict().create_table(spec, 1).unwrap();
    take(&engine, "monday");
    insert(&engine, b'c').commit(false).unwrap();
    for (xid, letter) in xids.iter().zip(b'p'..) {
        let mut session = insert(&engine, letter);
        session.prepare(xid).unwrap();
        session.detach_prepared();
    }
    engine.close();
    place
}

fn xid(data: &[u8]) -> Xid {
    Xid {
        format_id: 1,
        gtrid_len: data.len() as u32,
        data: data.to_vec(),
    }
}

/// They are told, and the salvage is not whole unless somebody has decided.
#[test]
fn a_salvage_leaves_them_out_and_says_so() {
    let place = database("salvage", &[xid(b"one"), xid(b"two")]);
    let (code, said) = place.check(&[]);
    assert_eq!(code, Some(0), "{said}");
    for (words, wanted, rows) in [
        (vec![], 1, "c\n"),
        (vec!["--scan"], 1, "c\n"),
        (vec!["--quiet"], 1, "c\n"),
        (vec!["--prepared", "rollback"], 0, "c\n"),
        (vec!["--prepared", "commit"], 0, "c\np\nq\n"),
        // That the map was not used is a fault of its own.
        (vec!["--prepared", "commit", "--scan"], 1, "c\np\nq\n"),
    ] {
        let to = place.0.join(format!("salvaged{}", words.join("")));
        let salvage = ["--salvage", to.to_str().unwrap()];
        let (code, said) = place.check(&[&salvage, &words[..]].concat());
        assert_eq!(code, Some(wanted), "{words:?}: {said}");
        assert!(
            said.contains("2 prepared transactions"),
            "{words:?}: {said}"
        );
        let found = std::fs::read_to_string(to.join("d.t.txt")).unwrap();
        assert_eq!(found, rows, "{words:?}: {said}");
    }
}

/// A salvage without any of them says nothing of them.
#[test]
fn a_salvage_without_them_is_whole() {
    let place = database("none", &[]);
    let to = place.0.join("salvaged");
    let (code, said) = place.check(&["--salvage", to.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("transactions"), "{said}");
}

/// A name that the server gives to a transaction of its own.
fn xid_of_server(number: u64) -> Xid {
    let mut data = b"MySQLXid".to_vec();
    data.extend_from_slice(&1u64.to_le_bytes());
    data.extend_from_slice(&number.to_le_bytes());
    xid(&data)
}

/// What the server's binary log is to decide is not put into a snapshot, from which nobody would decide it.
#[test]
fn a_rewind_of_a_killed_server_waits_for_its_binary_log() {
    let place = database("killed", &[xid_of_server(7), xid(b"of a client")]);
    for _ in 0..2 {
        let (code, said) = place.rewind(&["monday"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("which of 1 transactions"), "{said}");
        assert!(said.contains("start and stop the server once"), "{said}");
        assert_eq!(place.snapshots(), ["monday"]);
    }
    let engine = place.open();
    engine.commit_by_xid(&xid_of_server(7)).unwrap();
    engine.close();
    let (code, said) = place.rewind(&["monday"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Those of clients go with the present, and are there again after the way back.
#[test]
fn a_rewind_keeps_what_clients_have_prepared() {
    let place = database("clients", &[xid(b"one"), xid(b"MySQLXid")]);
    let (code, said) = place.rewind(&["monday", "--keep-as", "present"]);
    assert_eq!(code, Some(0), "{said}");
    let engine = place.open();
    assert!(engine.prepared_xids().is_empty());
    engine.close();
    let (code, said) = place.rewind(&["present"]);
    assert_eq!(code, Some(0), "{said}");
    let engine = place.open();
    assert_eq!(engine.prepared_xids().len(), 2);
    engine.close();
}
