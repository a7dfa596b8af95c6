use proptest::prelude::*;

use super::*;

fn dealt(lengths: &[i64], work: &[i64], rules: Rules) -> Balance {
    balance(Items { lengths, work }, rules).unwrap()
}

const ANY: Rules = Rules {
    cap: None,
    parts: None,
    multiple_of: 1,
    equal_size: false,
};

/// The parts hold each item once; the cap holds but for oversized items.
fn check_parts(made: &Balance, lengths: &[i64], work: &[i64], rules: Rules) {
    let mut seen: Vec<u32> = made.parts.concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
    let sum = |part: &[u32], of: &[i64]| part.iter().map(|&i| of[i as usize]).sum::<i64>();
    for part in &made.parts {
        assert!(!part.is_empty());
        let over = sum(part, lengths) > rules.cap.unwrap_or(i64::MAX);
        assert!(!over || (part.len() == 1 && made.oversized.contains(&part[0])));
        assert!(!rules.equal_size || part.len() == made.parts[0].len());
    }
    let most = made.parts.iter().map(|part| sum(part, work)).max();
    assert_eq!(made.largest, most.unwrap_or(0));
    assert!(made.bound <= made.largest);
    assert!(made.fewest <= made.parts.len());
    assert_eq!(made.parts.len() % rules.multiple_of, 0);
}

/// The least (parts, largest) over every way of dealing.
fn best(lengths: &[i64], work: &[i64], rules: Rules) -> Option<(usize, i64)> {
    fn deal(
        at: usize,
        parts: &mut Vec<Vec<usize>>,
        most: usize,
        seen: &mut dyn FnMut(&[Vec<usize>]),
    ) {
        if at == most {
            return seen(parts);
        }
        for part in 0..parts.len() {
            parts[part].push(at);
            deal(at + 1, parts, most, seen);
            parts[part].pop();
        }
        parts.push(vec![at]);
        deal(at + 1, parts, most, seen);
        parts.pop();
    }
    let mut found = None;
    deal(0, &mut Vec::new(), lengths.len(), &mut |parts| {
        let sum = |part: &[usize], of: &[i64]| part.iter().map(|&i| of[i]).sum::<i64>();
        let cap = rules.cap.unwrap_or(i64::MAX);
        let least = rules.parts.unwrap_or(1).next_multiple_of(rules.multiple_of);
        let right = parts.len() % rules.multiple_of == 0
            && if rules.cap.is_some() {
                parts.len() >= least
            } else {
                parts.len() == least
            };
        let fits = |part: &Vec<usize>| part.len() == 1 || sum(part, lengths) <= cap;
        let equal = !rules.equal_size || parts.iter().all(|part| part.len() == parts[0].len());
        if right && equal && parts.iter().all(fits) {
            let most = parts.iter().map(|part| sum(part, work)).max().unwrap_or(0);
            let one = (parts.len(), most);
            found = Some(found.map_or(one, |best: (usize, i64)| best.min(one)));
        }
    });
    found
}

proptest! {
    #[test]
    fn small_dealings_are_near_the_best(
        items in prop::collection::vec((0_i64..40, 0_i64..40), 1..8),
        cap in prop::option::of(20_i64..80),
        least in 1_usize..4,
        multiple_of in 1_usize..3,
        equal_size: bool,
        by_length: bool,
    ) {
        let lengths: Vec<i64> = items.iter().map(|item| item.0).collect();
        let work: Vec<i64> = if by_length { lengths.clone() } else { items.iter().map(|item| item.1).collect() };
        let parts = Some(least.min(items.len()));
        let rules = Rules { cap, parts, multiple_of, equal_size };
        let best = best(&lengths, &work, rules);
        match balance(Items { lengths: &lengths, work: &work }, rules) {
            Ok(made) => {
                check_parts(&made, &lengths, &work, rules);
                let (fewest, largest) = best.expect("a dealing was found");
                prop_assert!(made.fewest <= fewest.max(1));
                prop_assert_eq!(made.parts.len(), fewest);
                prop_assert!(made.bound <= largest, "{} {}", made.bound, largest);
            }
            Err(Error::Input(_)) => prop_assert!(best.is_none(), "{best:?}"),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn an_oversized_item_stands_alone() {
    let rules = Rules {
        cap: Some(10),
        ..ANY
    };
    let lengths = [15, 3, 3, 3, 20, 3];
    let made = dealt(&lengths, &lengths, rules);
    check_parts(&made, &lengths, &lengths, rules);
    assert_eq!((made.parts.len(), made.oversized), (4, vec![0, 4]));
}

#[test]
fn hostile_items_end() {
    let many = vec![1; 100_000];
    for (cap, parts) in [
        (Some(100_000), 1),
        (Some(1), 100_000),
        (Some(3), 33_334),
        (None, 1_000),
    ] {
        let rules = Rules {
            cap,
            parts: cap.is_none().then_some(parts),
            ..ANY
        };
        let made = dealt(&many, &many, rules);
        assert_eq!((made.parts.len(), made.largest), (parts, made.bound));
    }
    let nothing = vec![0; 1_000];
    let made = dealt(
        &nothing,
        &nothing,
        Rules {
            parts: Some(7),
            ..ANY
        },
    );
    check_parts(&made, &nothing, &nothing, ANY);
    assert_eq!(made.parts.len(), 7);
    let made = dealt(
        &[],
        &[],
        Rules {
            cap: Some(1),
            ..ANY
        },
    );
    assert!(made.parts.is_empty());
}
