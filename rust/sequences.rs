//! Ragged token sequences, borrowed.

use crate::cancel;
use crate::error::{Error, Result};
use crate::hash::{Hash, RUN};

/// Sequences of token ids: sequence `i` is `tokens[offsets[i]..offsets[i + 1]]`. A view, never a copy.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a> {
    tokens: &'a [i64],
    offsets: &'a [i64],
}

impl<'a> Sequences<'a> {
    /// Checks the offsets: they start at 0, never fall, and end at the number of tokens.
    pub fn new(tokens: &'a [i64], offsets: &'a [i64]) -> Result<Self> {
        let Some((&first, _)) = offsets.split_first() else {
            return Err(Error::input(
                "offsets is empty: give n + 1 offsets for n sequences, starting at 0",
            ));
        };
        if first != 0 {
            return Err(Error::input(format!("offsets[0] is {first}: it must be 0")));
        }
        for (i, pair) in offsets.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(Error::input(format!(
                    "offsets[{}] is {} after {}: offsets must not fall",
                    i + 1,
                    pair[1],
                    pair[0]
                )));
            }
        }
        let last = offsets[offsets.len() - 1];
        if usize::try_from(last) != Ok(tokens.len()) {
            return Err(Error::input(format!(
                "offsets end at {last}, but there are {} tokens: they must be equal",
                tokens.len()
            )));
        }
        if offsets.len() > u32::MAX as usize {
            return Err(Error::Overflow("the number of sequences"));
        }
        Ok(Self { tokens, offsets })
    }

    /// Number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True without any sequence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sequence `i`. The slice is in range because `new` checked the offsets once.
    #[must_use]
    pub fn sequence(&self, i: usize) -> &'a [i64] {
        &self.tokens[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// Length of sequence `i`.
    #[must_use]
    pub fn length(&self, i: usize) -> usize {
        (self.offsets[i + 1] - self.offsets[i]) as usize
    }

    /// Refuses token ids below 0; the same pass reads them into a hash, if one is asked for.
    pub fn refuse_negative(&self, mut hash: Option<&mut Hash>) -> Result<()> {
        for (block, tokens) in self.tokens.chunks(RUN).enumerate() {
            cancel::check_at(block)?;
            // The sign of all together; without a branch, so that it is vectorised.
            let all = match hash.as_deref_mut() {
                Some(hash) => hash.read(tokens),
                None => tokens.iter().fold(0, |all, &token| all | token),
            };
            if all >= 0 {
                continue;
            }
            let at = block * RUN + tokens.iter().position(|&token| token < 0).unwrap_or(0);
            let sequence = self.offsets.partition_point(|&start| start <= at as i64) - 1;
            return Err(Error::input(format!(
                "sequences[{sequence}][{}] is {}: token ids must be at least 0",
                at - self.offsets[sequence] as usize,
                self.tokens[at]
            )));
        }
        Ok(())
    }

    /// All tokens, one sequence after another.
    #[must_use]
    pub fn tokens(&self) -> &'a [i64] {
        self.tokens
    }

    /// The n + 1 offsets.
    #[must_use]
    pub fn offsets(&self) -> &'a [i64] {
        self.offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_negative_token() {
        let mut tokens = vec![7; 10_000];
        let offsets = [0, 0, 3, 3, 9_000, 10_000];
        let refused = |tokens: &[i64]| {
            let sequences = Sequences::new(tokens, &offsets).unwrap();
            sequences
                .refuse_negative(None)
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refused(&tokens), None);
        for (at, place) in [
            (9_999, "[4][999]"),
            (9_000, "[4][0]"),
            (8_999, "[3][8996]"),
            (0, "[1][0]"),
        ] {
            tokens[at] = i64::MIN;
            let message = format!(
                "sequences{place} is {}: token ids must be at least 0",
                i64::MIN
            );
            assert_eq!(refused(&tokens), Some(message));
        }
    }

    #[test]
    fn refuses_offsets_that_lie() {
        let tokens = [1, 2, 3];
        for offsets in [&[][..], &[1, 3], &[0, 2, 1, 3], &[0, 4], &[0, 2]] {
            assert!(matches!(
                Sequences::new(&tokens, offsets),
                Err(Error::Input(_))
            ));
        }
        let sequences = Sequences::new(&tokens, &[0, 0, 2, 3]).unwrap();
        assert_eq!(
            (sequences.len(), sequences.sequence(1), sequences.length(0)),
            (3, &[1, 2][..], 0)
        );
    }
}
