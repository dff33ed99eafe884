//! Who cleans up after commits, and what it leaves to the log.
//!
//! All of it can be put off, and none of it is admitted: the log keeps a reserve for what already runs, and for the
//! checkpoint that makes room. So there is a look at the log before each step, a piece or a leaf or 64 pages of a
//! value. A thread of the engine's own pauses there as the brake asks (`throttle`); a committer, whose commit
//! nobody brakes, only stops where the log is nearly out.
//!
//! Locking: none; a thread's own. No latch is held between two steps, nor a table's `in_use`.

use crate::state::engine::Engine;
use crate::state::throttle::Eased;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::thread;
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_tree::Scratch;
use ferrite_types::{Error, Result};

/// So often, 10 ms each, the log may be nearly out before a long value is broken off: its pages, which were looked
/// for, are looked for again then.
const LOOKS: u32 = 100;
const LOOK_MS: u64 = 10;

/// See the head of the file. By default a thread of the engine's own.
pub(crate) struct Cleaner {
    pub scratch: Scratch,
    eased: Option<Eased>,
}

impl Default for Cleaner {
    fn default() -> Cleaner {
        Cleaner {
            scratch: Scratch::default(),
            eased: Some(Eased::default()),
        }
    }
}

impl Cleaner {
    /// A committer, which lends its memory.
    pub(crate) fn committer(scratch: &mut Scratch) -> Cleaner {
        Cleaner {
            scratch: std::mem::take(scratch),
            eased: None,
        }
    }

    /// It is a thread of the engine's own.
    pub(crate) fn is_helper(&self) -> bool {
        self.eased.is_some()
    }
}

impl Engine {
    /// Before a step. No latch is held.
    ///
    /// # Errors
    /// `Interrupted`: what is left has to wait, for the log or for the next life.
    #[inline]
    pub(crate) fn before_step(&self, by: &mut Cleaner) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if let Some(eased) = &mut by.eased {
            self.ease_off(eased);
        }
        match self.log.is_nearly_out() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// The same in the midst of something long, which waits a while for the log.
    ///
    /// # Errors
    /// As [`Engine::before_step`].
    pub(crate) fn amid_steps(&self, by: &mut Cleaner) -> Result<()> {
        for _ in 0..LOOKS {
            let next = self.before_step(by);
            if next.is_ok() || by.eased.is_none() || self.stop.load(Ordering::Relaxed) {
                return next;
            }
            self.housekeeping.set();
            waiting(Reason::LogBudget, Of::Nothing, || thread::sleep_ms(LOOK_MS));
        }
        Err(Error::Interrupted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::DupInfo;
    use crate::state::purge_work::Garbage;
    use crate::testing::{create, open};
    use crate::Session;
    use ferrite_io::sim::{Fault, SimStorage};
    use ferrite_types::format::record_kind;
    use ferrite_types::{IndexId, TxnId};

    /// Where the log is nearly out and nothing makes room in it, nothing is cleaned up, whatever was begun; it goes on
    /// by itself, and none of it counts as damaged.
    #[test]
    fn what_can_wait_leaves_the_log_its_reserve() {
        let disk = SimStorage::new(7);
        let engine = open(&disk);
        engine.purge.hold_back(true);
        let table = create(&engine);
        let index = table.tree(0).index();
        let mut s = Session::new(&engine, 0, 1);
        let mut write = |pages: usize| s.write_overflow(&table, &vec![7; pages << 14]).unwrap();
        let values = [write(3), write(5), write(200)];
        let dup = &mut DupInfo::default();
        s.insert_row(&table, Some(b"k"), b"\0", &[], false, dup)
            .unwrap();
        s.commit(false).unwrap();
        let pages = || values.map(|value| engine.value_pages(index, &value).unwrap().len());
        let before = pages();
        let all = values.map(|value| Garbage::overflow_of(&table, value));
        engine.purge.add(TxnId::FROZEN, all.into());
        engine.purge.found_sparse(IndexId(u32::MAX), b"of none");

        // No checkpoint recycles log, and what else can be given back for it is.
        for nth in 1..5000 {
            disk.inject_in(Fault::Full, nth, "map.");
        }
        loop {
            engine.ease_off(&mut Eased::default());
            if engine.log.is_nearly_out() {
                break;
            }
            disk.set_capacity(Some(disk.used_bytes()));
            while !engine.log.is_nearly_out() {
                engine.log.append(record_kind::GARBAGE, &[&[0; 1000]]);
            }
        }
        let end = engine.log.current_lsn();
        let mut cleaner = Cleaner::default();
        assert_eq!(engine.purge_round(&mut cleaner), 0);
        let mut long = Garbage::overflow_of(&table, values[2]);
        let broken_off = engine.purge_piece(TxnId::FROZEN, &mut long, false, &mut cleaner);
        assert_eq!(broken_off, Err(Error::Interrupted));
        assert_eq!((pages(), engine.log.current_lsn()), (before, end));
        assert_eq!(engine.purge.take_sparse().len(), 1, "a leaf is forgotten");
        assert_eq!(engine.purge.pending_overflow().len(), values.len());

        disk.set_capacity(None);
        disk.clear_faults();
        while engine.purge.length() > 0 {
            engine.log.prepare_now();
            thread::sleep_ms(5);
            engine.purge_round(&mut cleaner);
        }
        assert_eq!(pages(), [0; 3]);
        drop(s);
        engine.close().unwrap();
    }
}
