//! Requests of a wave that run together: one adapter slot and one gradient mode.

use crate::measures::Requests;

/// The fields that all requests of one pack share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackKey {
    /// Adapter slot, 0 for none.
    pub slot: u32,
    /// Computes gradients.
    pub gradient: bool,
    /// Replays expert routing.
    pub routed: bool,
}

/// The packs of some requests, in the order in which their first requests come. Reusable.
#[derive(Debug, Clone, Default)]
pub struct Packs {
    keys: Vec<PackKey>,
    offsets: Vec<u32>,
    requests: Vec<u32>,
    local: Vec<u32>,
    inactive: Vec<u32>,
    pack_of_key: Vec<u32>,
    chosen: Vec<u32>,
}

/// No pack has this key yet, or the request joins none.
const NO_PACK: u32 = u32::MAX;

impl Packs {
    /// Forms the packs of `requests` (pool indices); requests without an output join none.
    pub fn form(&mut self, pool: &Requests, requests: &[u32]) {
        self.keys.clear();
        self.inactive.clear();
        self.chosen.clear();
        self.pack_of_key.clear();
        self.pack_of_key.resize(pool.slots as usize * 4, NO_PACK);
        self.offsets.clear();
        self.offsets.push(0);
        for &request in requests {
            let r = request as usize;
            if !pool.active(r) {
                self.chosen.push(NO_PACK);
                self.inactive.push(request);
                continue;
            }
            let key = PackKey {
                slot: pool.slot[r],
                gradient: pool.gradient[r],
                routed: pool.routed[r] > 0,
            };
            let code =
                key.slot as usize * 4 + usize::from(key.gradient) * 2 + usize::from(key.routed);
            if self.pack_of_key[code] == NO_PACK {
                self.pack_of_key[code] = self.keys.len() as u32;
                self.keys.push(key);
                self.offsets.push(0);
            }
            let pack = self.pack_of_key[code];
            self.chosen.push(pack);
            self.offsets[pack as usize + 1] += 1;
        }
        self.place(requests);
    }

    /// Sorts the requests by pack, keeping their order.
    fn place(&mut self, requests: &[u32]) {
        for pack in 1..self.offsets.len() {
            self.offsets[pack] += self.offsets[pack - 1];
        }
        let active = requests.len() - self.inactive.len();
        self.requests.clear();
        self.requests.resize(active, 0);
        self.local.clear();
        self.local.resize(active, 0);
        self.pack_of_key.clear();
        self.pack_of_key.extend_from_slice(&self.offsets);
        for (i, (&request, &pack)) in requests.iter().zip(&self.chosen).enumerate() {
            if pack != NO_PACK {
                let at = &mut self.pack_of_key[pack as usize];
                self.requests[*at as usize] = request;
                self.local[*at as usize] = i as u32;
                *at += 1;
            }
        }
    }

    /// Number of packs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no request asks for an output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The fields that all requests of pack `g` share.
    #[must_use]
    pub fn key(&self, g: usize) -> PackKey {
        self.keys[g]
    }

    /// The requests of pack `g` (pool indices), in the order given.
    #[must_use]
    pub fn requests(&self, g: usize) -> &[u32] {
        &self.requests[self.offsets[g] as usize..self.offsets[g + 1] as usize]
    }

    /// The place of each request of pack `g` in the slice given to `form`.
    #[must_use]
    pub fn local(&self, g: usize) -> &[u32] {
        &self.local[self.offsets[g] as usize..self.offsets[g + 1] as usize]
    }

    /// Requests that join no pack (pool indices).
    #[must_use]
    pub fn inactive(&self) -> &[u32] {
        &self.inactive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::requests::tests::plain_pool;

    #[test]
    fn packs_come_in_the_order_of_their_first_requests() {
        let mut pool = plain_pool(&[5; 6], &[0; 6]);
        pool.gradient = vec![false, true, true, false, true, true];
        pool.slot = vec![0, 2, 0, 0, 2, 1];
        pool.slots = 3;
        pool.targets[3] = false;
        let mut packs = Packs::default();
        for _ in 0..2 {
            packs.form(&pool, &[4, 3, 2, 1, 0]);
            assert_eq!(packs.len(), 3);
            assert_eq!(packs.requests(0), [4, 1]);
            assert_eq!(packs.requests(1), [2]);
            assert_eq!(packs.requests(2), [0]);
            assert_eq!(packs.local(0), [0, 3]);
            assert_eq!(packs.inactive(), [3]);
            assert_eq!(
                packs.key(0),
                PackKey {
                    slot: 2,
                    gradient: true,
                    routed: false
                }
            );
        }
        packs.form(&pool, &[]);
        assert!(packs.is_empty());
    }
}
