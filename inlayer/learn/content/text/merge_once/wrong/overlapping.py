from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    merged, used = [], False
    for left, right in zip(ids, [*ids[1:], None]):
        if (left, right) == pair:
            merged.append(new_id)
            used = True
        elif used:
            used = False
        else:
            merged.append(left)
    return merged
