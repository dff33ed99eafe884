//! Models for loom: commit publication, in every order of two committers and a snapshot.
//!
//! Run: `./ferrite test loom`.

use ferrite_lock::Owner;
use ferrite_sync::model::{check, thread};
use ferrite_sync::Arc;
use ferrite_types::{Csn, TxnId};

use crate::{SnapshotInfo, TxnSystem};

#[test]
fn loom_a_snapshot_sees_the_commits_up_to_its_number() {
    check(2, || {
        let sys = Arc::new(TxnSystem::with_ring_bits(TxnId(1), Csn(1), 6));
        let owner = Owner::new(1, 0);
        let txns = [sys.begin(owner.clone()), sys.begin(owner)];
        let committers = txns.map(|txn| {
            let sys = sys.clone();
            thread::spawn(move || sys.commit(txn))
        });
        let snapshot = sys.open_snapshot(SnapshotInfo::default());
        let saw = txns.map(|txn| sys.sees(&snapshot, txn, TxnId::FROZEN));
        let csns = committers.map(|c| c.join().unwrap());
        for i in 0..2 {
            assert_eq!(saw[i], csns[i] <= snapshot.csn(), "{csns:?}");
            let later = sys.sees(&snapshot, txns[i], TxnId::FROZEN);
            assert_eq!(saw[i], later, "what a snapshot sees does not change");
        }
        assert_ne!(csns[0], csns[1]);
    });
}
