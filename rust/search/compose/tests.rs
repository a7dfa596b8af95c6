use super::*;
use crate::segments::NONE;

/// A forward fits up to a number of packed tokens; its time is that of the forest.
struct Capacity<'a> {
    forest: &'a Forest,
    most: i64,
}

impl Price for Capacity<'_> {
    fn price(&mut self, requests: &[u32]) -> Result<Option<Priced>> {
        let mut cover = Cover::new(self.forest);
        for &request in requests {
            cover.add(request);
        }
        let (packed, time) = (cover.tokens, cover.time);
        let priced = Priced {
            required: packed,
            packed,
            time,
        };
        Ok((packed <= self.most).then_some(priced))
    }

    fn left(&mut self, requests: &[u32]) -> Result<Option<i64>> {
        let priced = self.price(requests)?;
        Ok(priced.map(|priced| (self.most - priced.packed) * bins::MILLION / self.most))
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// A tree of random requests: each leaves the path of an earlier one at an end of a segment.
fn forest(draw: &mut Draw, requests: usize) -> Forest {
    let mut made = Forest::default();
    let mut lengths = Vec::new();
    for _ in 0..requests {
        let count = made.len() as u64;
        let parent = match draw.below(4) {
            0 => NONE,
            _ if count > 0 => draw.below(count) as u32,
            _ => NONE,
        };
        let before = if parent == NONE {
            0
        } else {
            made.end[parent as usize]
        };
        let tokens = 1 + draw.below(30) as i64;
        made.terminal.push(made.len() as u32);
        made.parent.push(parent);
        made.tokens.push(tokens);
        made.end.push(before + tokens);
        made.time.push(10 * tokens + tokens * before / 8);
        lengths.push(before + tokens);
    }
    made
}

fn asked<'a>(forest: &'a Forest, groups: &[Vec<u32>], dp: usize, most: i64) -> Problem<'a> {
    Problem {
        forest,
        atoms: groups.to_vec(),
        dp,
        multiple: 1,
        fixed: 0,
        free: true,
        window: None,
        most,
        keep: Vec::new(),
    }
}

/// The fewest waves, and the least time of any waves, over every way to fill bins.
fn best(forest: &Forest, atoms: &[Vec<u32>], dp: usize, most: i64) -> (usize, i64) {
    struct Walk<'a> {
        forest: &'a Forest,
        atoms: &'a [Vec<u32>],
        dp: usize,
        most: i64,
        bins: Vec<Vec<usize>>,
        found: (usize, i64),
    }
    impl Walk<'_> {
        fn size(&self, bin: &[usize]) -> (i64, i64) {
            let mut cover = Cover::new(self.forest);
            for &request in bin.iter().flat_map(|&atom| &self.atoms[atom]) {
                cover.add(request);
            }
            (cover.tokens, cover.time)
        }

        fn place(&mut self, atom: usize) {
            if atom == self.atoms.len() {
                let times: Vec<i64> = self.bins.iter().map(|bin| self.size(bin).1).collect();
                self.found.0 = self.found.0.min(times.len().div_ceil(self.dp));
                self.found.1 = self.found.1.min(total(&times, self.dp));
                return;
            }
            for at in 0..=self.bins.len() {
                if at == self.bins.len() {
                    self.bins.push(Vec::new());
                }
                self.bins[at].push(atom);
                if self.size(&self.bins[at]).0 <= self.most {
                    self.place(atom + 1);
                }
                self.bins[at].pop();
                if self.bins[at].is_empty() {
                    self.bins.pop();
                }
            }
        }
    }
    let mut walk = Walk {
        forest,
        atoms,
        dp,
        most,
        bins: Vec::new(),
        found: (usize::MAX, i64::MAX),
    };
    walk.place(0);
    walk.found
}

fn check(found: &Found, forest: &Forest, atoms: &[Vec<u32>], dp: usize, most: i64) {
    let mut seen: Vec<u32> = found.refused.clone();
    for wave in &found.best.bins {
        assert_eq!(wave.len(), dp);
        for (bin, priced) in wave {
            seen.extend(bin);
            let mut cover = Cover::new(forest);
            for &request in bin.iter().flat_map(|&atom| &atoms[atom as usize]) {
                cover.add(request);
            }
            assert!(cover.tokens <= most);
            assert_eq!((priced.packed, priced.time), (cover.tokens, cover.time));
        }
        let placed: usize = wave.iter().filter(|(bin, _)| !bin.is_empty()).count();
        assert!(placed > 0);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..atoms.len() as u32).collect::<Vec<_>>());
    assert!(found.waves <= found.best.bins.len());
    assert!(found.bounds.tokens <= found.best.tokens);
    assert!(found.bounds.time <= found.best.time * dp as i64);
}

