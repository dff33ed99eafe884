//! The state of an entry before a change becomes a version for those who may read it.
//!
//! Locking: who changes an entry holds its leaf's latch exclusively; versions are read without.

use crate::log_records::undo::Prior;
use crate::state::engine::Engine;
use ferrite_tree::record::Header;
use ferrite_txn::NewVersion;
use ferrite_types::{IndexId, Result, TxnId, VersionAddr};

impl Engine {
    /// Keeps the present state for those who need it and returns the new header's version
    /// address. A second change by the same transaction needs no version of its own, since
    /// nobody sees between; but the one that is there is told from the new value on.
    pub(crate) fn version_for_change(
        &self,
        now: &Header,
        txn: TxnId,
        index: IndexId,
        value: &[u8],
        new_value: &[u8],
        prior: &Prior<'_>,
    ) -> Result<VersionAddr> {
        debug_assert!(!txn.is_frozen(), "a change of no transaction");
        if now.txn == txn {
            return self.rebase(now.version, value, new_value);
        }
        let settled = now.txn.is_frozen() || self.txns.visible_to_all(now.txn);
        if (settled && now.deleted)
            || (ferrite_sync::mutant!("entry.forget_version") && self.txns.last_csn().0 % 8 == 0)
        {
            // For everybody the row was not there: no version says that, too.
            return Ok(VersionAddr::NONE);
        }
        let next = if settled {
            self.versions.count_single();
            VersionAddr::NONE
        } else {
            self.prune_chain(now, value)
        };
        debug_assert!(
            next.is_none() || !now.version.is_none(),
            "a chain out of nothing"
        );
        let version = NewVersion {
            begin: now.txn,
            end: txn,
            next,
            flags: u8::from(now.deleted),
            keep_head: prior.keep_head,
            keep_tail: prior.keep_tail,
            body: prior.mid,
            index,
        };
        Ok(self.versions.add(version))
    }

    /// Drops the versions behind `now` that no snapshot needs; returns where the rest begins.
    /// The caller holds the leaf exclusively and will put the present state in front.
    fn prune_chain(&self, now: &Header, value: &[u8]) -> VersionAddr {
        debug_assert!(
            !now.txn.is_frozen(),
            "everybody sees the state after those versions"
        );
        let walk = self.versions.walk();
        let (start, pruned) = walk.prune_for_update(&self.txns, now.version, value);
        self.versions.count_chain(&pruned);
        start
    }

    /// The version at `addr`, told as a difference to `to` instead of `from`.
    pub(crate) fn rebase(&self, addr: VersionAddr, from: &[u8], to: &[u8]) -> Result<VersionAddr> {
        if addr.is_none() || from == to {
            return Ok(addr);
        }
        let walk = self.versions.walk();
        walk.rebase(addr, from, to)
    }

    /// Where the chain goes on after a version.
    pub(crate) fn next_version(&self, addr: VersionAddr) -> Result<VersionAddr> {
        assert!(!addr.is_none(), "no version has no next");
        let mut body = Vec::new();
        let head = self.versions.read(addr, &mut body)?;
        Ok(head.map_or(VersionAddr::NONE, |head| head.next))
    }
}
