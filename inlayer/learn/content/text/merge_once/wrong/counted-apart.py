def merge_once(ids, new_id):
    counts = {}
    for pair in zip(ids, ids[1:]):
        counts[pair] = replace(ids, pair, new_id).count(new_id)
    return replace(ids, max(counts, key=counts.get), new_id) if counts else list(ids)


def replace(ids, pair, new_id):
    merged, index = [], 0
    while index < len(ids):
        found = tuple(ids[index : index + 2]) == pair
        merged.append(new_id if found else ids[index])
        index += 2 if found else 1
    return merged