#[test]
fn small_pools_are_near_the_best_and_never_below_the_bound() {
    let mut draw = Draw(7);
    let (mut fewest, mut equal, mut cases) = (0, 0, 0);
    let (mut ours, mut least) = ([0_i64; 4], [0_i64; 4]);
    for case in 0..400 {
        let requests = 1 + draw.below(9) as usize;
        let forest = forest(&mut draw, requests);
        let tied = draw.below(3) == 0;
        let mut atoms: Vec<Vec<u32>> = Vec::new();
        for request in 0..requests as u32 {
            match atoms.last_mut().filter(|_| tied && draw.below(2) == 0) {
                Some(last) => last.push(request),
                None => atoms.push(vec![request]),
            }
        }
        let dp = 1 + case % 3;
        let most = 15 + draw.below(90) as i64;
        let price = Capacity {
            forest: &forest,
            most,
        };
        let found = search(asked(&forest, &atoms, dp, most), price).unwrap();
        check(&found, &forest, &atoms, dp, most);
        let placed: Vec<Vec<u32>> = (0..atoms.len() as u32)
            .filter(|atom| !found.refused.contains(atom))
            .map(|atom| atoms[atom as usize].clone())
            .collect();
        if placed.is_empty() {
            continue;
        }
        let (waves, time) = best(&forest, &placed, dp, most);
        assert!(
            found.waves <= waves,
            "{case}: bound {} above {waves}",
            found.waves
        );
        assert!(found.bounds.time <= time * dp as i64, "{case}");
        assert!(found.best.bins.len() <= waves + 1, "{case}");
        cases += 1;
        fewest += usize::from(found.best.bins.len() <= waves);
        equal += usize::from(found.waves == waves);
        ours[dp] += found.best.time;
        least[dp] += time;
    }
    assert!(fewest * 100 >= cases * 99, "{fewest} of {cases}");
    assert!(equal * 100 >= cases * 85, "{equal} of {cases}");
    for dp in 1..4 {
        assert!(
            ours[dp] * 100 <= least[dp] * 105,
            "dp {dp}: {} {}",
            ours[dp],
            least[dp]
        );
    }
}

#[test]
fn a_window_takes_the_oldest_first_and_loses_nothing() {
    let mut draw = Draw(11);
    for case in 0..200 {
        let requests = 1 + draw.below(30) as usize;
        let forest = forest(&mut draw, requests);
        let atoms: Vec<Vec<u32>> = (0..requests as u32).map(|request| vec![request]).collect();
        let (dp, most) = (1 + case % 3, 30 + draw.below(90) as i64);
        let window = draw.below(6) as usize;
        let price = Capacity {
            forest: &forest,
            most,
        };
        let problem = Problem {
            window: Some(window),
            ..asked(&forest, &atoms, dp, most)
        };
        let found = search(problem, price).unwrap();
        check(&found, &forest, &atoms, dp, most);
        let mut left: Vec<u32> = (0..requests as u32)
            .filter(|atom| !found.refused.contains(atom))
            .collect();
        for wave in &found.best.bins {
            let taken: Vec<u32> = wave.iter().flat_map(|(bin, _)| bin.clone()).collect();
            assert!(taken.contains(&left[0]));
            left.retain(|atom| !taken.contains(atom));
        }
    }
}

#[test]
fn hostile_pools_end() {
    let flat = |count: usize, tokens: i64| Forest {
        parent: vec![NONE; count],
        tokens: vec![tokens; count],
        time: vec![tokens; count],
        end: vec![tokens; count],
        terminal: (0..count as u32).collect(),
    };
    let comb = |count: usize| Forest {
        parent: (0..count as u32)
            .map(|i| i.checked_sub(1).unwrap_or(NONE))
            .collect(),
        tokens: vec![1; count],
        time: vec![1; count],
        end: (1..=count as i64).collect(),
        terminal: (0..count as u32).collect(),
    };
    let ones = |count: usize| (0..count as u32).map(|i| vec![i]).collect::<Vec<_>>();
    for (forest, atoms, dp, most, waves) in [
        (flat(100_000, 1), ones(100_000), 1, 1_000, 100),
        (flat(3_000, 7), ones(3_000), 4, 7 * 25, 30),
        (comb(3_000), ones(3_000), 1, 3_000, 1),
        (flat(500, 3), vec![(0..500).collect()], 2, 1_500, 1),
        (flat(50, 9), ones(50), 2, 9, 25),
    ] {
        let price = Capacity {
            forest: &forest,
            most,
        };
        let found = search(asked(&forest, &atoms, dp, most), price).unwrap();
        assert_eq!((found.best.bins.len(), found.waves), (waves, waves));
        assert!(found.refused.is_empty());
    }
    let forest = flat(20, 9);
    let price = Capacity {
        forest: &forest,
        most: 8,
    };
    let found = search(asked(&forest, &ones(20), 2, 8), price).unwrap();
    assert_eq!((found.best.bins.len(), found.refused.len()), (0, 20));
}
