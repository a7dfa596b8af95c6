"""Ownership within a limit of tokens, slowly and readably: every range priced, no windows.

The lower bound of a range is `ownership.rank_ms` of a pack in which nothing is sent and a run of
fetched chunks has one source, and one more for each cut that lies inside it in every better answer.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from slow import ownership as slow

from waveplan import OwnershipSettings


def even_tokens(tokens: int, chunk: int, ranks: int) -> int:
    chunks = -(-tokens // chunk)
    lengths = [chunk] * (chunks - 1) + [tokens - (chunks - 1) * chunk]
    cuts = even_cuts(chunks, ranks)
    return max(sum(lengths[a:b]) for a, b in pairwise(cuts))


def range_ms(low, high, pairs, lengths, stages, s, sure=()):
    """Forward + backward of a rank that owns the chunks low..high, with as few sources as can be.

    `sure` are cuts, each as the chunks that every one of its places lies between.
    """
    own = range(low, high)

    def tokens(of):
        return sum(lengths[i] for i in of)

    remote = []
    for stage in range(max(stages) + 1):
        fetched = {
            k for k in range(low) if stages[k] == stage and any(pairs[q][k] > 0 for q in own)
        }
        if fetched:
            queries = {q for q in own if any(pairs[q][k] > 0 for k in fetched)}
            work = sum(int(pairs[q][k]) for q in own for k in fetched)
            runs = slow.run_count(fetched)
            runs += sum(fetched.issuperset(range(a, b + 1)) for a, b in sure if b < low)
            counts = (work, tokens(queries), tokens(fetched), slow.run_count(queries) + runs)
            remote.append((counts, (tokens(fetched), runs)))
    work = sum(int(pairs[q][k]) for q in own for k in own)
    local = (work, tokens(own), tokens(own), 2)
    end = slow.stage_ms(*local, s.local_pair_ms, s, local=True)
    ready = 0.0
    for stage, comm in remote:
        start = max(end, ready + slow.comm_ms(*comm, s.fetch_token_ms, s))
        end = start + slow.stage_ms(*stage, s.remote_pair_ms, s, local=False)
        ready = start
    forward = end
    end = latest = 0.0
    for stage, comm in remote:
        end += slow.stage_ms(*stage, s.remote_backward_pair_ms, s, local=False)
        latest = max(latest, end + slow.comm_ms(*comm, s.reduce_token_ms, s))
    end += slow.stage_ms(*local, s.local_backward_pair_ms, s, local=True)
    backward = max(end, latest) if remote else end
    owned = tokens(own) * s.owned_token_ms
    return (forward + owned / 3.0) + (backward + owned * (2.0 / 3.0))


def start_cuts(pairs, lengths, ranks, most, s):
    """Cuts that fill each rank up to the least limit of its own work at which all chunks fit."""
    chunks, sums = len(lengths), [0.0]
    pair_ms = s.local_pair_ms + s.local_backward_pair_ms
    token_ms = s.owned_token_ms + 2.0 * s.merge_token_ms
    for row, length in zip(pairs, lengths, strict=True):
        sums.append(sums[-1] + (float(row.sum()) * pair_ms + float(length) * token_ms))

    def fill(limit):
        cuts = [0]
        for rank in range(ranks):
            low = high = cuts[-1]
            while (
                high < chunks - (ranks - 1 - rank)
                and sums[high + 1] - sums[low] <= limit
                and sum(lengths[low : high + 1]) <= most
            ):
                high += 1
            if high == low:
                return None
            cuts.append(high)
        return cuts if cuts[-1] == chunks else None

    least, enough = sums[-1] / ranks, sums[-1]
    for _ in range(20):
        middle = 0.5 * (least + enough)
        least, enough = (least, middle) if fill(middle) else (middle, enough)
    return fill(enough) or even_cuts(chunks, ranks)


def sure_cuts(pairs, lengths, ranks, most, limit, s):
    """Where each inner cut lies in any answer no slower than the limit: the chunks around it."""
    chunks = len(lengths)
    pair_ms = min(
        s.local_pair_ms + s.local_backward_pair_ms, s.remote_pair_ms + s.remote_backward_pair_ms
    )
    room = (limit - (2.0 * s.stage_overhead_ms + 4.0 * s.interval_ms)) * (1.0 + 1e-9)

    def holds(low, high):
        tokens = sum(lengths[low:high])
        work = float(sum(int(pairs[i].sum()) for i in range(low, high))) * pair_ms
        work += float(tokens) * (2.0 * s.merge_token_ms + s.owned_token_ms)
        return tokens <= most and work <= room

    high, low = [0], [chunks]
    for _ in range(ranks):
        far = high[-1]
        while far < chunks and holds(high[-1], far + 1):
            far += 1
        high.append(far)
        near = low[0]
        while near > 0 and holds(near - 1, low[0]):
            near -= 1
        low.insert(0, near)
    places = [(max(low[r], r), min(high[r], chunks - (ranks - r))) for r in range(1, ranks)]
    return [(near - 1, far) for near, far in places]


def own(pairs, lengths, ranks, most, counts, s, today):
    """(owners, score, bound) of the fastest contiguous ownership found and a bound of all.

    `today` is the reference planner's (owners, score), or None where it has too many tokens.
    """
    chunks = len(lengths)
    best = today

    def consider(cuts, stages):
        owners = np.repeat(np.arange(ranks), np.diff(cuts)).tolist()
        score = slow.evaluate(pairs, lengths, owners, stages, ranks, s)[0]
        better = best is None or score + slow.TIE_MS < best[1]
        return (owners, score) if better else best

    start = start_cuts(pairs, lengths, ranks, most, s)
    for count in counts:
        best = consider(start, slow.stages_of(chunks, count))
    bound = float("inf")
    for count in counts:
        stages, limit = slow.stages_of(chunks, count), best[1]
        sure = sure_cuts(pairs, lengths, ranks, most, limit, s)
        sure = [cut for cut in sure if stages[cut[0]] == stages[cut[1]]]
        found = {0: (0.0, [0])}
        for _ in range(ranks):
            after = {}
            for a, b in combinations(range(chunks + 1), 2):
                if a not in found or sum(lengths[a:b]) > most:
                    continue
                time = max(found[a][0], range_ms(a, b, pairs, lengths, stages, s, sure))
                # of equals the latest cut
                if time <= limit and (b not in after or time <= after[b][0]):
                    after[b] = (time, [*found[a][1], b])
            found = after
        if chunks in found:
            bound = min(bound, found[chunks][0])
            best = consider(found[chunks][1], stages)
    return *best, min(bound, best[1]) * (1.0 - 1e-12)


def every_cut(chunks, ranks):
    """Owners of every way to give each rank one range of chunks."""
    for inner in combinations(range(1, chunks), ranks - 1):
        cuts = (0, *inner, chunks)
        yield [rank for rank, (a, b) in enumerate(pairwise(cuts)) for _ in range(a, b)]


def even_cuts(chunks, ranks):
    share, more = divmod(chunks, ranks)
    early = 0 if more == 1 else more
    return [*(share * rank + min(rank, early) for rank in range(ranks)), chunks]


def fold(owners, low, high, first, last):
    """The owners with the chunks low..high folded over the ranks first..last, or None."""
    block, chunks = last - first, high - low
    if block == 1:
        return owners
    if chunks < 2 * block:
        return None
    sizes = [chunks // (2 * block)] * (2 * block)
    for extra in range(chunks % (2 * block)):
        sizes[extra if extra < block else 2 * block - 1 - (extra - block)] += 1
    slabs = [
        first + min(slab, 2 * block - 1 - slab) for slab, n in enumerate(sizes) for _ in range(n)
    ]
    return owners[:low] + slabs + owners[high:]


def even_fold(pairs, lengths, ranks, counts, s: OwnershipSettings):
    """(owners, score) of the best blocks in any number of stages."""
    chunks = len(lengths)
    cuts = even_cuts(chunks, ranks)
    base = np.repeat(np.arange(ranks), np.diff(cuts)).tolist()
    best = None
    for count in counts:
        stages = slow.stages_of(chunks, count)
        least, owners_of = [0.0], [base]
        for last in range(1, ranks + 1):
            found = (float("inf"), base)
            for first in reversed(range(last)):
                block = (cuts[first], cuts[last], first, last)
                alone = fold(base, *block)
                if alone is None:
                    continue
                times = slow.evaluate(pairs, lengths, alone, stages, ranks, s)[1]
                slowest = max([least[first], *(sum(time) for time in times[first:last])])
                if slowest < found[0]:
                    found = (slowest, fold(owners_of[first], *block))
            least.append(found[0])
            owners_of.append(found[1])
        score = slow.evaluate(pairs, lengths, owners_of[-1], stages, ranks, s)[0]
        if best is None or score + slow.TIE_MS < best[1]:
            best = (owners_of[-1], score)
    return best
