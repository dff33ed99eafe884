//! Entries of a secondary index larger than the buffer pool: put off, merged, taken back, and found
//! again after a crash.

use crate::common::wide::{delete, entry, insert, wide};
use crate::common::{check, config, give_up, key, metric, wait_until};
use ferrite_engine::{
    Config, Cursor, DdlCaller, DupInfo, Engine, Entry, IndexSpec, Isolation, ReadMode, References,
    SeekMode, Session, SilentCallbacks, Table, TableSpec, WaitMode, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::OpenMode;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeSet;

/// Every second one, with keys of 200 bytes: some 9 MiB in the index, a pool of 4 MiB.
const ROWS: u64 = 60_000;

const NOWAIT: DdlCaller = DdlCaller {
    thd: 0,
    wait_ms: 0,
    references: References::Any,
};

fn open(disk: &SimStorage) -> Arc<Engine> {
    // Changes that are held back hold the log, too.
    let config = Config {
        log_budget_bytes: 16 << 20,
        ..config()
    };
    let engine = Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap();
    // It would be purged, and the leaf read for that.
    engine.set("purge_paused", 1).unwrap();
    engine
}

/// The numbers of all rows, by the index; both ways the same.
fn rows(s: &mut Session, t: &Arc<Table>) -> BTreeSet<u64> {
    let number =
        |cursor: &Cursor| u64::from_be_bytes(cursor.current().unwrap().pk.try_into().unwrap());
    let mut all = [BTreeSet::new(), BTreeSet::new()];
    for (way, found) in all.iter_mut().enumerate() {
        let mut cursor = Cursor::new(t, 1, ReadMode::Snapshot, WaitMode::Wait);
        let mut more = if way == 0 {
            cursor.first(s)
        } else {
            cursor.last(s)
        }
        .map(drop);
        while more.is_ok() {
            assert!(found.insert(number(&cursor)), "a row twice");
            more = if way == 0 {
                cursor.next(s)
            } else {
                cursor.prev(s)
            }
            .map(drop);
        }
        assert_eq!(more, Err(Error::NotFound));
    }
    assert_eq!(all[0], all[1]);
    std::mem::take(&mut all[0])
}

/// Is the row found by its entry?
fn is_there(s: &mut Session, t: &Arc<Table>, n: u64) -> bool {
    let mut cursor = Cursor::new(t, 1, ReadMode::Snapshot, WaitMode::Wait);
    let at = wide(n);
    let found = cursor.seek(s, &at, SeekMode::AtOrAfter, true);
    let same = found.is_ok() && cursor.current().unwrap().pk == key(n);
    same
}

/// A table whose index does not fit the pool, with every second row.
fn filled(disk: &SimStorage) -> (Arc<Engine>, Arc<Table>, Session) {
    let engine = open(disk);
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 1),
    ];
    let spec = TableSpec {
        definition: b"definition".to_vec(),
        ..TableSpec::new("d/t", indexes)
    };
    let t = engine.dict().create_table(spec, 1).unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for n in (0..ROWS).step_by(2) {
        insert(&mut s, &t, n);
        if n % 1000 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    (engine, t, s)
}

fn kept(engine: &Engine) -> u64 {
    metric(engine, "change_buffer_changes")
}

/// No change waits for its page.
fn wait_for_merges(engine: &Engine) {
    wait_until("the end of merging", || {
        metric(engine, "change_buffer_pages") == 0
    });
}

/// What is put off from here on stays. Not what is there already: a checkpoint may need it.
fn hold_merges(engine: &Engine) {
    wait_for_merges(engine);
    engine.hold_merges(true);
}

/// Nothing else uses the table.
fn check_and_close(engine: &Arc<Engine>, t: Arc<Table>, s: Session) {
    check(engine, &t);
    drop((s, t));
    engine.close().unwrap();
}

fn evens() -> BTreeSet<u64> {
    (0..ROWS).step_by(2).collect()
}

