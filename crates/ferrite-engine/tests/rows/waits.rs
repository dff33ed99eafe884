//! Who waits for whom, as the server is told.

use crate::common::{self, config, insert, update, wait_until};
use ferrite_engine::{Callbacks, Engine, LogLevel, Session, Xid};
use ferrite_io::sim::SimStorage;
use ferrite_sync::{thread, Arc, Mutex};

/// Keeps the connections that waiters were said to wait for.
#[derive(Default)]
struct Told(Mutex<Vec<(usize, usize)>>);

impl Callbacks for Told {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn report_wait_for(&self, waiter: usize, holder: usize) {
        self.0.lock().push((waiter, holder));
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

/// A prepared transaction outlives its connection: who waits for it does not name it.
#[test]
fn a_prepared_transaction_has_no_connection() {
    let told = Arc::new(Told::default());
    let storage = Arc::new(SimStorage::new(81).boot());
    let engine = Engine::open(config(), storage, told.clone()).unwrap();
    let t = common::create(&engine, "d/t");
    let mut s = Session::new(&engine, 11, 1);
    insert(&mut s, &t, 1, b"row").unwrap();
    s.commit(false).unwrap();
    let waits = |thd: usize, timeout_ms: u64| {
        let (engine, t) = (engine.clone(), t.clone());
        thread::spawn("waits", move || {
            let mut s = Session::new(&engine, thd, thd as u64);
            s.set_lock_wait_timeout_ms(timeout_ms);
            let got = update(&mut s, &t, 1, b"row", b"other");
            s.rollback().unwrap();
            got
        })
    };
    update(&mut s, &t, 1, b"row", b"newer").unwrap();
    let waiter = waits(22, 60_000);
    wait_until("a report", || !told.0.lock().is_empty());
    assert_eq!(*told.0.lock(), [(22, 11)]);
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: vec![7],
    };
    s.prepare(&xid).unwrap();
    s.detach_prepared();
    drop(s);
    let second = waits(33, 50);
    assert!(second.join().unwrap().is_err(), "it runs out of time");
    let named: Vec<_> = told.0.lock().iter().map(|(_, holder)| *holder).collect();
    assert!(
        !named[1..].contains(&11),
        "connection 11 is gone: {named:?}"
    );
    engine.rollback_by_xid(&xid).unwrap();
    waiter.join().unwrap().unwrap();
    engine.close().unwrap();
}
