from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    merged, index = [], 0
    while index < len(ids):
        if tuple(ids[index : index + 2]) == pair:
            merged.append(256)
            index += 2
        else:
            merged.append(ids[index])
            index += 1
    return merged
