"""Adds up the entries of each key by the rule of their partition."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.metadata_table.partitions.partition import KeyFold
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries


def folded(entries: Entries, fold: KeyFold, source: str) -> Entries:
    """The living entries of sorted ones (`Entries.all_sorted`), one of each key. Raises as the rule."""
    firsts = np.flatnonzero(np.append(True, np.asarray(pc.not_equal(entries.keys[:-1], entries.keys[1:]))))
    ends = np.append(firsts[1:], len(entries))
    is_alone = ends - firsts == 1
    if is_alone.all():
        return entries.live()
    alone = pa.array(firsts[is_alone])
    several = itertools.starmap(slice, zip(firsts[~is_alone].tolist(), ends[~is_alone].tolist(), strict=True))
    values = [fold.of_key(entries.values[of_key].to_pylist(), source) for of_key in several]
    summed = Entries(entries.keys.take(pa.array(firsts[~is_alone])), pa.array(values, pa.binary()))
    rest = Entries(entries.keys.take(alone), entries.values.take(alone))
    return Entries.concat([rest, summed]).all_sorted().live()
