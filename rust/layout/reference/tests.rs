use super::*;
use crate::layout::tests::any_rows;
use crate::layout::trees::{Dice, tree};

#[test]
fn members_by_span_are_what_a_walk_gives() {
    let mut dice = Dice(23);
    for _ in 0..300 {
        let tree = tree(&any_rows(&mut dice));
        let forest = Forest::new(&tree, 64).unwrap();
        let mut keys = Keys::default();
        keys.reserve(forest.len());
        let mut spans = spans::Spans::new(&forest, &keys);
        let mut least = 1;
        loop {
            let flags = forest.by_span(least);
            assert_eq!(spans.words, bits::words(&flags));
            assert_eq!(spans.hash, keys.hash(&spans.words));
            assert_eq!(spans.measures(), forest.measure(&flags));
            let near = |i: usize| {
                let mut above = forest.above(i);
                while let Some(p) = above.filter(|&p| !flags[p]) {
                    above = forest.above(p);
                }
                above.map_or(0, |p| forest.end[p])
            };
            let chosen = (0..forest.len()).filter(|&i| flags[i]);
            let shortest = chosen.map(|i| forest.end[i] - near(i)).min();
            assert_eq!(spans.next(), Ok(shortest.is_some()));
            match shortest {
                Some(span) => least = span + 1,
                None => break,
            }
        }
    }
}