#[test]
fn entries_that_were_put_off_are_found_by_all_ways() {
    let disk = SimStorage::new(1);
    let (engine, t, mut s) = filled(&disk);
    assert!(kept(&engine) > 100, "{} were put off", kept(&engine));
    let reads = metric(&engine, "buffer_pool_reads");
    let before = kept(&engine);
    for n in (1..ROWS).step_by(50) {
        insert(&mut s, &t, n);
        assert!(
            n % 500 != 1 || is_there(&mut s, &t, n),
            "row {n} before its commit"
        );
    }
    assert!(
        kept(&engine) - before > 200,
        "{} of 600",
        kept(&engine) - before
    );
    assert!(metric(&engine, "buffer_pool_reads") - reads < 900);
    s.commit(false).unwrap();
    let all: BTreeSet<u64> = evens().into_iter().chain((1..ROWS).step_by(50)).collect();
    assert_eq!(rows(&mut s, &t), all);
    s.commit(false).unwrap();
    check(&engine, &t);
    wait_for_merges(&engine);
    assert_eq!(metric(&engine, "change_buffer_merged"), kept(&engine));
    assert_eq!(metric(&engine, "change_buffer_bytes"), 0);
    drop((s, t));
    engine.close().unwrap();
}

#[test]
fn what_was_put_off_survives_a_crash_and_a_shutdown() {
    for crash in [true, false] {
        let disk = SimStorage::new(2);
        let (engine, t, mut s) = filled(&disk);
        if crash {
            hold_merges(&engine);
        }
        for n in (1..ROWS).step_by(30) {
            insert(&mut s, &t, n);
        }
        s.commit(false).unwrap();
        let mut open_one = Session::new(&engine, 0, 2);
        for n in (3..ROWS).step_by(3000) {
            insert(&mut open_one, &t, n);
        }
        engine.flush_log();
        if crash {
            assert!(metric(&engine, "change_buffer_pages") > 0);
            disk.crash(&mut Rng::new(3));
            give_up(&engine);
            open_one.abandon();
            s.abandon();
        } else {
            open_one.rollback().unwrap();
            drop(open_one);
            drop((s, t));
            engine.close().unwrap();
        }
        drop(engine);
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        wait_until("the rollback", || {
            metric(&engine, "active_transactions") == 0
        });
        let all: BTreeSet<u64> = evens().into_iter().chain((1..ROWS).step_by(30)).collect();
        assert_eq!(rows(&mut s, &t), all, "crash {crash}");
        s.commit(false).unwrap();
        check_and_close(&engine, t, s);
    }
}

/// A row goes and comes again while a snapshot still sees its first life: its entry is put off over the
/// delete-marked one.
#[test]
fn an_entry_in_the_place_of_one_that_a_snapshot_needs() {
    for commit in [true, false] {
        let disk = SimStorage::new(4);
        let (engine, t, mut s) = filled(&disk);
        let mut old = Session::new(&engine, 0, 2);
        old.begin_statement(Isolation::RepeatableRead);
        assert!(is_there(&mut old, &t, 0));
        let some: Vec<u64> = (0..ROWS).step_by(600).collect();
        for n in &some {
            delete(&mut s, &t, *n);
        }
        s.commit(false).unwrap();
        // The leaves leave memory, and the room on them is known.
        let mut other = Session::new(&engine, 0, 3);
        assert_eq!(rows(&mut other, &t).len(), (ROWS / 2) as usize - some.len());
        other.commit(false).unwrap();
        let before = kept(&engine);
        for n in &some {
            insert(&mut s, &t, *n);
        }
        assert!(kept(&engine) > before + 10, "{}", kept(&engine) - before);
        let mut new = Session::new(&engine, 0, 4);
        assert!(some.iter().all(|n| is_there(&mut s, &t, *n)));
        assert!(!some.iter().any(|n| is_there(&mut new, &t, *n)));
        assert!(some.iter().all(|n| is_there(&mut old, &t, *n)));
        new.commit(false).unwrap();
        match commit {
            true => s.commit(false).unwrap(),
            false => s.rollback().unwrap(),
        }
        assert!(some.iter().all(|n| is_there(&mut old, &t, *n)));
        assert!(some.iter().all(|n| is_there(&mut new, &t, *n) == commit));
        assert_eq!(rows(&mut old, &t), evens());
        old.commit(false).unwrap();
        new.commit(false).unwrap();
        engine.set("purge_paused", 0).unwrap();
        check(&engine, &t);
        drop((old, new, other, s, t));
        engine.close().unwrap();
    }
}

