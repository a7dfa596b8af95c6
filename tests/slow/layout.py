"""Layouts, slowly: the definitions of planning, walked segment by segment."""

from __future__ import annotations

from itertools import combinations

THRESHOLDS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def segments(tree, chosen):
    """(sequences, start, end, parent) of the pack that shares the segments in `chosen`."""
    out = []
    near = []  # nearest shared segment at or above each tree segment: (packed index, end)
    rows_ending = {s: [] for s in range(len(tree))}
    for sequence, s in enumerate(tree.terminal.tolist()):
        rows_ending[s].append(sequence)
    for s in range(len(tree)):
        parent, end = int(tree.parent[s]), int(tree.end[s])
        here = near[parent] if parent >= 0 else (None, 0)
        if s in chosen:
            out.append((tree.sequences[s].tolist(), here[1], end, here[0]))
            here = (len(out) - 1, end)
        if here[1] < end:
            out += [([sequence], here[1], end, here[0]) for sequence in rows_ending[s]]
        near.append(here)
    return out


def measures(tree, chosen):
    """Tokens, segments, decisions, depth, and segments below each threshold."""
    depths, lengths = [], []
    for _, start, end, parent in segments(tree, chosen):
        depths.append(1 + (depths[parent] if parent is not None else 0))
        lengths.append(end - start)
    below = [sum(length < threshold for length in lengths) for threshold in THRESHOLDS]
    return sum(lengths), len(lengths), len(chosen), max(depths), below


def work(tree, chosen, scoring):
    """Predicted work of a layout."""
    tokens, count, decisions, depth, below = measures(tree, chosen)
    tp, cp, layers, gdn = scoring.tp, scoring.cp, scoring.layers, scoring.gdn_layers
    levels = depth - 1
    if scoring.version == 1:
        total = layers * tokens * 1024 + -(-tokens // cp) * (96 + 32 * cp)
        total += count * (96 + 32 * cp) * 1024 + decisions * (64 + 32 * cp) * 1024
        if scoring.uses_gdn:
            total += (min(1, levels) * 768 + max(0, levels - 1) * 256) * layers * 1024
        return total
    wanted = 128 * cp
    at = next((i for i, t in enumerate(THRESHOLDS) if t >= wanted), len(THRESHOLDS) - 1)
    terms = (
        tokens * layers * 1024 // (tp * cp),
        tokens * layers * (cp - 1) * 1024 // cp,
        tokens * layers * (tp - 1) * 1024 // tp,
        tokens * gdn * 1024 // (tp * cp),
        tokens * max(0, layers - gdn) * (cp - 1) * 1024 // cp,
        below[at] * layers * 1024,
        levels * layers * (cp - 1) * 1024,
        levels * layers * (tp - 1) * 1024,
        levels * gdn * 1024,
        levels * gdn * (tp - 1) * 1024,
    )
    return sum(c * term for c, term in zip(scoring.coefficients, terms, strict=True))


def score(tree, chosen, scoring):
    """The order of layouts: the score, then the sorted decisions."""
    tokens, count, _, depth, _ = measures(tree, chosen)
    return (work(tree, chosen, scoring), tokens, count, depth), tuple(sorted(chosen))


def best(tree, scoring, most_tokens=None):
    """The best of all layouts with at most `most_tokens` tokens; None without one."""
    decisions = tree.decisions.tolist()
    scores = (
        score(tree, set(chosen), scoring)
        for size in range(len(decisions) + 1)
        for chosen in combinations(decisions, size)
    )
    return min(
        (found for found in scores if most_tokens is None or found[0][1] <= most_tokens),
        default=None,
    )


def family(tree):
    """The mandatory family: sorted decisions of each layout, in order."""
    decisions = tree.decisions.tolist()
    shared = set(decisions)
    depth = {s: int(tree.depth[s]) for s in decisions}
    end, parent = tree.end.tolist(), tree.parent.tolist()
    found = {
        tuple(s for s in decisions if depth[s] <= most)
        for most in range(max(depth.values(), default=0) + 1)
    }
    steps = {1}
    for s in decisions:
        steps.add(end[s] + 1)
        above = parent[s]
        while above >= 0:
            if above in shared:
                steps.add(end[s] - end[above] + 1)
            above = parent[above]
    for least in steps:
        near, chosen = [0] * len(tree), []
        for s in range(len(tree)):
            near[s] = near[parent[s]] if parent[s] >= 0 else 0
            if s in shared and end[s] - near[s] >= least:
                chosen.append(s)
                near[s] = end[s]
        found.add(tuple(chosen))
    found.add(tuple(decisions))
    return sorted(found)
