//! The redo of pages at a start that finds neither a frame nor memory.

use super::*;
use crate::log_records::undo;
use crate::testing::{config, create, insert, open_with, out_of_memory};
use crate::transaction::session::Session;
use crate::{Config, Engine};
use ferrite_io::sim::{Fault, IoOp, SimStorage};
use ferrite_tree::op;
use ferrite_types::format::record_kind;

/// As in a start that has waited long enough for frames, and that may put off no more for want of them.
fn without_memory(engine: &Engine) -> (Shared, Own) {
    let shared = Shared {
        pool: engine.pool.clone(),
        fates: Arc::default(),
        state: Mutex::new(State::default()),
        work: Condvar::new(),
        idle: Condvar::new(),
        stop: AtomicBool::new(false),
        redone: AtomicU64::new(0),
        put_off: AtomicU64::new(0),
        without_frames_us: AtomicU64::new(1),
        may_put_off: AtomicUsize::new(0),
        for_frames: Mutex::new(Vec::new()),
    };
    let own = Own {
        steps: Vec::new(),
        has_waited: Rc::new(|| true),
    };
    (shared, own)
}

/// One bad sector: the database opens without that page, whatever else is short.
#[test]
fn a_page_that_cannot_be_read_is_put_off_on_a_full_disk_too() {
    let disk = SimStorage::new(65);
    let manual = Config {
        manual_background: true,
        ..config()
    };
    let engine = open_with(&disk, manual);
    let t = create(&engine);
    let mut s = Session::new(&engine, 0, 1);
    (0..1000).for_each(|n| insert(&mut s, &t, n, 1));
    s.commit(false).unwrap();
    let tree = t.tree(0);
    let (page, index) = (
        tree.leaf(&500u64.to_be_bytes()).unwrap().page_id(),
        tree.index(),
    );
    out_of_memory(&engine, page);
    let mut body = undo::NO_UNDO.to_vec();
    op::remove(page, index, 0, &mut body);
    let at = engine.log.append(record_kind::MINI_TXN, &[&body]);
    let record = LogRecord {
        start: at.start,
        end: at.end,
        kind: record_kind::MINI_TXN,
        body: &body,
    };
    let mut changes = PageChanges::default();
    changes.add(&record, &mut |_| true).unwrap();
    let pages = changes.in_order(&engine.store, &PageFates::default());
    let changes = Arc::new(changes);
    disk.inject_lasting(Fault::Full, "store.");
    insert(&mut s, &t, 2000, 1);
    s.commit(false).unwrap();
    assert!(engine.pool.flush_all_below(Lsn::MAX).is_err());
    disk.set_hook(Some(Arc::new(|io| {
        match io.op == IoOp::Read && io.name.starts_with("store.") {
            true => Err(Error::Io("bad sector".into())),
            false => Ok(()),
        }
    })));
    engine.pool.set_apply_redo(Box::new(|_, _| Ok(())));
    engine.pool.redo_from(at.start);
    let (shared, mut own) = without_memory(&engine);
    assert!(shared.lacks_frames(), "it would wait");
    assert_eq!(shared.redo_page(&changes, &pages[0], &mut own), Ok(()));
    assert_eq!(engine.pool.change_buffer().pages_to_redo(), 1);
    disk.set_hook(None);
    disk.clear_faults();
    drop((shared, own, s, t));
    engine.pool.restart_writer();
    engine.close().unwrap();
}
