//! Faults in words: the first of them, and how many there are.
//!
//! Invariant: memory does not grow with the damage. Locking: none.

/// The first faults that were found, and the number of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    kept: Vec<String>,
    count: u64,
}

impl Faults {
    /// So many are kept in words.
    pub const KEPT: usize = 100;

    /// One more.
    pub fn push(&mut self, text: String) {
        self.push_with(|| text);
    }

    /// One more, whose words are made only if they are kept.
    pub fn push_with(&mut self, text: impl FnOnce() -> String) {
        if self.kept.len() < Faults::KEPT {
            self.kept.push(text());
        }
        self.count += 1;
        debug_assert!(self.kept.len() as u64 <= self.count, "more than there are");
    }

    /// So many more, of which nobody has the words.
    pub fn push_unnamed(&mut self, count: u64) {
        self.count += count;
    }

    /// Those of another behind these.
    pub fn append(&mut self, other: Faults) {
        self.push_unnamed(other.unnamed());
        other.kept.into_iter().for_each(|text| self.push(text));
    }

    /// The first ones.
    pub fn texts(&self) -> &[String] {
        &self.kept
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Of them, those that are not among the first ones.
    pub fn unnamed(&self) -> u64 {
        debug_assert!(self.kept.len() as u64 <= self.count, "more than there are");
        self.count - self.kept.len() as u64
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<String> for Faults {
    fn from_iter<T: IntoIterator<Item = String>>(texts: T) -> Faults {
        let mut faults = Faults::default();
        texts.into_iter().for_each(|text| faults.push(text));
        faults
    }
}

impl Extend<String> for Faults {
    fn extend<T: IntoIterator<Item = String>>(&mut self, texts: T) {
        texts.into_iter().for_each(|text| self.push(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_are_kept() {
        let mut faults: Faults = (0..3).map(|n| n.to_string()).collect();
        faults.append((3..150).map(|n| n.to_string()).collect());
        faults.push_with(|| unreachable!("nobody reads it"));
        faults.push_unnamed(9);
        assert_eq!((faults.count(), faults.unnamed()), (160, 60));
        let numbers: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(faults.texts(), numbers);
        let mut all = Faults::default();
        assert!(all.is_empty());
        all.append(faults);
        assert_eq!((all.count(), all.texts().len()), (160, 100));
    }
}