/// Deleted and inserted again in one transaction: it must find what it has marked itself.
#[test]
fn an_entry_that_its_own_transaction_has_marked() {
    let disk = SimStorage::new(5);
    let (engine, t, mut s) = filled(&disk);
    for n in (0..ROWS).step_by(1000) {
        let begin = s.undo_position();
        delete(&mut s, &t, n);
        engine.make_cold().unwrap();
        insert(&mut s, &t, n);
        if n % 2000 == 0 {
            s.rollback_to(begin).unwrap();
        }
    }
    s.rollback().unwrap();
    assert_eq!(rows(&mut s, &t), evens());
    s.commit(false).unwrap();
    check_and_close(&engine, t, s);
}

#[test]
fn nothing_is_put_off_into_a_gap_that_others_have_locked() {
    let disk = SimStorage::new(6);
    let (engine, t, mut s) = filled(&disk);
    let mut holder = Session::new(&engine, 0, 2);
    holder.begin_statement(Isolation::RepeatableRead);
    let mut cursor = Cursor::new(&t, 1, ReadMode::Exclusive, WaitMode::Wait);
    cursor
        .seek(&mut holder, &wide(10), SeekMode::AtOrAfter, false)
        .unwrap();
    cursor.next(&mut holder).unwrap();
    let before = kept(&engine);
    for n in (1..ROWS).step_by(1500) {
        insert(&mut s, &t, n);
    }
    assert_eq!(kept(&engine), before);
    s.rollback().unwrap();
    holder.rollback().unwrap();
    for n in (1..ROWS).step_by(150) {
        insert(&mut s, &t, n);
    }
    assert!(kept(&engine) > before);
    s.rollback().unwrap();
    assert_eq!(rows(&mut s, &t), evens());
    s.commit(false).unwrap();
    check(&engine, &t);
    drop((cursor, holder, s, t));
    engine.close().unwrap();
}

#[test]
fn a_prepared_transaction_whose_entries_were_put_off() {
    for commit in [true, false] {
        let disk = SimStorage::new(7);
        let (engine, t, mut s) = filled(&disk);
        let some: Vec<u64> = (0..ROWS).step_by(1000).collect();
        for n in &some {
            delete(&mut s, &t, *n);
        }
        s.commit(false).unwrap();
        let mut old = Session::new(&engine, 0, 3);
        assert_eq!(rows(&mut old, &t).len(), (ROWS / 2) as usize - some.len());
        let before = kept(&engine);
        for n in some.iter().copied().chain((1..ROWS).step_by(100)) {
            insert(&mut s, &t, n);
        }
        assert!(kept(&engine) > before + 100);
        let xid = Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x".to_vec(),
        };
        s.prepare(&xid).unwrap();
        engine.flush_log();
        disk.crash(&mut Rng::new(8));
        give_up(&engine);
        old.abandon();
        s.abandon();
        drop((t, engine));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        let without: BTreeSet<u64> = evens().into_iter().filter(|n| !some.contains(n)).collect();
        assert_eq!(rows(&mut s, &t), without);
        s.commit(false).unwrap();
        let with: BTreeSet<u64> = evens().into_iter().chain((1..ROWS).step_by(100)).collect();
        let expected = match commit {
            true => engine.commit_by_xid(&xid).map(|()| with),
            false => engine.rollback_by_xid(&xid).map(|()| without),
        };
        assert_eq!(rows(&mut s, &t), expected.unwrap());
        s.commit(false).unwrap();
        check_and_close(&engine, t, s);
    }
}

