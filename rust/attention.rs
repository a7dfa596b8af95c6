//! Attention between the segments of a pack: the parser of per-token ids, and the slices.

use rustc_hash::FxHashMap;

use crate::cancel;
use crate::error::{Error, Result};
use crate::segments::{NONE, Segments};

/// The id of padding, and the parent id that lets the first run be a root.
const PADDING: i64 = -1;

/// One run of equal ids.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: usize,
    id: i64,
    parent: i64,
}

/// Segments of a pack given as ids per token, refused unless they describe a forest.
///
/// A run of equal `group_ids` is a segment; its `parent_ids` name its parent's pack, or its
/// own pack for a root. The pack at position 0 may also name -1. Pack -1 is padding and must
/// be a tail; a last run whose negative parent repeats an earlier (pack, parent) pair counts
/// as padding too. The tokens of the answer are the valid ones; the rest is padding.
///
/// Checked in this order: lengths, padding, one parent per run, one run per id, known parents.
pub fn parse(group_ids: &[i64], parent_ids: &[i64]) -> Result<Segments> {
    if group_ids.len() != parent_ids.len() {
        return Err(Error::input(format!(
            "parent_ids has {} entries for {} group_ids: give one each",
            parent_ids.len(),
            group_ids.len()
        )));
    }
    let valid = unpadded(group_ids)?;
    let mut runs = scan(&group_ids[..valid], &parent_ids[..valid])?;
    let valid = cut_terminal_repeat(&mut runs, valid);
    let index = index_ids(&runs)?;
    build(&runs, &index, valid)
}

/// Tokens before the padding tail.
fn unpadded(group_ids: &[i64]) -> Result<usize> {
    let valid = group_ids
        .iter()
        .position(|&id| id == PADDING)
        .unwrap_or(group_ids.len());
    if let Some(after) = group_ids[valid..].iter().position(|&g| g != PADDING) {
        return Err(Error::input(format!(
            "group_ids[{}] is {} after padding (-1) at {valid}: padding must be a tail",
            valid + after,
            group_ids[valid + after]
        )));
    }
    Ok(valid)
}

/// Runs of equal ids, each with one parent.
fn scan(group_ids: &[i64], parent_ids: &[i64]) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, (&id, &parent)) in group_ids.iter().zip(parent_ids).enumerate() {
        cancel::check_at(at)?;
        match runs.last() {
            Some(run) if run.id == id => {
                if run.parent != parent {
                    return Err(Error::input(format!(
                        "parent_ids[{at}] is {parent} in the run of group id {id} that starts at {} with parent {}: a run has one parent",
                        run.start, run.parent
                    )));
                }
            }
            _ => runs.push(Run {
                start: at,
                id,
                parent,
            }),
        }
    }
    Ok(runs)
}

/// Drops a last run that is padding in disguise; returns the valid tokens.
fn cut_terminal_repeat(runs: &mut Vec<Run>, valid: usize) -> usize {
    let Some((last, before)) = runs.split_last() else {
        return valid;
    };
    let repeats = last.parent < 0
        && before
            .iter()
            .any(|run| (run.id, run.parent) == (last.id, last.parent));
    if !repeats {
        return valid;
    }
    let start = last.start;
    runs.pop();
    start
}

/// The run of each id.
fn index_ids(runs: &[Run]) -> Result<FxHashMap<i64, u32>> {
    if runs.len() >= NONE as usize {
        return Err(Error::Overflow("the number of segments"));
    }
    let mut index = FxHashMap::with_capacity_and_hasher(runs.len(), rustc_hash::FxBuildHasher);
    for (i, run) in runs.iter().enumerate() {
        cancel::check_at(i)?;
        if index.insert(run.id, i as u32).is_some() {
            return Err(Error::input(format!(
                "group id {} starts again at {}: a segment is one contiguous run",
                run.id, run.start
            )));
        }
    }
    Ok(index)
}

/// Segments from checked runs. A parent found earlier has also ended: segments are single runs.
fn build(runs: &[Run], index: &FxHashMap<i64, u32>, valid: usize) -> Result<Segments> {
    let mut segments = Segments {
        starts: Vec::with_capacity(runs.len() + 1),
        parents: Vec::with_capacity(runs.len()),
    };
    for (i, run) in runs.iter().enumerate() {
        cancel::check_at(i)?;
        let root = run.id == run.parent || (run.start == 0 && run.parent == PADDING);
        let parent = if root {
            NONE
        } else {
            match index.get(&run.parent) {
                Some(&parent) if (parent as usize) < i => parent,
                _ => {
                    return Err(Error::input(format!(
                        "parent_ids[{}] is {}: group id {} needs its parent's run before it",
                        run.start, run.parent, run.id
                    )));
                }
            }
        };
        segments.starts.push(run.start as i64);
        segments.parents.push(parent);
    }
    segments.starts.push(valid as i64);
    Ok(segments)
}

/// Number of attention slices: each segment attends its ancestors fully, itself causally.
pub fn slice_count(segments: &Segments) -> Result<i64> {
    let mut depth: Vec<i64> = Vec::with_capacity(segments.len());
    let mut count = 0_i64;
    for i in 0..segments.len() {
        let own = segments.parent(i).map_or(0, |parent| depth[parent]) + 1;
        depth.push(own);
        count = count
            .checked_add(own)
            .ok_or(Error::Overflow("the number of attention slices"))?;
    }
    Ok(count)
}

/// Attention slices that are listed.
pub const MOST_SLICES: i64 = 1 << 25;

/// Attention slices as (query segment, key segment), sorted by query, then key. A slice is
/// causal where both are the same segment, full otherwise.
pub fn slices(segments: &Segments) -> Result<(Vec<i64>, Vec<i64>)> {
    let count = slice_count(segments)?;
    if count > MOST_SLICES {
        return Err(Error::input(format!(
            "the pack has {count} attention slices: at most {MOST_SLICES} are listed"
        )));
    }
    let count = count as usize;
    let (mut queries, mut keys) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for i in 0..segments.len() {
        cancel::check_at(i)?;
        let first = keys.len();
        let mut key = Some(i);
        while let Some(at) = key {
            queries.push(i as i64);
            keys.push(at as i64);
            key = segments.parent(at);
        }
        keys[first..].reverse();
    }
    Ok((queries, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(ids: &[i64], parents: &[i64]) -> String {
        parse(ids, parents).unwrap_err().to_string()
    }

    #[test]
    fn reads_runs() {
        let parsed = parse(&[7, 7, 3, 9, 9, -1, -1], &[-1, -1, 7, 3, 3, 0, 5]).unwrap();
        assert_eq!(parsed.starts, [0, 2, 3, 5]);
        assert_eq!(parsed.parents, [NONE, 0, 1]);
    }

    #[test]
    fn padding_alone_has_no_segments() {
        for ids in [&[][..], &[-1, -1]] {
            let parsed = parse(ids, ids).unwrap();
            assert!(parsed.is_empty());
            assert_eq!(parsed.tokens(), 0);
        }
    }

    #[test]
    fn cuts_one_terminal_repeat() {
        let parsed = parse(&[1, 2, 2, 1, 1], &[-1, 1, 1, -1, -1]).unwrap();
        assert_eq!(parsed.starts, [0, 1, 3]);
        // A parent that is not negative is a repeated id, not padding.
        assert!(refusal(&[1, 2, 1], &[1, 1, 1]).contains("starts again at 2"));
        // Only the last run is cut.
        assert!(refusal(&[1, 2, 1, 2, 1], &[-1, 1, -1, 1, -1]).contains("starts again at 2"));
    }

    #[test]
    fn refuses_in_order() {
        assert!(refusal(&[1], &[1, 1]).contains("2 entries for 1"));
        assert!(refusal(&[1, -1, 1], &[1, 1, 2]).contains("padding must be a tail"));
        assert!(refusal(&[1, 2, 1, 2, 2], &[1, 9, 1, 8, 9]).contains("one parent"));
        assert!(refusal(&[1, 2, 1], &[1, 9, 1]).contains("group id 1 starts again"));
        assert!(refusal(&[1, 2], &[1, 9]).contains("group id 2 needs its parent's run"));
        assert!(refusal(&[1, 2], &[2, 2]).contains("group id 1 needs its parent's run"));
        assert!(refusal(&[1, 2], &[1, -1]).contains("group id 2 needs its parent's run"));
    }

    #[test]
    fn slices_are_sorted_and_counted() {
        let segments = Segments::new(&[2, 1, 3, 1], &[-1, 0, 1, -1]).unwrap();
        let (queries, keys) = slices(&segments).unwrap();
        assert_eq!(queries, [0, 1, 1, 2, 2, 2, 3]);
        assert_eq!(keys, [0, 0, 1, 0, 1, 2, 3]);
        assert_eq!(slice_count(&segments).unwrap(), 7);
    }
}
