from collections import Counter


def merge_once(ids, new_id):
    while True:
        counts = Counter(zip(ids, ids[1:]))
        if not counts or max(counts.values()) == 1:
            return list(ids)
        pair = max(counts, key=counts.get)
        merged, index = [], 0
        while index < len(ids):
            if tuple(ids[index : index + 2]) == pair:
                merged.append(new_id)
                index += 2
            else:
                merged.append(ids[index])
                index += 1
        ids = merged
        new_id += 1
