//! Looks at the other tables of foreign keys, and what follows from them
//! (`plugin/ha_ferrite_cascade.cc`). The row is written before.

use crate::client::Client;
use crate::family::{Column, COLUMNS};
use crate::foreign::{change_of, Change, Refusal, Step};
use crate::model::TableNo;
use crate::rows::{Row, Shape, NULL};
use ferrite_engine::{
    Action, Cursor, Link, Links, Peer, ReadMode, Role, SeekMode, Table, WaitMode,
};
use ferrite_sync::{mutant, thread, Arc};
use ferrite_types::Error;

/// Steps of a cascade below the statement's own table.
const MAX_DEPTH: u32 = 14;

/// What to look for in the link's other table; None: a column is NULL.
fn key_there(link: &Link, shape: &Shape, n: u64, row: &Row) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for part in &link.parts {
        let value = COLUMNS[usize::from(part.own_column)].of(n, row)?;
        key.extend(shape.part(value, part.other.nullable, part.other.descending));
    }
    Some(key)
}

impl Client {
    pub(crate) fn look(&mut self, change: &Change, step: &Step<'_>) -> Result<(), Refusal> {
        self.find_parents(change)?;
        self.find_children(change, step)
    }

    fn links(&self, table: &Table) -> Result<Arc<Links>, Error> {
        match table.links_version() {
            0 => Ok(Arc::default()),
            _ => self.engine.dict().links(table),
        }
    }

    /// Another table was dropped or emptied in the middle of a look at it.
    fn wait_for_ddl(&self) -> Result<(), Error> {
        thread::sleep_ms(1);
        match self.environment.is_killed(self.thd) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    // ---- parents ---------------------------------------------------------------------------

    fn find_parents(&mut self, change: &Change) -> Result<(), Refusal> {
        let Some(new) = change.new else {
            return Ok(());
        };
        'again: loop {
            let links = self.links(&change.table)?;
            for link in &links.outgoing {
                let moved = match mutant!("foreign.moved_entry_not_looked_for") {
                    true => change.changes(link),
                    false => link
                        .own_index()
                        .is_none_or(|index| change.moves_entry(index)),
                };
                if !moved {
                    continue;
                }
                let Some(key) = key_there(link, &change.shape, change.m, &new) else {
                    continue;
                };
                let there = match &link.peer {
                    Some(peer) => self.has_parent(link, peer, &key),
                    // Without it the link does not tell the columns.
                    None if self.refers_to_nothing(change, link, &new) => Ok(true),
                    None => Ok(false),
                };
                match there {
                    Ok(true) => {}
                    Ok(false) => return Err(Refusal::NoParent),
                    Err(Error::TableChanged) => {
                        self.wait_for_ddl()?;
                        continue 'again;
                    }
                    Err(e) => return Err(e.into()),
                }
            }
            return Ok(());
        }
    }

    fn refers_to_nothing(&self, change: &Change, link: &Link, new: &Row) -> bool {
        let column = |name: &str| COLUMNS.into_iter().find(|column| column.name() == name);
        let mut own = link.key.columns.iter().map(|(own, _)| column(own));
        own.any(|column| column.is_none_or(|column| column.of(change.m, new).is_none()))
    }

    fn has_parent(&mut self, link: &Link, peer: &Peer, key: &[u8]) -> Result<bool, Error> {
        let since = self.environment.model().tick();
        let there = self.s().is_there(peer, key, Role::Parent);
        match &there {
            Ok(false) => self.check_refusal(link, peer, key, since),
            Err(Error::LockTimeout | Error::Deadlock) => {
                self.check_wait(&link.other, key, since);
            }
            _ => {}
        }
        there
    }

    /// No parent was there all the time.
    fn check_refusal(&self, link: &Link, peer: &Peer, key: &[u8], since: u64) {
        self.environment.resolve(&self.engine);
        let model = self.environment.model();
        let Some(no) = model.named(&link.other) else {
            return;
        };
        let t = model.table(no);
        if t.ddl.is_some() {
            return;
        }
        for (n, versions) in &t.rows {
            let Some((last, row)) = versions.last().and_then(|v| Some((v, v.row?))) else {
                continue;
            };
            let public = model.txns.get(&last.by).and_then(|t| t.public);
            let there = t.shape.index_key(peer.index_no as usize, *n, &row);
            let own = self.tx.writes.contains_key(&(no, *n));
            assert!(
                own || public.unwrap_or(0) >= since || !there.starts_with(key),
                "{} has no parent, and row {n} of {} is there all the time",
                link.key.name,
                t.name
            );
        }
    }

    // ---- children --------------------------------------------------------------------------

    fn find_children(&mut self, change: &Change, step: &Step<'_>) -> Result<(), Refusal> {
        let Some(old) = change.old else {
            return Ok(());
        };
        loop {
            let links = self.links(&change.table)?;
            let touched = |link: &&Link| change.new.is_none() || change.changes(link);
            let key = |link| Some((link, key_there(link, &change.shape, change.n, &old)?));
            let mut keys = links.incoming.iter().filter(touched).filter_map(key);
            let result = keys.try_for_each(|(link, key)| self.find_child(change, link, &key, step));
            match result {
                Err(Refusal::LinksChanged) if step.depth == 0 => self.wait_for_ddl()?,
                Err(Refusal::LinksChanged) => return Err(Refusal::NotOpen),
                result => return result,
            }
        }
    }