#[test]
fn a_dropped_index_takes_what_was_put_off_with_it() {
    let disk = SimStorage::new(9);
    let (engine, t, mut s) = filled(&disk);
    hold_merges(&engine);
    for n in (1..ROWS).step_by(20) {
        insert(&mut s, &t, n);
    }
    s.commit(false).unwrap();
    assert!(metric(&engine, "change_buffer_pages") > 0);
    drop((s, t));
    engine.drop_table("d/t", &NOWAIT).unwrap();
    assert_eq!(metric(&engine, "change_buffer_pages"), 0);
    assert_eq!(metric(&engine, "change_buffer_bytes"), 0);
    engine.close().unwrap();
}

#[test]
fn switched_off_it_keeps_nothing_and_gives_back_what_it_has() {
    let disk = SimStorage::new(10);
    let (engine, t, mut s) = filled(&disk);
    engine.set("change_buffer_max_size", 0).unwrap();
    let before = kept(&engine);
    for n in (1..ROWS).step_by(500) {
        insert(&mut s, &t, n);
    }
    s.commit(false).unwrap();
    assert_eq!(kept(&engine), before);
    wait_for_merges(&engine);
    assert!(engine.set("change_buffer_max_size", 51).is_err());
    drop((s, t));
    engine.close().unwrap();
}

/// Deletions are put off, too; whoever looks finds them, or what was before.
#[test]
fn entries_that_were_marked_unseen() {
    for commit in [true, false] {
        let disk = SimStorage::new(13);
        let (engine, t, mut s) = filled(&disk);
        let mut old = Session::new(&engine, 0, 2);
        old.begin_statement(Isolation::RepeatableRead);
        assert!(is_there(&mut old, &t, 0));
        let gone: BTreeSet<u64> = (0..ROWS).step_by(50).collect();
        let before = kept(&engine);
        let reads = metric(&engine, "buffer_pool_reads");
        for n in &gone {
            delete(&mut s, &t, *n);
            assert!(n % 1000 != 0 || !is_there(&mut s, &t, *n), "{n} is deleted");
        }
        assert!(kept(&engine) - before > 400, "{}", kept(&engine) - before);
        let reads = metric(&engine, "buffer_pool_reads") - reads;
        assert!(reads < 2000, "{reads} for {}", gone.len());
        let mut new = Session::new(&engine, 0, 3);
        assert!(gone.iter().step_by(7).all(|n| is_there(&mut new, &t, *n)));
        new.commit(false).unwrap();
        match commit {
            true => s.commit(false).unwrap(),
            false => s.rollback().unwrap(),
        }
        assert_eq!(rows(&mut old, &t), evens());
        let left = match commit {
            true => evens().difference(&gone).copied().collect(),
            false => evens(),
        };
        assert_eq!(rows(&mut new, &t), left);
        old.commit(false).unwrap();
        new.commit(false).unwrap();
        engine.set("purge_paused", 0).unwrap();
        check(&engine, &t);
        drop((old, new, s, t));
        engine.close().unwrap();
    }
}

