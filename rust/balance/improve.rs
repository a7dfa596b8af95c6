//! Moves and swaps between two parts: first until the cap is kept, then until the largest part
//! gets no smaller.

use std::cmp::Reverse;

use super::Problem;
use crate::cancel;
use crate::error::Result;

/// Exchanges looked at, for the cap and for the largest part each.
const MOST_LOOKS: usize = 30_000;
/// Parts with the least work that an exchange of the largest tries.
const PARTNERS: usize = 16;
/// Items of a partner tried for one of the largest part, nearest to the ideal first.
const NEAR: usize = 4;

/// A dealing, with the sums of each part. The items of a part are by decreasing work.
pub(super) struct Parts<'a> {
    problem: &'a Problem<'a>,
    pub(super) items: Vec<Vec<u32>>,
    pub(super) work: Vec<i64>,
    length: Vec<i64>,
}

/// An item of part `from` goes to part `to`, and one may come back: positions in both.
#[derive(Clone, Copy)]
struct Exchange {
    from: usize,
    to: usize,
    there: usize,
    back: Option<usize>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, mut items: Vec<Vec<u32>>) -> Self {
        for part in &mut items {
            part.sort_unstable_by_key(|&item| (Reverse(problem.work(item)), item));
        }
        let sum = |of: &dyn Fn(u32) -> i64| {
            items
                .iter()
                .map(|part| part.iter().map(|&i| of(i)).sum())
                .collect()
        };
        let (work, length) = (sum(&|i| problem.work(i)), sum(&|i| problem.length(i)));
        Self {
            problem,
            items,
            work,
            length,
        }
    }

    pub(super) fn largest(&self) -> i64 {
        self.work.iter().copied().max().unwrap_or(0)
    }

    fn over(&self, length: i64) -> i64 {
        (length - self.problem.cap).max(0)
    }

    /// Work and length of both parts after an exchange: from, to.
    fn after(&self, exchange: Exchange) -> ([i64; 2], [i64; 2]) {
        let Exchange {
            from,
            to,
            there,
            back,
        } = exchange;
        let problem = self.problem;
        let of = |item: u32| (problem.work(item), problem.length(item));
        let (out, back) = (
            of(self.items[from][there]),
            back.map_or((0, 0), |at| of(self.items[to][at])),
        );
        let (work, length) = (out.0 - back.0, out.1 - back.1);
        (
            [self.work[from] - work, self.work[to] + work],
            [self.length[from] - length, self.length[to] + length],
        )
    }

    fn make(&mut self, exchange: Exchange) {
        let (work, length) = self.after(exchange);
        let Exchange {
            from,
            to,
            there,
            back,
        } = exchange;
        let out = self.items[from].remove(there);
        let returned = back.map(|at| self.items[to].remove(at));
        self.insert(to, out);
        if let Some(item) = returned {
            self.insert(from, item);
        }
        [self.work[from], self.work[to]] = work;
        [self.length[from], self.length[to]] = length;
    }

    fn insert(&mut self, part: usize, item: u32) {
        let key = |item: u32| (Reverse(self.problem.work(item)), item);
        let at = self.items[part].partition_point(|&other| key(other) < key(item));
        self.items[part].insert(at, item);
    }

    /// A part that is not emptied by losing an item, in dealings of unequal sizes.
    fn may_move(&self, from: usize) -> bool {
        !self.problem.equal && self.items[from].len() > 1
    }

    /// Exchanges until no part is above the cap; false if that was not reached.
    pub(super) fn keep_cap(&mut self) -> Result<bool> {
        let mut looks = 0;
        loop {
            let worst =
                (0..self.items.len()).max_by_key(|&part| (self.length[part], Reverse(part)));
            let Some(from) = worst.filter(|&part| self.over(self.length[part]) > 0) else {
                return Ok(true);
            };
            if looks > MOST_LOOKS {
                return Ok(false);
            }
            cancel::check()?;
            let mut order: Vec<usize> = (0..self.items.len()).filter(|&to| to != from).collect();
            order.sort_by_key(|&to| self.length[to]);
            let mut best = (0, 0, None);
            for to in order {
                let before = self.over(self.length[from]) + self.over(self.length[to]);
                for there in 0..self.items[from].len() {
                    let backs = (0..self.items[to].len()).map(Some);
                    for back in self.may_move(from).then_some(None).into_iter().chain(backs) {
                        looks += 1;
                        let exchange = Exchange {
                            from,
                            to,
                            there,
                            back,
                        };
                        let (work, length) = self.after(exchange);
                        let gain = before - self.over(length[0]) - self.over(length[1]);
                        let most = work[0].max(work[1]);
                        if gain > 0
                            && (best.2.is_none()
                                || (Reverse(gain), most) < (Reverse(best.0), best.1))
                        {
                            best = (gain, most, Some(exchange));
                        }
                    }
                }
                if looks > MOST_LOOKS || best.0 >= self.over(self.length[from]) {
                    break;
                }
            }
            match best.2 {
                Some(exchange) => self.make(exchange),
                None => return Ok(false),
            }
        }
    }

    /// Exchanges that make the largest part smaller and no other as large, down to `bound`.
    pub(super) fn level(&mut self, bound: i64) -> Result<()> {
        let mut looks = 0;
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        while looks < MOST_LOOKS {
            cancel::check()?;
            order.sort_by_key(|&part| (self.work[part], part));
            let Some((&from, others)) = order.split_last() else {
                break;
            };
            if self.work[from] <= bound {
                break;
            }
            let mut best: (i64, Option<Exchange>) = (self.work[from], None);
            for &to in others.iter().take(PARTNERS) {
                self.try_partner(from, to, &mut best, &mut looks);
            }
            match best.1 {
                Some(exchange) => self.make(exchange),
                None => break,
            }
        }
        Ok(())
    }

    fn try_partner(
        &self,
        from: usize,
        to: usize,
        best: &mut (i64, Option<Exchange>),
        looks: &mut usize,
    ) {
        let half = (self.work[from] - self.work[to]) / 2;
        let mut look = |exchange: Exchange| {
            *looks += 1;
            let (work, length) = self.after(exchange);
            let most = work[0].max(work[1]);
            if most < best.0 && self.over(length[0]) + self.over(length[1]) == 0 {
                *best = (most, Some(exchange));
            }
        };
        for (there, &item) in self.items[from].iter().enumerate() {
            if self.may_move(from) {
                look(Exchange {
                    from,
                    to,
                    there,
                    back: None,
                });
            }
            let ideal = self.problem.work(item) - half;
            let others = &self.items[to];
            let near = others.partition_point(|&other| self.problem.work(other) > ideal);
            let window = near.saturating_sub(NEAR / 2)..(near + NEAR / 2).min(others.len());
            for back in window {
                look(Exchange {
                    from,
                    to,
                    there,
                    back: Some(back),
                });
            }
        }
    }
}
