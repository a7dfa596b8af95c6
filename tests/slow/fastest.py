"""Ownership within a limit of tokens, slowly and readably: every range priced, no windows.

The lower bound of a range is `ownership.rank_ms` of a pack in which nothing is sent and every run
of fetched chunks has one source.
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


def range_ms(low, high, pairs, lengths, stages, s):
    """Forward + backward of a rank that owns the chunks low..high, were they all that exists."""
    chunks = range(len(lengths))
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
    assert chunks
    return (forward + owned / 3.0) + (backward + owned * (2.0 / 3.0))


def least_bound(pairs, lengths, ranks, most, counts, s):
    """Least bound of the slowest rank in any number of stages; infinite without cuts."""
    chunks, least = len(lengths), float("inf")
    for count in counts:
        stages = slow.stages_of(chunks, count)
        cost = {
            (a, b): range_ms(a, b, pairs, lengths, stages, s)
            for a, b in combinations(range(chunks + 1), 2)
            if sum(lengths[a:b]) <= most
        }
        best = {0: 0.0}
        for _ in range(ranks):
            after: dict[int, float] = {}
            for (a, b), time in cost.items():
                if a in best:
                    after[b] = min(after.get(b, float("inf")), max(best[a], time))
            best = after
        least = min(least, best.get(chunks, float("inf")))
    return least


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
