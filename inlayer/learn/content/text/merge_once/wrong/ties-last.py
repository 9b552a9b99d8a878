def merge_once(ids, new_id):
    counts = {}
    best = None
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
        if best is None or counts[pair] >= counts[best]:
            best = pair
    merged, index = [], 0
    while index < len(ids):
        if tuple(ids[index : index + 2]) == best:
            merged.append(new_id)
            index += 2
        else:
            merged.append(ids[index])
            index += 1
    return merged