    fn find_child(
        &mut self,
        change: &Change,
        link: &Link,
        key: &[u8],
        step: &Step<'_>,
    ) -> Result<(), Refusal> {
        let Some(peer) = &link.peer else {
            return Err(Refusal::Referenced);
        };
        match self.s().is_there(peer, key, Role::Child) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(Error::TableChanged) => return Err(Refusal::LinksChanged),
            Err(e) => return Err(e.into()),
        }
        let action = match change.new {
            Some(_) => link.key.on_update,
            None => link.key.on_delete,
        };
        match action {
            Action::Restrict | Action::NoAction => Err(Refusal::Referenced),
            Action::Cascade | Action::SetNull => self.cascade(change, link, peer, key, step),
        }
    }

    fn cascade(
        &mut self,
        change: &Change,
        link: &Link,
        peer: &Peer,
        key: &[u8],
        step: &Step<'_>,
    ) -> Result<(), Refusal> {
        let named = self.environment.model().named(&link.other);
        let open = |no: TableNo| Some((no, self.tx.tables.get(&no)?.clone()));
        let (no, table) = named.and_then(open).ok_or(Refusal::NotOpen)?;
        let removes = change.new.is_none() && link.key.on_delete == Action::Cascade;
        let next = Step {
            up: Some(step),
            no,
            updates: !removes,
            depth: step.depth + 1,
        };
        if next.depth > MAX_DEPTH {
            return Err(Refusal::TooDeep);
        }
        if !removes && step.updates_above(no) {
            return Err(Refusal::Referenced);
        }
        let shape = self.environment.model().table(no).shape.clone();
        let number = peer.index_no as usize;
        let mut cursor = Cursor::new(&table, number, ReadMode::Exclusive, WaitMode::Wait);
        let mut found = cursor.seek(self.s(), key, SeekMode::Exact, false);
        loop {
            let n = match found {
                Ok(row) => shape.number_of(row.pk).expect("a key of ours"),
                Err(Error::NotFound) => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            let payload = match number {
                0 => cursor.current()?.payload.to_vec(),
                _ => cursor.fetch_row(self.s())?.payload.to_vec(),
            };
            let row = self.now(no, n);
            let row = row.filter(|row| shape.is_payload_of(&payload, row));
            let row = row.unwrap_or_else(|| panic!("row {n} of table {no} is not what follows"));
            let new = match removes {
                true => (n, None),
                false => {
                    let followed = follow(link, change, n, &row);
                    let (m, new) = followed.ok_or(Refusal::Referenced)?;
                    (m, Some(new))
                }
            };
            if new != (n, Some(row)) {
                let stamp = self.environment.model().new_stamp();
                let new = (new.0, new.1.map(|row| Row { stamp, ..row }));
                let follows = change_of(no, &table, &shape, (n, Some(row)), new);
                self.change_row(&follows, &next)?;
            }
            found = cursor.next_same(self.s(), key);
        }
    }

    // ---- who waits for whom ----------------------------------------------------------------

    /// Tells everybody which entries this transaction takes away or brings.
    pub(crate) fn disturbs(&mut self, change: &Change) {
        let mut entries = Vec::new();
        for index_no in 0..=change.shape.secondary.len() {
            if change.moves_entry(index_no) {
                let key = |n: u64, row: &Row| change.shape.index_key(index_no, n, row);
                entries.extend(change.old.map(|row| key(change.n, &row)));
                entries.extend(change.new.map(|row| key(change.m, &row)));
            }
        }
        let serial = self.tx.serial;
        self.environment.disturbs(serial, change.no, entries);
    }

    /// Somebody else has taken away or brought an entry that begins so.
    fn check_wait(&self, parent: &str, key: &[u8], since: u64) {
        let model = self.environment.model();
        let Some(no) = model.named(parent) else {
            return;
        };
        // What was before is not known of them, or not here.
        let unknown = self.environment.plan.extra.temporary;
        let unknown = unknown || model.txns.values().any(|t| t.restored);
        drop(model);
        let rightly = self
            .environment
            .is_disturbed(self.tx.serial, no, key, since);
        assert!(
            rightly || unknown,
            "transaction {} has waited for a row of {parent} whose key nobody touches",
            self.tx.serial
        );
    }
}

/// The number and state of a child after its parent has changed; None: it cannot have the value.
fn follow(link: &Link, change: &Change, n: u64, row: &Row) -> Option<(u64, Row)> {
    let (mut m, mut new) = (n, *row);
    let action = match change.new {
        Some(_) => link.key.on_update,
        None => link.key.on_delete,
    };
    for part in &link.parts {
        let value = match (action, &change.new) {
            (Action::Cascade, Some(parent)) => {
                COLUMNS[usize::from(part.own_column)].of(change.m, parent)
            }
            _ => None,
        };
        let nullable = part.other.nullable;
        match COLUMNS[usize::from(part.other_column)] {
            Column::Id => m = value?,
            Column::K if value.is_some() || nullable => {
                new.k = value.unwrap_or(NULL);
            }
            Column::K => return None,
            Column::U => new.u = value?,
        }
    }
    Some((m, new))
}