#[test]
fn marks_that_were_put_off_survive_a_crash() {
    for prepare in [true, false] {
        let disk = SimStorage::new(14);
        let (engine, t, mut s) = filled(&disk);
        let gone: BTreeSet<u64> = (0..ROWS).step_by(100).collect();
        let undecided: BTreeSet<u64> = (20..ROWS).step_by(100).collect();
        hold_merges(&engine);
        let before = kept(&engine);
        for n in &gone {
            delete(&mut s, &t, *n);
        }
        s.commit(false).unwrap();
        let mut open_one = Session::new(&engine, 0, 2);
        for n in &undecided {
            delete(&mut open_one, &t, *n);
            if n % 1000 == 20 {
                insert(&mut open_one, &t, *n);
            }
        }
        assert!(kept(&engine) - before > 400, "{}", kept(&engine) - before);
        let xid = Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x".to_vec(),
        };
        if prepare {
            open_one.prepare(&xid).unwrap();
        }
        engine.flush_log();
        assert!(metric(&engine, "change_buffer_pages") > 0);
        disk.crash(&mut Rng::new(3));
        give_up(&engine);
        open_one.abandon();
        s.abandon();
        drop((t, engine));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        let mut left: BTreeSet<u64> = evens().difference(&gone).copied().collect();
        if !prepare {
            wait_until("the rollback", || {
                metric(&engine, "active_transactions") == 0
            });
        }
        assert_eq!(rows(&mut s, &t), left, "prepared {prepare}");
        s.commit(false).unwrap();
        if prepare {
            engine.commit_by_xid(&xid).unwrap();
            left.retain(|n| !undecided.contains(n) || n % 1000 == 20);
            assert_eq!(rows(&mut s, &t), left);
            s.commit(false).unwrap();
        }
        check_and_close(&engine, t, s);
    }
}

/// Marks were merged, and written with the addresses of their versions, which mean nothing after a crash: there
/// other versions are, of a prepared transaction.
#[test]
fn a_cut_off_mark_leaves_versions_of_another_life_alone() {
    let disk = SimStorage::new(19);
    let (engine, t, mut s) = filled(&disk);
    let mut reader = Session::new(&engine, 0, 2);
    let mut prepared = Session::new(&engine, 0, 3);
    for n in (40..ROWS).step_by(400) {
        delete(&mut s, &t, n);
        assert!(is_there(&mut reader, &t, n));
    }
    reader.commit(false).unwrap();
    // Begun later, it is recovered first.
    let undecided: BTreeSet<u64> = (20..ROWS).step_by(400).collect();
    undecided.iter().for_each(|n| delete(&mut prepared, &t, *n));
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: b"x".to_vec(),
    };
    prepared.prepare(&xid).unwrap();
    engine.make_cold().unwrap();
    engine.flush_log();
    disk.crash(&mut Rng::new(3));
    give_up(&engine);
    [s, reader, prepared].into_iter().for_each(Session::abandon);
    drop((t, engine));
    let engine = open(&disk);
    wait_until("the rollback", || {
        metric(&engine, "active_transactions") == 1
    });
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(rows(&mut s, &t), evens());
    s.commit(false).unwrap();
    engine.commit_by_xid(&xid).unwrap();
    let left: BTreeSet<u64> = evens().difference(&undecided).copied().collect();
    assert_eq!(rows(&mut s, &t), left);
    s.commit(false).unwrap();
    check_and_close(&engine, t, s);
}

