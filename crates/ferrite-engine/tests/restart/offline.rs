//! What a database that nobody has open takes of memory while it is read.

use crate::common::*;
use ferrite_engine::offline::{MapFrom, Offline, Settled};
use ferrite_engine::{Config, Engine, Session, SilentCallbacks};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::Arc;
use ferrite_tree::node;
use ferrite_types::{Faults, PageId, TxnId, PAGE_BYTES};

/// A long log names all pages, and most of them are on disk as it leaves them: those are not kept.
#[test]
fn pages_that_are_current_are_not_kept() {
    let disk = SimStorage::new(1);
    let small_pool = Config {
        log_budget_bytes: 1 << 30,
        log_segment_bytes: 8 << 20,
        ..config()
    };
    let pool_pages = small_pool.buffer_pool_size_bytes / PAGE_BYTES as u64;
    let engine =
        Engine::open(small_pool, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..30_000 {
        insert(&mut s, &t, n, &[n as u8; 900]).unwrap();
        if n % 500 == 499 {
            s.commit(false).unwrap();
        }
    }
    engine.flush_log();
    disk.power_off();
    drop((s, t));
    give_up(&engine);
    drop(engine);
    disk.crash_clean();
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let offline = Offline::open(&storage, MapFrom::Checkpoint).unwrap();
    let kept = offline.report().pages_redone;
    let mut bytes = vec![0; PAGE_BYTES];
    let pages = (1..offline.store().directory().end()).map(PageId);
    let found = pages
        .filter(|p| offline.page(*p, &mut bytes).is_ok())
        .count() as u64;
    assert!(found > 6 * pool_pages, "{found} pages");
    assert!(kept <= 2 * pool_pages, "{kept} of {found} pages are kept");
    drop(offline);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

/// The undo of a transaction is applied to entries that bear its id, and to no others: an old copy of a page, which a
/// scan finds in place of one that is lost, has states from before it.
#[test]
fn undo_is_of_entries_with_its_transactions_id() {
    let (disk, engine, t, mut s) = database(2);
    for n in 0..20 {
        insert(&mut s, &t, n, b"committed").unwrap();
    }
    s.commit(false).unwrap();
    let mut others: Vec<Session> = (2..5).map(|n| Session::new(&engine, 0, n)).collect();
    for (other, n) in others.iter_mut().zip(4..) {
        update(other, &t, n, b"committed", b"not committed").unwrap();
        insert(other, &t, n + 100, b"not committed").unwrap();
    }
    engine.flush_log();
    disk.power_off();
    drop((s, others, t));
    give_up(&engine);
    drop(engine);
    disk.crash_clean();
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let offline = Offline::open(&storage, MapFrom::Checkpoint).unwrap();
    assert_eq!(offline.report().unfinished, 3);
    let tables = offline.tables(&mut |fault| panic!("{fault}"));
    let index = &tables[0].spec.indexes[0];
    let (mut updated, mut inserted, mut others) = (0, 0, 0);
    let walk = offline.tree(index.id, index.root, &mut |_, page| {
        for slot in 0..node::count(page) {
            let (mut key, mut rec) = (Vec::new(), node::record(page, slot));
            node::key_into(page, slot, &mut key);
            match offline.settled(index.id, &key, &rec) {
                Settled::Same => others += 1,
                Settled::Gone => inserted += 1,
                Settled::Other(deleted, value) => {
                    assert_eq!((deleted, &value[..]), (false, &b"\0committed"[..]));
                    updated += 1;
                }
            }
            for id in [TxnId::FROZEN, TxnId(rec.header.txn.get() + 1000)] {
                rec.header.txn = id;
                assert_eq!(offline.settled(index.id, &key, &rec), Settled::Same);
            }
        }
    });
    assert_eq!(
        (walk.faults, updated, inserted, others),
        (Faults::default(), 3, 3, 17)
    );
}
