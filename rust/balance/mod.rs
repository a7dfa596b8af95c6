//! Deals items into parts: as few as a cap allows, and the part with the most work as small as can
//! be found, beside a bound of both.
//!
//! No clock and no hash order: equal input gives equal parts everywhere.

mod bounds;
mod differencing;
mod fill;
mod improve;
#[cfg(test)]
mod tests;

use crate::cancel;
use crate::error::{Error, Result};
use crate::fields::result;

pub(crate) use bounds::fewest_parts;
use improve::Parts;

/// Items times parts up to which the differencing method runs: a second at most.
const MOST_DIFFERENCED: usize = 40_000_000;

result! {
/// Items dealt into parts. P parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balance as "Balance" {
    /// The items of each part, ascending; parts by their first item.
    pub parts: Vec<Vec<u32>>,
    /// The most work of a part.
    pub largest: i64,
    /// No way to make as many parts has a smaller `largest`.
    pub bound: i64,
    /// No way to keep the cap has fewer parts, those of oversized items included.
    pub fewest: usize,
    /// Items longer than the cap; each is a part of its own.
    pub oversized: Vec<u32>,
}
}

/// What is to be dealt.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    /// What the cap counts.
    pub lengths: &'a [i64],
    /// What is balanced.
    pub work: &'a [i64],
}

/// How it is to be dealt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Most length of a part.
    pub cap: Option<i64>,
    /// Least number of parts; without a cap exactly this many.
    pub parts: Option<usize>,
    /// The number of parts is a multiple of this.
    pub multiple_of: usize,
    /// Every part has as many items as every other.
    pub equal_size: bool,
}

/// Deals items into parts.
pub fn balance(items: Items<'_>, rules: Rules) -> Result<Balance> {
    check(items, rules)?;
    let count = items.lengths.len();
    let cap = rules.cap.unwrap_or(i64::MAX);
    let (rest, oversized): (Vec<u32>, Vec<u32>) =
        (0..count as u32).partition(|&i| items.lengths[i as usize] <= cap);
    if count == 0 {
        return Ok(Balance::default());
    }
    let problem = Problem {
        items,
        cap,
        rest,
        equal: rules.equal_size,
    };
    let fewest = oversized.len() + problem.fewest_parts();
    let least = rules
        .parts
        .unwrap_or(1)
        .max(fewest)
        .next_multiple_of(rules.multiple_of);
    let packings = if rules.equal_size || rules.cap.is_none() {
        Vec::new()
    } else {
        fill::packings(&problem)
    };
    let most = if rules.cap.is_some() {
        count
    } else {
        least.min(count)
    };
    let numbers: Vec<usize> = (least..=most).step_by(rules.multiple_of).collect();
    let deal = |parts: usize| match parts.checked_sub(oversized.len()) {
        Some(own) => problem.deal(own, &packings),
        None => Ok(None),
    };
    // The packings have parts enough at `high`; what needs fewer is found by bisection.
    let sure = packings
        .iter()
        .map(|packing| packing.len() + oversized.len())
        .min();
    let high = sure.map(|sure| numbers.partition_point(|&parts| parts < sure));
    let mut found = None;
    if let Some(mut high) = high.filter(|&high| high < numbers.len()) {
        let (mut low, mut middle) = (0, 0);
        while low < high {
            match deal(numbers[middle])? {
                Some(made) => (found, high) = (Some(made), middle),
                None => low = middle + 1,
            }
            middle = usize::midpoint(low, high);
        }
        if found.is_none() {
            found = deal(numbers[high])?;
        }
    } else {
        for &parts in &numbers {
            cancel::check()?;
            found = deal(parts)?;
            if found.is_some() {
                break;
            }
        }
    }
    if let Some(found) = found {
        return Ok(problem.answer(found, &oversized, fewest));
    }
    Err(no_split(count, least, rules))
}

fn check(items: Items<'_>, rules: Rules) -> Result<()> {
    for (name, values) in [("lengths", items.lengths), ("work", items.work)] {
        if let Some(i) = values.iter().position(|&value| value < 0) {
            let message = format!("{name}[{i}] is {}: it must be at least 0", values[i]);
            return Err(Error::input(message));
        }
        let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
        if sum > i128::from(i64::MAX) {
            return Err(Error::Overflow(if name == "work" {
                "the work of all items"
            } else {
                "the length of all items"
            }));
        }
    }
    let count = items.lengths.len();
    if items.work.len() != count {
        let given = items.work.len();
        let message = format!("work has {given} entries for {count} lengths: give one each");
        return Err(Error::input(message));
    }
    match rules.parts {
        Some(0) => Err(Error::input("parts is 0: it must be at least 1")),
        None if rules.cap.is_none() => {
            Err(Error::input("parts is not given: give parts, cap or both"))
        }
        Some(parts) if parts > count => Err(Error::input(format!(
            "parts is {parts} for {count} lengths: each part needs one"
        ))),
        _ => Ok(()),
    }
}

