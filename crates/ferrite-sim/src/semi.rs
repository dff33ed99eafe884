//! Scans as an UPDATE makes them at READ COMMITTED, compared with the model: rows that others have
//! locked come in their newest committed state, and are asked for again before they are changed.

use crate::client::Client;
use crate::read::{is_backward, start_cursor, Scan};
use crate::rows::describe;
use ferrite_engine::{Cursor, Isolation};
use ferrite_types::Error;

impl Client {
    /// A scan as that of an UPDATE at READ COMMITTED: rows locked by others are read in their
    /// committed state, what does not match is given back, what does is asked for again.
    pub(crate) fn update_scan(&mut self, scan: &Scan, c: &mut Cursor) -> Result<(), Error> {
        c.try_semi_consistent(true);
        let backward = is_backward(&scan.start);
        let mut again: Option<Vec<u8>> = None;
        let mut floor = self.environment.model().answered_csn;
        let mut moved = start_cursor(c, self, &scan.start, false);
        for _ in 0..scan.limit.min(100) {
            match moved {
                Ok(()) => {}
                Err(Error::NotFound) => return Ok(()),
                Err(e) => return Err(e),
            }
            let key = c.current()?.key.to_vec();
            let semi = c.was_semi_consistent();
            if semi {
                assert_ne!(
                    again.as_ref(),
                    Some(&key),
                    "asked for again, and not locked"
                );
                self.check_committed(scan, c, floor)?;
            } else {
                self.check_locked(scan, c)?;
            }
            let matches = self.rng.chance(1, 2);
            if !matches {
                c.unlock_row(self.s());
            }
            again = (semi && matches).then_some(key);
            floor = self.environment.model().answered_csn;
            moved = match backward {
                true => c.prev(self.s()).map(|_| ()),
                false => c.next(self.s()).map(|_| ()),
            };
        }
        // The last step may have made it a deadlock's victim, and then its transaction is over.
        match moved {
            Err(e) if e != Error::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// The row is one that another transaction has locked, in a state that was the newest
    /// committed one at a moment since everything up to `floor` was answered.
    fn check_committed(&mut self, scan: &Scan, c: &Cursor, floor: u64) -> Result<(), Error> {
        let got = c.current()?;
        let payload = got.payload.to_vec();
        let n = scan.shape.number_of(got.pk).unwrap_or(u64::MAX);
        assert!(scan.index_no == 0 && self.isolation <= Isolation::ReadCommitted);
        assert!(
            !self.tx.writes.contains_key(&(scan.no, n)),
            "row {n} of table {}, its own, is read as another's",
            scan.no
        );
        self.environment.resolve(&self.engine);
        let model = self.environment.model();
        let versions = model.table(scan.no).rows.get(&n);
        let versions = versions.map_or(&[][..], |list| list.as_slice());
        let newest = versions.iter().rposition(|v| v.csn <= floor).unwrap_or(0);
        let there = versions[newest..].iter().any(|v| {
            v.row
                .is_some_and(|row| scan.shape.is_payload_of(&payload, &row))
        });
        assert!(
            there,
            "row {n} of table {}, committed: found {}, expected one of {:?}",
            scan.no,
            describe(&payload),
            &versions[newest..]
        );
        drop(model);
        self.environment.tally().rows += 1;
        Ok(())
    }
}
