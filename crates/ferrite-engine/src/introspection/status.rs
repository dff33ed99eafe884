//! What the engine says of itself: sections of text, running transactions, open snapshots.
//!
//! Locking: none that is held over a wait for the log or the disk: of transactions it shows their figures (`slot_figures`),
//! which may be of different moments.

use crate::introspection::metric::Metric;
use crate::state::engine::Engine;
use crate::state::slot::Isolation;
use crate::state::slot_figures::Stands;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::time;
use ferrite_txn::SnapshotView;
use ferrite_types::Csn;

/// A running transaction.
#[derive(Clone, Debug)]
pub struct TrxRow {
    /// Id; 0 while it changed nothing.
    pub txn_id: u64,
    /// Connection.
    pub thread_id: u64,
    /// First change, seconds since 1970.
    pub started_unix_s: u64,
    /// Rows changed.
    pub rows_changed: u64,
    /// Explicit locks.
    pub locks_held: u64,
    /// Bytes of undo.
    pub undo_bytes: u64,
    /// Since when it waits for a lock, seconds since 1970; 0: it does not.
    pub waiting_since_unix_s: u64,
    /// State.
    pub state: &'static str,
    /// Isolation level.
    pub isolation: &'static str,
}

/// An open snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotRow {
    /// Connection.
    pub thread_id: u64,
    /// How long it is open, ms.
    pub age_ms: u64,
    /// Commit number it reads at.
    pub csn: u64,
    /// Bytes of versions and deleted entries kept for it: what goes if it ends, unless a
    /// younger snapshot needs it, too. What is still in the ring does not count, nor do deleted
    /// entries while tables are being changed.
    pub held_bytes: u64,
    /// How many versions and entries that is.
    pub held_rows: u64,
}

impl Engine {
    /// Are the files encrypted?
    pub fn is_encrypted(&self) -> bool {
        self.store.is_encrypted()
    }

    /// Entries in all delete archives, and their bytes.
    pub(crate) fn archived(&self) -> (u64, u64) {
        self.dict.archived().get()
    }

    /// SHOW ENGINE STATUS, a section at a time.
    pub fn sections(&self) -> Vec<(&'static str, String)> {
        let list = |metrics: Vec<Metric>| {
            metrics
                .iter()
                .map(|m| format!("{} {}", m.name, m.value))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let both = |mut first: Vec<Metric>, more| {
            first.extend(more);
            first
        };
        let deadlocks = self
            .locks
            .last_deadlock()
            .map_or_else(|| "none".to_string(), |d| self.deadlock_text(&d));
        let trx = self
            .trx_rows()
            .iter()
            .map(|t| {
                format!(
                    "transaction {} thread {} {} rows {} locks {} undo {} bytes",
                    t.txn_id, t.thread_id, t.state, t.rows_changed, t.locks_held, t.undo_bytes
                )
            })
            .collect::<Vec<_>>()
            .join("\n");
        vec![
            ("LATEST DETECTED DEADLOCK", deadlocks),
            ("TRANSACTIONS", trx),
            ("ROW OPERATIONS", list(self.metrics_rows())),
            (
                "BUFFER POOL AND FILE I/O",
                list(both(self.metrics_buffer(), self.metrics_store())),
            ),
            ("LOG", list(self.metrics_log())),
            (
                "HISTORY",
                list(both(self.metrics_versions(), self.metrics_purge())),
            ),
            ("LOCKS", list(self.metrics_locks())),
            ("WAITS", self.wait_lines()),
        ]
    }

    /// Bytes free for reuse in the store.
    pub fn store_free_bytes(&self) -> u64 {
        self.store.free_bytes()
    }

    /// Running transactions.
    pub fn trx_rows(&self) -> Vec<TrxRow> {
        let now_us = time::now_us();
        let now_unix = time::unix_us();
        let unix_s = |us: u64| now_unix.saturating_sub(now_us.saturating_sub(us)) / 1_000_000;
        let unsettled = self.unsettled.ids_now();
        let mut rows = Vec::new();
        for slot in self.all_slots() {
            let (txn, stands) = (slot.figures.txn(), slot.figures.stands());
            let locks_held = slot.owner.locks_held();
            let waiting = slot.owner.waiting_since_us();
            if txn.is_frozen() && locks_held == 0 && waiting.is_none() {
                continue;
            }
            // Its turn is to come: one from before the restart, which no connection has.
            let is_cut_off = || match &unsettled {
                Some(unsettled) => unsettled.contains(&txn),
                None => slot.owner.thread_id == 0,
            };
            let name = match (waiting, stands) {
                (Some(_), _) => "LOCK WAIT",
                (None, Stands::RollingBack) => "ROLLING BACK",
                (None, Stands::Prepared) => "PREPARED",
                (None, Stands::Active) if is_cut_off() => "ROLLING BACK",
                (None, Stands::Active | Stands::Nowhere) => "RUNNING",
            };
            rows.push(TrxRow {
                txn_id: txn.0,
                thread_id: slot.owner.thread_id,
                started_unix_s: unix_s(match slot.started_us.load(Ordering::Relaxed) {
                    0 => now_us,
                    us => us,
                }),
                rows_changed: slot.rows_changed.load(Ordering::Relaxed),
                locks_held,
                undo_bytes: slot.figures.undo_bytes(),
                waiting_since_unix_s: waiting.map_or(0, unix_s),
                state: name,
                isolation: Isolation::name_of(slot.isolation.load(Ordering::Relaxed)),
            });
        }
        rows
    }

    /// Open snapshots.
    pub fn snapshot_rows(&self) -> Vec<SnapshotRow> {
        let mut rows = self.open_snapshots();
        // Asked for each of perhaps millions of versions: of snapshots at one place the oldest.
        rows.sort_by_key(|row| row.csn);
        let mut add = |csn: Csn, bytes: u64, count: u64| {
            let at = rows.partition_point(|row| row.csn < csn.0);
            if let Some(row) = rows.get_mut(at).filter(|row| row.csn == csn.0) {
                row.held_bytes += bytes;
                row.held_rows += count;
            }
        };
        self.txns.refresh();
        self.versions.each_held(&self.txns, &mut add);
        for table in self.dict.names().open_tables() {
            for delete_archive in table.archives() {
                delete_archive.each_held(&self.txns, &mut |csn, bytes| add(csn, bytes, 1));
            }
        }
        rows
    }

    pub(super) fn open_snapshots(&self) -> Vec<SnapshotRow> {
        let now = time::now_us();
        let mut rows = Vec::new();
        self.txns.each_snapshot(&mut |view: &SnapshotView| {
            rows.push(SnapshotRow {
                thread_id: view.info.thread_id,
                age_ms: now.saturating_sub(view.opened_us) / 1000,
                csn: view.csn.0,
                held_bytes: 0,
                held_rows: 0,
            });
        });
        rows
    }
}