fn no_split(count: usize, least: usize, rules: Rules) -> Error {
    let why = match rules {
        Rules {
            equal_size: true,
            cap: None,
            ..
        } => "as many in each part",
        Rules {
            equal_size: true, ..
        } => "as many in each part, none above the cap",
        _ => "one in each part at least",
    };
    let more = if rules.cap.is_some() { " or more" } else { "" };
    let multiple = match rules.multiple_of {
        1 => String::new(),
        multiple => format!(", a multiple of {multiple}"),
    };
    Error::input(format!(
        "lengths has {count} entries, which {least} parts{more}{multiple} cannot hold: {why}"
    ))
}

/// The items that are not oversized.
struct Problem<'a> {
    items: Items<'a>,
    cap: i64,
    rest: Vec<u32>,
    equal: bool,
}

impl Problem<'_> {
    fn length(&self, item: u32) -> i64 {
        self.items.lengths[item as usize]
    }

    fn work(&self, item: u32) -> i64 {
        self.items.work[item as usize]
    }

    fn fewest_parts(&self) -> usize {
        let mut lengths: Vec<i64> = self.rest.iter().map(|&item| self.length(item)).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        bounds::fewest_parts(&lengths, self.cap)
    }

    /// The least `largest` of this many parts that can be expected.
    fn bound(&self, parts: usize) -> i64 {
        let mut work: Vec<i64> = self.rest.iter().map(|&item| self.work(item)).collect();
        work.sort_unstable_by(|a, b| b.cmp(a));
        bounds::largest(&work, parts, self.equal)
    }

    /// The best of several ways to make exactly this many parts, or none that keeps the cap.
    fn deal(&self, parts: usize, packings: &[Vec<Vec<u32>>]) -> Result<Option<Parts<'_>>> {
        let count = self.rest.len();
        if parts > count || (parts == 0) != (count == 0) {
            return Ok(None);
        }
        if parts == count || parts == 0 {
            let alone = self.rest.iter().map(|&item| vec![item]).collect();
            return Ok(Some(Parts::new(self, alone)));
        }
        // An oversized item is alone, so that parts of equal size all are.
        if self.equal && (count != self.items.lengths.len() || count % parts != 0) {
            return Ok(None);
        }
        let bound = self.bound(parts);
        let mut best: Option<Parts<'_>> = None;
        let mut offer = |made: Vec<Vec<u32>>| -> Result<bool> {
            let mut made = Parts::new(self, made);
            if made.keep_cap()? {
                made.level(bound)?;
                if best
                    .as_ref()
                    .is_none_or(|best| made.largest() < best.largest())
                {
                    best = Some(made);
                }
            }
            Ok(best.as_ref().is_some_and(|best| best.largest() <= bound))
        };
        let mut done = false;
        if self.equal || count.saturating_mul(parts) <= MOST_DIFFERENCED {
            let by = |value: &dyn Fn(u32) -> i64| {
                let values: Vec<(i64, u32)> = self.rest.iter().map(|&i| (value(i), i)).collect();
                differencing::deal(values, parts, self.equal)
            };
            done = offer(by(&|item| self.work(item))?)?;
            if !done && self.items.work != self.items.lengths {
                done = offer(by(&|item| self.length(item))?)?;
            }
        }
        if !done && !self.equal {
            if let Some(made) = fill::least_loaded(self, parts) {
                done = offer(made)?;
            }
            for packing in packings.iter().filter(|packing| packing.len() <= parts) {
                if !done {
                    done = offer(fill::split(self, packing.clone(), parts))?;
                }
            }
        } else if !done {
            offer(fill::dealt_in_turn(self, parts))?;
        }
        Ok(best)
    }

    fn answer(&self, found: Parts<'_>, oversized: &[u32], fewest: usize) -> Balance {
        let most = oversized
            .iter()
            .map(|&item| self.work(item))
            .max()
            .unwrap_or(0);
        let mut parts = found.items;
        let bound = if parts.is_empty() {
            0
        } else {
            self.bound(parts.len())
        };
        let largest = found.work.iter().copied().max().unwrap_or(0).max(most);
        parts.extend(oversized.iter().map(|&item| vec![item]));
        for part in &mut parts {
            part.sort_unstable();
        }
        parts.sort_unstable_by_key(|part| part[0]);
        Balance {
            largest,
            bound: bound.max(most),
            fewest,
            oversized: oversized.to_vec(),
            parts,
        }
    }
}