/// What nobody needs is erased without a look at it, and leaves that are empty then go.
#[test]
fn marked_entries_are_erased_unseen() {
    let disk = SimStorage::new(15);
    let (engine, t, mut s) = filled(&disk);
    let leaves = || t.tree(1).check(&mut |_, _| Ok(())).unwrap().leaves;
    let before = leaves();
    engine.set("purge_paused", 0).unwrap();
    for n in (0..ROWS).step_by(2) {
        delete(&mut s, &t, n);
        if n % 200 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    wait_until("the end of purge", || {
        metric(&engine, "history_list_length") == 0
    });
    assert!(kept(&engine) > ROWS / 4, "{} changes", kept(&engine));
    wait_for_merges(&engine);
    assert_eq!(rows(&mut s, &t), BTreeSet::new());
    s.commit(false).unwrap();
    let left = leaves();
    assert!(left < before / 4, "{left} of {before} leaves");
    check_and_close(&engine, t, s);
}

/// The entry of a row that the same transaction has inserted is looked at: undo could not tell what was
/// before.
#[test]
fn an_entry_that_its_own_transaction_has_made_is_not_marked_unseen() {
    let disk = SimStorage::new(17);
    let (engine, t, mut s) = filled(&disk);
    for n in (1..ROWS).step_by(1000) {
        insert(&mut s, &t, n);
        let begin = s.undo_position();
        engine.make_cold().unwrap();
        delete(&mut s, &t, n);
        engine.make_cold().unwrap();
        assert!(!is_there(&mut s, &t, n));
        s.rollback_to(begin).unwrap();
        assert!(is_there(&mut s, &t, n), "{n}");
        if n % 2000 == 1 {
            delete(&mut s, &t, n);
        }
    }
    s.commit(false).unwrap();
    let odd = (1..ROWS).step_by(1000).filter(|n| n % 2000 == 1001);
    assert_eq!(rows(&mut s, &t), evens().into_iter().chain(odd).collect());
    s.commit(false).unwrap();
    check_and_close(&engine, t, s);
}

/// Who has locked an entry is waited for, though nothing is read for a deletion.
#[test]
fn a_mark_is_not_put_off_over_a_lock() {
    let disk = SimStorage::new(16);
    let (engine, t, mut s) = filled(&disk);
    let mut holder = Session::new(&engine, 0, 2);
    holder.begin_statement(Isolation::RepeatableRead);
    let mut cursor = Cursor::new(&t, 1, ReadMode::Shared, WaitMode::Wait);
    // The entry alone, not the row.
    cursor
        .seek(&mut holder, &wide(0), SeekMode::AtOrAfter, false)
        .unwrap();
    engine.make_cold().unwrap();
    s.set_lock_wait_timeout_ms(20);
    let failed = s.delete_row(&t, &key(0), &[entry(&wide(0))]);
    assert!(matches!(failed, Err(Error::LockTimeout)), "{failed:?}");
    s.rollback().unwrap();
    holder.rollback().unwrap();
    delete(&mut s, &t, 0);
    s.commit(false).unwrap();
    drop((cursor, holder));
    check_and_close(&engine, t, s);
}

/// Where a page was damaged on disk, and what was there.
struct Damage {
    at: u64,
    was: [u8; 1024],
}

impl Damage {
    fn repair(&self, engine: &Engine) {
        write_granule(engine, self.at, &self.was);
    }
}

fn write_granule(engine: &Engine, at: u64, bytes: &[u8; 1024]) -> [u8; 1024] {
    let (storage, mut was) = (engine.storage(), [0; 1024]);
    let file = storage.open("store.0000", OpenMode::ReadWrite, false);
    let file = file.unwrap();
    file.read_at(&mut was, at).unwrap();
    file.write_at(bytes, at).unwrap();
    file.sync_data().unwrap();
    was
}

/// The leaf of a row's entry, if it is not in memory: damaged on disk from here on.
fn damage_leaf_of(engine: &Engine, t: &Arc<Table>, n: u64) -> Option<Damage> {
    let mut whole = wide(n).to_vec();
    whole.extend_from_slice(&key(n));
    let tree = t.tree(1);
    let page = tree.leaf_of(&whole).unwrap();
    let location = tree.pool().store().directory().get(page).as_location()?;
    let at = location.granule() * 1024;
    let was = write_granule(engine, at, &[0xee; 1024]);
    Some(Damage { at, was })
}

/// Deletes every hundredth row from `from` on until some were put off whose leaf is damaged now; how many.
fn delete_on_damaged(engine: &Engine, t: &Arc<Table>, s: &mut Session, from: u64) -> usize {
    let mut damaged = 0;
    for n in (from..ROWS).step_by(100) {
        let before = kept(engine);
        delete(s, t, n);
        damaged += usize::from(kept(engine) > before && damage_leaf_of(engine, t, n).is_some());
        if damaged == 3 {
            break;
        }
    }
    damaged
}

/// Deletions are kept for a leaf that turns out to be damaged: taken back, decided after a crash, or cut off.
#[test]
fn marks_on_a_damaged_leaf_keep_nobody_from_ending() {
    let disk = SimStorage::new(18);
    let (engine, t, mut s) = filled(&disk);
    hold_merges(&engine);
    assert_eq!(delete_on_damaged(&engine, &t, &mut s, 0), 3);
    s.rollback().unwrap();
    assert_eq!(delete_on_damaged(&engine, &t, &mut s, 20), 3);
    s.commit(false).unwrap();
    let mut cut = Session::new(&engine, 0, 2);
    assert!(delete_on_damaged(&engine, &t, &mut cut, 40) > 0);
    let mut undecided = Session::new(&engine, 0, 3);
    assert!(delete_on_damaged(&engine, &t, &mut undecided, 60) > 0);
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: b"x".to_vec(),
    };
    undecided.prepare(&xid).unwrap();
    engine.set("purge_paused", 0).unwrap();
    engine.flush_log();
    disk.crash(&mut Rng::new(12));
    [s, cut, undecided].into_iter().for_each(Session::abandon);
    give_up(&engine);
    drop((t, engine));
    for nth in 0..2 {
        let engine = open(&disk);
        let left = usize::from(nth == 0);
        wait_until("the rollback", || {
            metric(&engine, "active_transactions") <= left as u64
        });
        assert_eq!(engine.prepared_xids().len(), left);
        if left > 0 {
            engine.rollback_by_xid(&xid).unwrap();
        }
        let closed = engine.close();
        assert!(matches!(closed, Err(Error::Corrupt(_))), "{closed:?}");
    }
    let engine = open(&disk);
    engine.drop_table("d/t", &NOWAIT).unwrap();
    engine.close().unwrap();
}

