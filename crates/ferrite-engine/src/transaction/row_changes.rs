//! What a session has changed in each table: a scan asks whether the entries that it has copied are still what
//! the session sees. Its snapshot shows it others' rows as they were, but its own changes at once.
//!
//! Invariants: a table's number moves with each change of a row of it by this session, done, undone or failed, and
//! never goes back, not even from one transaction to the next. A table that shares its place with one that the session
//! changes keeps its number: only of three that share a place and of which two are changed in turn, the third's moves in
//! vain (a scan then copies again, a few entries). When something is undone, those move that the transaction has changed, and
//! at its end all.
//!
//! Locking: none; a session's own.

use ferrite_types::TableId;

/// Tables whose ids differ by less have places of their own.
const PLACES: usize = 16;

/// The table that was changed last of those that share the place.
#[derive(Clone, Copy)]
struct Place {
    /// 0: none yet.
    table: TableId,
    /// Its number.
    number: u64,
    /// The highest that any other table of the place can have.
    of_others: u64,
}

/// See the head of the file.
pub(crate) struct RowChanges {
    places: [Place; PLACES],
    /// The newest number of all.
    newest: u64,
    /// No table's number is below it.
    ended: u64,
    /// Nor below that the number of one that the transaction has changed.
    undone: u64,
}

impl Default for RowChanges {
    fn default() -> RowChanges {
        let place = Place {
            table: TableId(0),
            number: 0,
            of_others: 0,
        };
        RowChanges {
            places: [place; PLACES],
            newest: 0,
            ended: 0,
            undone: 0,
        }
    }
}

impl RowChanges {
    /// A row of that table is about to be changed.
    #[inline]
    pub(crate) fn add(&mut self, table: TableId) {
        debug_assert_ne!(table, TableId(0), "a change in no table");
        self.newest += 1;
        let place = &mut self.places[table.0 as usize % PLACES];
        if place.table != table {
            place.of_others = place.of_others.max(place.number);
            place.table = table;
        }
        debug_assert!(place.number < self.newest && place.of_others < self.newest);
        place.number = self.newest;
    }

    /// Changes, of whichever tables, are undone.
    pub(crate) fn undone(&mut self) {
        self.newest += 1;
        self.undone = self.newest;
        debug_assert!(self.ended < self.undone);
    }

    /// The transaction ends.
    pub(crate) fn ended(&mut self) {
        self.undone();
        self.ended = self.undone;
    }

    /// Moves with each change of that table.
    #[inline]
    pub(crate) fn number(&self, table: TableId) -> u64 {
        let place = &self.places[table.0 as usize % PLACES];
        let number = match place.table == table {
            true => place.number,
            false => place.of_others,
        };
        debug_assert!(number <= self.newest);
        match number > self.ended {
            true => number.max(self.undone),
            false => self.ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RowChanges, PLACES};
    use ferrite_types::TableId;
    use std::collections::HashMap;

    const HERE: TableId = TableId(7);
    /// Shares its place with `HERE`.
    const THERE: TableId = TableId(7 + PLACES as u64);

    #[test]
    fn a_number_moves_with_its_table() {
        let mut changes = RowChanges::default();
        let (here, beside) = (changes.number(HERE), changes.number(TableId(8)));
        changes.add(HERE);
        assert!(changes.number(HERE) > here && changes.number(TableId(8)) == beside);
        let here = changes.number(HERE);
        changes.undone();
        assert!(changes.number(HERE) > here);
        assert_eq!(
            changes.number(TableId(8)),
            beside,
            "nothing of it is undone"
        );
        let here = changes.number(HERE);
        changes.ended();
        assert!(changes.number(HERE) > here && changes.number(TableId(8)) > beside);
    }

    #[test]
    fn a_table_that_shares_its_place_with_a_changed_one_keeps_its_number() {
        let mut changes = RowChanges::default();
        changes.add(HERE);
        let (here, there) = (changes.number(HERE), changes.number(THERE));
        for _ in 0..100 {
            changes.add(THERE);
            assert_eq!(changes.number(HERE), here, "not changed");
        }
        changes.add(HERE);
        assert!(changes.number(HERE) > here && changes.number(THERE) > there);
    }

    /// Whatever is changed in whichever order: a number moves with its table and never goes back.
    #[test]
    fn numbers_move_and_never_go_back() {
        let mut changes = RowChanges::default();
        let mut seen: HashMap<u64, u64> = HashMap::new();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let table = 1 + (state >> 33) % (4 * PLACES as u64);
            if state >> 58 == 0 {
                let changed = changes.places[0];
                let before = changes.number(changed.table);
                changes.undone();
                let is_moved = changes.number(changed.table) > before;
                assert!(is_moved || changed.number <= changes.ended);
            } else if state >> 58 == 1 {
                changes.ended();
            } else {
                changes.add(TableId(table));
                let before = seen.get(&table).copied().unwrap_or(0);
                assert!(changes.number(TableId(table)) > before, "table {table}");
            }
            for other in 1..=4 * PLACES as u64 {
                let (number, last) = (
                    changes.number(TableId(other)),
                    seen.entry(other).or_default(),
                );
                assert!(number >= *last, "table {other} went back");
                *last = number;
            }
        }
    }
}
