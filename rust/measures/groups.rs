//! Requests of a wave that run together: one adapter slot and one gradient mode.

use crate::measures::Pool;

/// What the requests of one group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKey {
    /// Adapter slot, 0 for none.
    pub slot: u32,
    /// Computes gradients.
    pub gradient: bool,
    /// Replays expert routing.
    pub routed: bool,
}

/// The groups of some requests, in the order in which their first requests come. Reusable.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    keys: Vec<GroupKey>,
    offsets: Vec<u32>,
    requests: Vec<u32>,
    local: Vec<u32>,
    inactive: Vec<u32>,
    group_of_key: Vec<u32>,
    chosen: Vec<u32>,
}

/// No group has this key yet, or the request joins none.
const NO_GROUP: u32 = u32::MAX;

impl Groups {
    /// Forms the groups of `requests` (pool indices); requests without an output join none.
    pub fn form(&mut self, pool: &Pool, requests: &[u32]) {
        self.keys.clear();
        self.inactive.clear();
        self.chosen.clear();
        self.group_of_key.clear();
        self.group_of_key.resize(pool.slots as usize * 4, NO_GROUP);
        self.offsets.clear();
        self.offsets.push(0);
        for &request in requests {
            let r = request as usize;
            if !pool.active(r) {
                self.chosen.push(NO_GROUP);
                self.inactive.push(request);
                continue;
            }
            let key = GroupKey {
                slot: pool.slot[r],
                gradient: pool.gradient[r],
                routed: pool.routed[r] > 0,
            };
            let code =
                key.slot as usize * 4 + usize::from(key.gradient) * 2 + usize::from(key.routed);
            if self.group_of_key[code] == NO_GROUP {
                self.group_of_key[code] = self.keys.len() as u32;
                self.keys.push(key);
                self.offsets.push(0);
            }
            let group = self.group_of_key[code];
            self.chosen.push(group);
            self.offsets[group as usize + 1] += 1;
        }
        self.place(requests);
    }

    /// Sorts the requests by group, keeping their order.
    fn place(&mut self, requests: &[u32]) {
        for group in 1..self.offsets.len() {
            self.offsets[group] += self.offsets[group - 1];
        }
        let active = requests.len() - self.inactive.len();
        self.requests.clear();
        self.requests.resize(active, 0);
        self.local.clear();
        self.local.resize(active, 0);
        self.group_of_key.clear();
        self.group_of_key.extend_from_slice(&self.offsets);
        for (i, (&request, &group)) in requests.iter().zip(&self.chosen).enumerate() {
            if group != NO_GROUP {
                let at = &mut self.group_of_key[group as usize];
                self.requests[*at as usize] = request;
                self.local[*at as usize] = i as u32;
                *at += 1;
            }
        }
    }

    /// Number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no request asks for an output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What group `g` has in common.
    #[must_use]
    pub fn key(&self, g: usize) -> GroupKey {
        self.keys[g]
    }

    /// The requests of group `g` (pool indices), in the order given.
    #[must_use]
    pub fn requests(&self, g: usize) -> &[u32] {
        &self.requests[self.offsets[g] as usize..self.offsets[g + 1] as usize]
    }

    /// Where each request of group `g` stood in the slice given to `form`.
    #[must_use]
    pub fn local(&self, g: usize) -> &[u32] {
        &self.local[self.offsets[g] as usize..self.offsets[g + 1] as usize]
    }

    /// Requests that join no group (pool indices).
    #[must_use]
    pub fn inactive(&self) -> &[u32] {
        &self.inactive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::pool::tests::plain_pool;

    #[test]
    fn groups_come_in_the_order_of_their_first_requests() {
        let mut pool = plain_pool(&[5; 6], &[0; 6]);
        pool.gradient = vec![false, true, true, false, true, true];
        pool.slot = vec![0, 2, 0, 0, 2, 1];
        pool.slots = 3;
        pool.targets[3] = false;
        let mut groups = Groups::default();
        for _ in 0..2 {
            groups.form(&pool, &[4, 3, 2, 1, 0]);
            assert_eq!(groups.len(), 3);
            assert_eq!(groups.requests(0), [4, 1]);
            assert_eq!(groups.requests(1), [2]);
            assert_eq!(groups.requests(2), [0]);
            assert_eq!(groups.local(0), [0, 3]);
            assert_eq!(groups.inactive(), [3]);
            assert_eq!(
                groups.key(0),
                GroupKey {
                    slot: 2,
                    gradient: true,
                    routed: false
                }
            );
        }
        groups.form(&pool, &[]);
        assert!(groups.is_empty());
    }
}
