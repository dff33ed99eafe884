//! Which pages are in memory, and reading such pages back into the free frames of another life.
//!
//! Ids are hints, as those of `read_ahead`: a page that was freed, or whose id names another page now,
//! is nothing or that page. The pages come in as those read ahead: what is used stays, the
//! others are the first to go. Nothing is dropped for them.
//!
//! Locking: as `read_ahead`.

use crate::ahead_state::together;
use crate::frame::Kind;
use crate::merge_kept::Merging;
use crate::pool::Pool;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::PageId;

/// This part of the pool, one of so many, stays free.
const FREE_SHARE: usize = 16;

impl Pool {
    /// The ids of the pages in memory: inner nodes first, then leaves, hottest first.
    pub fn resident_hottest_first(&self) -> Vec<PageId> {
        let frames = self.frames();
        let mut found: Vec<(u8, PageId)> = Vec::with_capacity(frames.len());
        for frame in frames {
            let rank = match frame.kind() {
                Kind::Inner => 0,
                Kind::Leaf => 1 + frame.coolness(),
                Kind::Free | Kind::Loading => continue,
            };
            // Of one that is used for another page meanwhile the id is as good as any.
            if frame.page() != PageId::NONE {
                found.push((rank, frame.page()));
            }
        }
        found.sort_unstable();
        debug_assert!(found.len() <= frames.len(), "more pages than frames");
        found.into_iter().map(|(_, page)| page).collect()
    }

    /// Reads those of the pages that are on disk only, in the order in which they lie there, many at a
    /// time, as long as there are free frames. Gives the number of pages that came; None: there is no room
    /// for more.
    pub fn warm_up(&self, merging: &mut Merging, pages: &[PageId]) -> Option<usize> {
        let is_short = self.is_short_of_room();
        let mut placed: Vec<(u64, PageId)> = pages
            .iter()
            .filter_map(|page| {
                let at = self.store.directory().get(*page).as_location()?;
                // With little room those that lack changes come a few at a time (`merge_kept`).
                let comes = !is_short || !self.changes.has(*page);
                comes.then_some((at.granule(), *page))
            })
            .collect();
        placed.sort_unstable();
        let limit = self.frames.limit();
        let spare = (limit / FREE_SHARE).max(self.free_target());
        let mut came = 0;
        for some in placed.chunks(together(limit)) {
            let free = self.free_count.load(Ordering::Relaxed);
            if free < spare + some.len() || self.writer.is_stopped() {
                return None;
            }
            let ids = some.iter().map(|(_, page)| *page);
            came += self.read_these(merging, ids);
            kill_point!("buffer.warmed");
        }
        debug_assert!(came <= pages.len(), "{came} of {} pages", pages.len());
        Some(came)
    }
}