/// A row with an entry of that payload.
fn insert_with(s: &mut Session, t: &Arc<Table>, n: u64, payload: &[u8]) {
    let k = wide(n);
    let its = Entry {
        payload,
        ..entry(&k)
    };
    let mut dup = DupInfo::default();
    s.insert_row(t, Some(&key(n)), b"\0row", &[its], false, &mut dup)
        .unwrap();
}

/// The payload of the row's entry, if it is found.
fn payload_of(s: &mut Session, t: &Arc<Table>, n: u64) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(t, 1, ReadMode::Snapshot, WaitMode::Wait);
    cursor.seek(s, &wide(n), SeekMode::AtOrAfter, true).ok()?;
    let row = cursor.current().ok()?;
    (row.pk == key(n)).then(|| row.payload.to_vec())
}

/// An entry that was put off over a delete-marked one with another payload is taken back while the leaf cannot be
/// read. Once it can, the place is used again, and what is there is the same after a crash.
#[test]
fn an_entry_over_one_that_was_taken_back_unseen() {
    const PAYLOADS: [&[u8]; 3] = [b"the first of them", b"second", b"the third of them"];
    let disk = SimStorage::new(21);
    let (engine, t, mut s) = filled(&disk);
    let some: Vec<u64> = (1..ROWS).step_by(600).collect();
    some.iter()
        .for_each(|n| insert_with(&mut s, &t, *n, PAYLOADS[0]));
    s.commit(false).unwrap();
    let mut old = Session::new(&engine, 0, 2);
    old.begin_statement(Isolation::RepeatableRead);
    assert!(is_there(&mut old, &t, some[0]));
    some.iter().for_each(|n| delete(&mut s, &t, *n));
    s.commit(false).unwrap();
    engine.make_cold().unwrap();
    hold_merges(&engine);
    let mut damaged = Vec::new();
    for n in &some {
        let before = kept(&engine);
        insert_with(&mut s, &t, *n, PAYLOADS[1]);
        if kept(&engine) > before {
            damaged.extend(damage_leaf_of(&engine, &t, *n).map(|damage| (*n, damage)));
        }
    }
    assert!(damaged.len() > 3, "{}", damaged.len());
    s.rollback().unwrap();
    for (n, damage) in &damaged {
        assert_eq!(payload_of(&mut s, &t, *n), None);
        damage.repair(&engine);
        assert_eq!(payload_of(&mut s, &t, *n), None);
        assert_eq!(payload_of(&mut old, &t, *n).as_deref(), Some(PAYLOADS[0]));
        insert_with(&mut s, &t, *n, PAYLOADS[2]);
    }
    s.commit(false).unwrap();
    for (n, _) in &damaged {
        assert_eq!(payload_of(&mut old, &t, *n).as_deref(), Some(PAYLOADS[0]));
        assert_eq!(payload_of(&mut s, &t, *n).as_deref(), Some(PAYLOADS[2]));
    }
    s.commit(false).unwrap();
    engine.flush_log();
    disk.crash(&mut Rng::new(12));
    [s, old].into_iter().for_each(Session::abandon);
    give_up(&engine);
    drop((t, engine));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for (n, _) in &damaged {
        assert_eq!(payload_of(&mut s, &t, *n).as_deref(), Some(PAYLOADS[2]));
    }
    s.commit(false).unwrap();
    check_and_close(&engine, t, s);
}

