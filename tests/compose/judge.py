"""`python -m tests.compose.judge TABLE SCRATCH --months N`: is the copied table what the flights make of it?

Asked of four who share no code with the services that wrote it: hudi-rs and Hudi 1.2.0 on Spark each read all
rows, which are compared with the demo's model of the events; and `tidemark verify` reads the files. Prints
one line a check; exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.interop.spark_session import start_judge
from tidemark.demo.comparison import TableDifference, compare_tables
from tidemark.demo.flights import EventStream
from tidemark.demo.model import TableModel
from tidemark.demo.proofs import read_with_hudi_rs
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.table_verification.verify import verify_table


def read_with_spark(table: Path, scratch: Path) -> pa.Table:
    """All live rows, as Hudi on Spark reads the newest snapshot through the metadata table."""
    spark = start_judge(scratch, memory="900m")
    try:
        rows = scratch / "rows"
        frame = spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(str(table))
        frame.write.parquet(str(rows))
        return pq.read_table(rows)
    finally:
        spark.stop()


def _say(name: str, difference: TableDifference) -> bool:
    print(
        f"{name}: {difference.found} rows of {difference.expected}, {difference.missing} missing, "
        f"{difference.unexpected} too many, {difference.doubled} twice, {difference.different} different"
    )
    for example in difference.examples:
        print(f"  {example}")
    return difference.same


def main() -> int:
    """Exit code 0 when all agree."""
    parser = argparse.ArgumentParser(prog="judge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--months", type=int, required=True)
    options = parser.parse_args()
    model = TableModel(EventStream(options.months).event_tables())
    print(f"dead letters expected: {model.counts.dead_letters}")
    same = [_say("hudi-rs", compare_tables(model.rows, read_with_hudi_rs(str(options.table))))]
    same.append(
        _say("Hudi on Spark", compare_tables(model.rows, read_with_spark(options.table, options.scratch)))
    )
    verified = verify_table(open_storage(str(options.table)), lambda _: None)
    print(f"verify: {verified.rows} rows, {verified.entries} index entries, {dict(verified.findings.counts)}")
    for kind, examples in verified.findings.examples.items():
        print(f"  {kind.value}: {examples[:3]}")
    same.append(verified.agrees and verified.rows == model.counts.rows == verified.entries)
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
