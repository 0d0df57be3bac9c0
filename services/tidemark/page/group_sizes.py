"""The sizes of the file groups: a histogram, the largest groups, the largest partitions. The document is
bounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final

LARGEST: Final = 12
PARTITIONS: Final = 12
_MIB: Final = 1 << 20
_EDGES: Final = (64 << 10, 256 << 10, 1 * _MIB, 4 * _MIB, 16 * _MIB, 64 * _MIB, 128 * _MIB, 512 * _MIB)


def group_sizes(slices: Sequence[tuple[str, str, int]], target_bytes: int) -> dict[str, Any]:
    """The document. `slices`: (partition path, file id, bytes of the latest slice) of every file group.
    `target_bytes`: the size up to which base files grow.
    """
    counts = [0] * (len(_EDGES) + 1)
    partitions: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for partition_path, _, size in slices:
        counts[sum(size >= edge for edge in _EDGES)] += 1
        partitions[partition_path][0] += 1
        partitions[partition_path][1] += size
    bounds = [0, *_EDGES]
    return {
        "file_groups": len(slices),
        "bytes": sum(size for _, _, size in slices),
        "target_bytes": target_bytes,
        "partitions": len(partitions),
        "histogram": [
            {"from": low, "to": high, "file_groups": count}
            for low, high, count in zip(bounds, [*bounds[1:], None], counts, strict=True)
        ],
        "largest": [
            {"partition_path": partition_path, "file_id": file_id, "bytes": size}
            for partition_path, file_id, size in nlargest(LARGEST, slices, key=lambda group: group[2])
        ],
        "largest_partitions": [
            {"partition_path": name, "file_groups": count, "bytes": size}
            for name, (count, size) in nlargest(PARTITIONS, partitions.items(), key=lambda item: item[1][1])
        ],
    }