/// Changes are kept for a leaf that turns out to be damaged: who made them can end either way, and
/// the database opens.
#[test]
fn changes_of_a_damaged_leaf_keep_nobody_from_ending() {
    let disk = SimStorage::new(11);
    let (engine, t, mut s) = filled(&disk);
    hold_merges(&engine);
    let mut damaged = 0;
    for n in (1..ROWS).step_by(100) {
        let before = kept(&engine);
        insert(&mut s, &t, n);
        if damaged < 3 && kept(&engine) > before && damage_leaf_of(&engine, &t, n).is_some() {
            damaged += 1;
        }
    }
    assert_eq!(damaged, 3);
    s.rollback().unwrap();
    insert(&mut s, &t, 51);
    s.commit(false).unwrap();
    // One that stays, one that a crash cuts off.
    let mut damaged = 0;
    let mut more = (7..ROWS).step_by(100).filter(|n| {
        let before = kept(&engine);
        insert(&mut s, &t, *n);
        kept(&engine) > before && damage_leaf_of(&engine, &t, *n).is_some()
    });
    damaged += more.by_ref().take(2).count();
    drop(more);
    s.commit(false).unwrap();
    let mut cut = Session::new(&engine, 0, 3);
    for n in (13..ROWS).step_by(1000) {
        let before = kept(&engine);
        insert(&mut cut, &t, n);
        damaged += usize::from(kept(&engine) > before && damage_leaf_of(&engine, &t, n).is_some());
    }
    assert!(damaged >= 3, "{damaged}");
    engine.flush_log();
    disk.crash(&mut Rng::new(12));
    s.abandon();
    cut.abandon();
    give_up(&engine);
    drop((t, engine));
    for _ in 0..2 {
        let engine = open(&disk);
        wait_until("the rollback", || {
            metric(&engine, "active_transactions") == 0
        });
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        let mut count = usize::from(cursor.first(&mut s).is_ok());
        while cursor.next(&mut s).is_ok() {
            count += 1;
        }
        assert!(count > (ROWS / 2) as usize, "{count} rows");
        s.commit(false).unwrap();
        drop((cursor, s, t));
        let closed = engine.close();
        assert!(matches!(closed, Err(Error::Corrupt(_))), "{closed:?}");
    }
    let engine = open(&disk);
    engine.drop_table("d/t", &NOWAIT).unwrap();
    engine.close().unwrap();
}
