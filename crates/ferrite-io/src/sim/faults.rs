//! What can be made to go wrong, once, at a chosen call.

/// A fault of the simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A sync fails; a part of what it should have made durable is, the rest never will be.
    FailSync,
    /// The same because the disk turns out to be full: a file system that finds it out late.
    FullSync,
    /// A write fails; any part of it may have happened.
    FailWrite,
    /// A read fails.
    FailRead,
    /// A write or allocation finds the disk full, whatever the capacity.
    Full,
    /// A read returns its bytes with one bit turned (the disk still holds the right ones).
    FlipBit,
    /// A read returns bytes from elsewhere in the file.
    MisdirectedRead,
    /// A read returns bytes from before the file's last sync (needs
    /// [`keep_stale`](super::SimStorage::keep_stale); without it, the durable ones).
    StaleRead,
    /// A write reports success and does nothing.
    LostWrite,
    /// A write lands elsewhere in the file.
    MisdirectedWrite,
}

/// The kinds of calls that faults and hooks can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// `read_at`.
    Read,
    /// `write_at`.
    Write,
    /// `sync_data`.
    Sync,
    /// `allocate`, `truncate` or `punch_hole`.
    Space,
    /// A change of names.
    Name,
    /// `sync_dir`.
    SyncDir,
}

impl Fault {
    fn hits(self, op: IoOp) -> bool {
        match self {
            Fault::FailSync => matches!(op, IoOp::Sync | IoOp::SyncDir),
            Fault::FullSync => op == IoOp::Sync,
            Fault::FailWrite | Fault::LostWrite | Fault::MisdirectedWrite => op == IoOp::Write,
            Fault::FailRead | Fault::FlipBit | Fault::MisdirectedRead | Fault::StaleRead => {
                op == IoOp::Read
            }
            Fault::Full => matches!(op, IoOp::Write | IoOp::Space),
        }
    }
}

/// One call, as a hook sees it, before it happens.
#[derive(Clone, Copy, Debug)]
pub struct IoEvent<'a> {
    /// What is called.
    pub op: IoOp,
    /// The file's name (for a rename, the old one; for `sync_dir`, empty).
    pub name: &'a str,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub len: u64,
}

struct Planned {
    fault: Fault,
    /// Only files whose name begins so.
    prefix: String,
    /// Matching calls left until it happens (1 = the next one).
    left: u64,
    /// It happens at each matching call, until all are forgotten.
    lasts: bool,
}

/// The faults that are still to come.
#[derive(Default)]
pub struct Plan {
    planned: Vec<Planned>,
    happened: u64,
}

impl Plan {
    pub fn add(&mut self, fault: Fault, nth: u64, prefix: &str) {
        self.planned.push(Planned {
            fault,
            prefix: prefix.to_owned(),
            left: nth.max(1),
            lasts: false,
        });
    }

    pub fn add_lasting(&mut self, fault: Fault, prefix: &str) {
        self.add(fault, 1, prefix);
        if let Some(last) = self.planned.last_mut() {
            last.lasts = true;
        }
    }

    pub fn clear(&mut self) {
        self.planned.clear();
    }

    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// The fault of this call, if one is due.
    pub fn next(&mut self, event: &IoEvent<'_>) -> Option<Fault> {
        let mut due = None;
        for (i, p) in self.planned.iter_mut().enumerate() {
            if p.fault.hits(event.op) && event.name.starts_with(&p.prefix) {
                p.left = p.left.saturating_sub(1);
                if p.left == 0 && due.is_none() {
                    due = Some(i);
                }
            }
        }
        self.happened += u64::from(due.is_some());
        match &mut self.planned[due?] {
            Planned {
                lasts: true,
                left,
                fault,
                ..
            } => {
                *left = 1;
                Some(*fault)
            }
            _ => Some(self.planned.remove(due?).fault),
        }
    }
}
