//! Reads at READ UNCOMMITTED: whatever is there, committed or not, and never anything else.
//!
//! Every state that was ever offered to a table is known by its stamp. A row that such a reader
//! meets must be one of them, under its own number, and its value out of line, if the reader
//! gets it, the one that was written with it. A value that went with its row meanwhile is not
//! found; it is never damaged, and never somebody else's.

use crate::client::Client;
use crate::read::{is_backward, Scan};
use crate::rows::{describe, pattern, stamp_of, Row};
use ferrite_engine::Cursor;
use ferrite_types::Error;

impl Client {
    /// Goes on with a scan that has started.
    ///
    /// # Errors
    /// As the engine's.
    pub fn dirty_scan(
        &mut self,
        scan: &Scan,
        c: &mut Cursor,
        mut moved: Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.environment.plan.extra.dirty {
            return Ok(());
        }
        for _ in 0..scan.limit {
            match moved {
                Ok(()) => {}
                Err(Error::NotFound) => return Ok(()),
                Err(e) => return Err(e),
            }
            self.check_dirty(scan, c)?;
            moved = match is_backward(&scan.start) {
                true => c.prev(self.s()),
                false => c.next(self.s()),
            }
            .map(|_| ());
        }
        Ok(())
    }

    fn check_dirty(&mut self, scan: &Scan, c: &mut Cursor) -> Result<(), Error> {
        let got = c.current()?;
        let (pk, mut payload) = (got.pk.to_vec(), got.payload.to_vec());
        if scan.index_no > 0 {
            payload = match c.fetch_row(self.s()) {
                Ok(full) => full.payload.to_vec(),
                Err(Error::NotFound) => return Ok(()),
                Err(e) => return Err(e),
            };
        }
        self.environment.tally().rows += 1;
        let place = format!("table {} index {}, dirty", scan.no, scan.index_no);
        let offered = stamp_of(&payload).and_then(|stamp| {
            self.environment
                .model()
                .offered
                .get(&(scan.no, stamp))
                .copied()
        });
        let Some((n, row)) = offered else {
            panic!("{place}: nobody has written {}", describe(&payload));
        };
        assert!(
            pk == scan.shape.pk(n) && scan.shape.is_payload_of(&payload, &row),
            "{place}: {} stands under {:?}, it was written as {row:?} of row {n}",
            describe(&payload),
            scan.shape.number_of(&pk)
        );
        self.check_dirty_value(&row, &place)
    }

    fn check_dirty_value(&mut self, row: &Row, place: &str) -> Result<(), Error> {
        let Some(big) = &row.big else {
            return Ok(());
        };
        let mut value = vec![0; big.len as usize];
        match self.s().read_value(&big.reference, &mut value) {
            Ok(()) => {
                assert!(
                    value == pattern(big.seed, value.len()),
                    "{place}: the value of {row:?} is somebody else's"
                );
                Ok(())
            }
            // It went with its row.
            Err(Error::ValueGone(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
