"""The chunk ownership, slowly and readably: the differential target of the compiled core.

Every query-key pair of the pack is one entry of a boolean matrix, every set of chunks a
Python set. Times follow the order of float operations that every rank must share.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from waveplan import OwnershipSettings, WorkloadProfile

TIE_MS = 1e-9


class ParseError(Exception):
    """The ids of a pack describe no forest."""


# --- who attends whom ---


def parse(group_ids: list[int], parent_ids: list[int]) -> tuple[list[int], list[int]]:
    """(lengths, parents) of a row of ids, padding cut off."""
    if len(group_ids) != len(parent_ids):
        raise ParseError("length")
    valid = sum(pack != -1 for pack in group_ids)
    if any(pack == -1 for pack in group_ids[:valid]):
        raise ParseError("padding")
    runs: list[list[int]] = []
    for at, (pack, parent) in enumerate(zip(group_ids, parent_ids, strict=True)):
        if at == valid:
            break
        if runs and runs[-1][2] == pack:
            if runs[-1][3] != parent:
                raise ParseError("two parents")
            runs[-1][1] = at + 1
        else:
            runs.append([at, at + 1, pack, parent])
    if runs and runs[-1][3] < 0 and runs[-1][2:] in [run[2:] for run in runs[:-1]]:
        runs.pop()
    packs = [run[2] for run in runs]
    if len(set(packs)) != len(packs):
        raise ParseError("repeated group")
    parents = []
    for i, (start, _, pack, parent) in enumerate(runs):
        if parent == pack or (start == 0 and parent == -1):
            parents.append(-1)
        elif parent in packs[:i]:
            parents.append(packs.index(parent))
        else:
            raise ParseError("missing parent")
    return [end - start for start, end, _, _ in runs], parents


def slices(parents: list[int]) -> list[tuple[int, int]]:
    """(query segment, key segment), sorted."""
    found = []
    for segment in range(len(parents)):
        key = segment
        while key != -1:
            found.append((segment, key))
            key = parents[key]
    return sorted(found)


def visible(lengths: list[int], parents: list[int]) -> np.ndarray:
    """[T, T] which query attends which key."""
    starts = np.concatenate(([0], np.cumsum(lengths)))
    seen = np.zeros((starts[-1], starts[-1]), dtype=bool)
    for q, k in slices(parents):
        seen[starts[q] : starts[q + 1], starts[k] : starts[k + 1]] = True
    return np.tril(seen)


def chunk_pairs(seen: np.ndarray, chunk: int) -> np.ndarray:
    """[K, K] pairs of query chunk and key chunk."""
    borders = np.arange(0, len(seen), chunk)
    sums = np.add.reduceat(seen.astype(np.int64), borders, axis=0)
    return np.add.reduceat(sums, borders, axis=1)


# --- chunks and the start ---


def chunk_size(tokens: int, ranks: int, s: OwnershipSettings) -> int:
    def blocks(size: int) -> int:
        return min(-(-size // s.block) * s.block, tokens)

    size = blocks(max(s.block, s.chunk))
    base, per_rank = max(s.chunk_budget_base, 0), max(s.chunk_budget_per_rank, 0)
    if base or per_rank:
        budget = max(ranks, base + per_rank * ranks)
        if -(-tokens // size) > budget:
            size = blocks(max(size, -(-tokens // budget)))
    if -(-tokens // size) < ranks <= tokens:
        size = max(1, tokens // ranks)
    return size


def contiguous(weights: list[float], ranks: int) -> list[int]:
    """Owners, each cut at the first boundary nearest to its share."""
    chunks = len(weights)
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    if not sums[-1] > 0:
        sums = [float(i) for i in range(chunks + 1)]
    cuts = [0]
    for s in range(1, ranks):
        target = (sums[-1] * s) / ranks
        room = range(cuts[-1] + 1, chunks - (ranks - s) + 1)
        cuts.append(min(room, key=lambda at: abs(sums[at] - target), default=cuts[-1]))
    cuts.append(chunks)
    return [rank for rank, (low, high) in enumerate(pairwise(cuts)) for _ in range(low, high)]


def stages_of(chunks: int, stages: int) -> list[int]:
    return [i * stages // chunks for i in range(chunks)]


# --- the time model ---


def run_count(chunks: set[int]) -> int:
    return sum(chunk - 1 not in chunks for chunk in chunks)


def stage_ms(pairs, queries, keys, runs, pair_ms, s, *, local):
    extra = 0.0
    if not local and (pairs > 0 or queries > 0 or keys > 0):
        tokens, floor = min(queries, keys), s.underfill_tokens
        token_part = max(floor - tokens, 0) / floor if floor > 0 else 0.0
        floor = s.underfill_pairs
        pair_part = max(floor - pairs, 0) / floor if floor > 0 else 0.0
        extra = s.underfill_ms * max(token_part, pair_part)
    time = s.stage_overhead_ms + pairs * pair_ms + queries * s.merge_token_ms
    return time + runs * s.interval_ms + extra + (0.0 if local else s.remote_host_ms)


def comm_ms(tokens, runs, token_ms, s):
    if tokens == 0 and runs == 0:
        return 0.0
    return s.comm_overhead_ms + tokens * token_ms + runs * s.interval_ms


def rank_ms(rank, pairs, lengths, owners, stages, ranks, s):
    """Forward and backward milliseconds of one rank."""
    chunks = range(len(owners))
    own = {i for i in chunks if owners[i] == rank}
    if not own:
        return 0.0, 0.0

    def tokens(of):
        return sum(lengths[i] for i in of)

    def attended_by(who):
        queries = [i for i in chunks if owners[i] == who]
        return {k for k in chunks if any(pairs[q][k] > 0 for q in queries)}

    attended = {who: attended_by(who) for who in range(ranks)}
    peers = [who for who in range(ranks) if who != rank]
    remote = []
    for stage in range(max(stages) + 1):
        inside = {i for i in chunks if stages[i] == stage}
        from_peer = [{k for k in attended[rank] & inside if owners[k] == peer} for peer in peers]
        fetched = set().union(*from_peer)
        queries = {q for q in own if any(pairs[q][k] > 0 for k in fetched)}
        to_peer = [own & inside & attended[peer] for peer in peers]
        together = set().union(*to_peer)
        work = sum(int(pairs[q][k]) for q in own for k in fetched)
        fetched_runs = sum(run_count(part) for part in from_peer)
        sent = sum(tokens(part) for part in to_peer) + tokens(together)
        sent_runs = sum(run_count(part) for part in to_peer) + run_count(together)
        if work > 0 or fetched:
            remote.append(
                {
                    "stage": (
                        work,
                        tokens(queries),
                        tokens(fetched),
                        run_count(queries) + fetched_runs,
                    ),
                    "comm": (max(sent, tokens(fetched)), max(sent_runs, fetched_runs)),
                }
            )
    work = sum(int(pairs[q][k]) for q in own for k in own)
    local = (work, tokens(own), tokens(own), 2 * run_count(own))

    end = stage_ms(*local, s.local_pair_ms, s, local=True)
    ready = 0.0
    for each in remote:
        ready += comm_ms(*each["comm"], s.fetch_token_ms, s)
        start = max(end, ready)
        end = start + stage_ms(*each["stage"], s.remote_pair_ms, s, local=False)
        ready = start
    forward = end

    end = latest = 0.0
    for each in remote:
        end += stage_ms(*each["stage"], s.remote_backward_pair_ms, s, local=False)
        latest = max(latest, end + comm_ms(*each["comm"], s.reduce_token_ms, s))
    end += stage_ms(*local, s.local_backward_pair_ms, s, local=True)
    backward = max(end, latest) if remote else end

    owned = tokens(own) * s.owned_token_ms
    return forward + owned / 3.0, backward + owned * (2.0 / 3.0)


def evaluate(pairs, lengths, owners, stages, ranks, s):
    """(score, times per rank) of any owners."""
    times = [rank_ms(r, pairs, lengths, owners, stages, ranks, s) for r in range(ranks)]
    return max(forward + backward for forward, backward in times), times


# --- the search ---


def offered(owners, rank, weights, limit):
    own = [i for i, owner in enumerate(owners) if owner == rank]
    if limit <= 0 or len(own) <= limit:
        return own
    last = len(owners) - 1
    border = [
        i
        for i in own
        if i in (0, last) or owners[i - 1] != rank or owners[min(i + 1, last)] != rank
    ]
    heaviest = sorted(own, key=lambda i: (-weights[i], i))
    return list(dict.fromkeys(border + heaviest))[:limit]


def best_move(owners, price, weights, ranks, limit):
    """(owners, price) of the best improving move of one chunk, or None."""
    scores = [forward + backward for forward, backward in price(owners)[1]]
    slow = scores.index(max(scores))
    best = None
    for chunk in offered(owners, slow, weights, limit):
        for beside in (chunk - 1, chunk + 1):
            if not 0 <= beside < len(owners) or owners[beside] == slow:
                continue
            moved = [*owners[:chunk], owners[beside], *owners[chunk + 1 :]]
            if len(owners) >= ranks and len(set(moved)) < ranks:
                continue
            score = price(moved)[0]
            if score + TIE_MS < price(owners)[0] and (best is None or score + TIE_MS < best[1]):
                best = (moved, score)
    return None if best is None else best[0]


def search(start, pairs, lengths, weights, ranks, s):
    """(owners, stages) over all numbers of fetch stages."""
    chunks = len(lengths)
    most, steps, limit = s.max_stages, s.steps, s.candidates
    if chunks >= 128:
        most, steps, limit = min(most, 2), min(steps, 2), min(limit, 4)
    elif chunks >= 64:
        most, steps, limit = min(most, 3), min(steps, 4), min(limit, 6)
    best = None
    for count in range(1, min(most, chunks) + 1):
        stages = stages_of(chunks, count)
        seen: dict = {}

        def price(owners, stages=stages, seen=seen):
            if tuple(owners) not in seen:
                seen[tuple(owners)] = evaluate(pairs, lengths, owners, stages, ranks, s)
            return seen[tuple(owners)]

        owners, left = start, 0 if ranks >= 8 else max(steps, 0)
        if ranks == 4 and left:
            moved = best_move(owners, price, weights, ranks, min(limit, 2))
            if moved is not None and price(owners)[0] - price(moved)[0] >= 1.0:
                owners, left = moved, left - 1
            else:
                left = 0
        for _ in range(left):
            moved = best_move(owners, price, weights, ranks, limit)
            if moved is None:
                break
            owners = moved
        if best is None or price(owners)[0] + TIE_MS < best[2]:
            best = (owners, stages, price(owners)[0])
    return best[0], best[1]


# --- sparse-indexer models ---


def tile_pairs(queries: int, keys: int, p: WorkloadProfile) -> int:
    k = min(keys, p.max_key_tokens)
    q = max(1, p.workspace_elements // k)

    def rounded(length, step, tile):
        return sum(-(-min(step, length - at) // tile) * tile for at in range(0, length, step))

    return rounded(queries, q, p.query_tile) * rounded(keys, k, p.key_tile)


def profiled_work(lengths, parents, chunk, owners, stages, ranks, p):
    """The work by name; token ranges are sets of tokens."""
    starts = [int(at) for at in np.concatenate(([0], np.cumsum(lengths)))]
    local: list = [set() for _ in range(ranks)]
    received: dict = {}
    queries: dict = {}
    for q, k in slices(parents):
        for i in range(len(owners)):
            q_range = range(max(starts[q], i * chunk), min(starts[q + 1], (i + 1) * chunk))
            for j in range(len(owners)):
                k_range = range(max(starts[k], j * chunk), min(starts[k + 1], (j + 1) * chunk))
                if not q_range or not k_range or (q == k and k_range[0] > q_range[-1]):
                    continue
                rank, source = owners[i], owners[j]
                stage = None if rank == source else stages[j]
                key = (rank, stage, q_range[0], len(q_range))
                queries[key] = queries.get(key, 0) + len(k_range)
                if rank == source:
                    local[rank] |= set(k_range)
                else:
                    received.setdefault((rank, stage, source), set()).update(k_range)
    tiles = [0] * ranks
    for (rank, _, _, length), keys in queries.items():
        tiles[rank] += tile_pairs(length, keys, p)
    own = [
        sum(min(chunk, starts[-1] - i * chunk) for i in range(len(owners)) if owners[i] == r)
        for r in range(ranks)
    ]
    got = [sum(len(t) for (r, _, _), t in received.items() if r == rank) for rank in range(ranks)]
    sent = [sum(len(t) for (_, _, r), t in received.items() if r == rank) for rank in range(ranks)]
    keys = [len(local[rank]) + got[rank] for rank in range(ranks)]
    pairs = {(r, source) for r, _, source in received}
    peers = [len({a + b - rank for a, b in pairs if rank in (a, b)}) for rank in range(ranks)]
    ranges = [
        sum(owner == rank and (i == 0 or owners[i - 1] != rank) for i, owner in enumerate(owners))
        for rank in range(ranks)
    ]

    def worst(rate):
        return max(rate(rank, stage) for rank in range(ranks) for stage in p.stages)

    return {
        "query_flops": worst(lambda r, w: own[r] * w.query_flops),
        "network_bytes": worst(
            lambda r, w: max(got[r], sent[r]) * max(w.fetch_bytes, w.reduce_bytes)
        ),
        "hbm_bytes": worst(lambda r, w: keys[r] * w.key_hbm_bytes),
        "indexer_flops": worst(lambda r, w: tiles[r] * w.tile_pair_flops),
        "peers": max(peers),
        "ranges": max(ranges),
        "memory_bytes": worst(
            lambda r, w: own[r] * w.query_memory_bytes + keys[r] * w.key_memory_bytes
        ),
        "tile_pairs": tiles,
        "key_tokens": keys,
        "sent_tokens": sent,
        "received_tokens": got,
        "each_ranges": ranges,
    }


def profiled_choice(lengths, parents, chunk, generic, stages, ranks, p):
    """(owners, work): the generic answer or a challenger that beats it."""
    sizes = [float(min(chunk, sum(lengths) - i * chunk)) for i in range(len(generic))]
    challengers = [contiguous(sizes, ranks)]
    if len(generic) >= 2 * ranks:
        slabs = contiguous(sizes, 2 * ranks)
        challengers.append([min(slab, 2 * ranks - 1 - slab) for slab in slabs])

    def measure(owners):
        return profiled_work(lengths, parents, chunk, owners, stages, ranks, p)

    def key(work, owners):
        order = ("query_flops", "network_bytes", "hbm_bytes", "indexer_flops", "peers", "ranges")
        return [work[name] for name in order], owners

    base = measure(generic)
    best = (generic, base)
    for owners in challengers:
        work = measure(owners)
        if min(work["each_ranges"]) == 0 or max(work["each_ranges"]) > p.max_ranges:
            continue
        if work["memory_bytes"] <= base["memory_bytes"] and key(work, owners) < key(*best[::-1]):
            best = (owners, work)
    return best


def own(lengths: list[int], parents: list[int], ranks: int, s: OwnershipSettings) -> dict:
    """Owners, stages, start, tokens per rank, and times or (with a profile) work."""
    tokens = sum(lengths)
    chunk = chunk_size(tokens, ranks, s)
    pairs = chunk_pairs(visible(lengths, parents), chunk)
    sizes = [min(chunk, tokens - i * chunk) for i in range(len(pairs))]
    pair_ms = s.local_pair_ms + s.local_backward_pair_ms
    weights = [
        float(row.sum()) * pair_ms + float(size) * s.owned_token_ms
        for row, size in zip(pairs, sizes, strict=True)
    ]
    start = contiguous(weights, ranks)
    owners, stages = search(start, pairs, sizes, weights, ranks, s)
    answer = {"chunk": chunk, "contiguous": start, "stages": stages}
    if s.profile is None:
        answer["score"], times = evaluate(pairs, sizes, owners, stages, ranks, s)
        answer["forward_ms"] = [forward for forward, _ in times]
        answer["backward_ms"] = [backward for _, backward in times]
    else:
        owners, work = profiled_choice(lengths, parents, chunk, owners, stages, ranks, s.profile)
        answer["score"], answer["work"] = float(work["query_flops"]), work
    answer["owners"] = owners
    answer["rank_tokens"] = [
        sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank)
        for rank in range(ranks)
    ]
    return answer
