def merge_once(ids, new_id):
    counts = {}
    best = None
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
        if best is None or counts[pair] >= counts[best]:
            best = pair
    merged, place = [], 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == best:
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged
