"""A verification that goes on from the one before, and leaves its state for the next."""

from __future__ import annotations

from collections.abc import Callable

from hudi_format.errors import HudiFormatError
from hudi_format.storage.base import Storage
from table_verification.verified_state import STATE_PATH, load_state, store_state
from table_verification.verify import Verification, verify_table


def verify_and_remember(storage: Storage, full: bool, say: Callable[[str], None]) -> Verification:
    """`full`: the state of the run before is left aside. Errors as `verify_table`.

    A state that cannot be stored (a table that may only be read) is said and no error.
    """
    state = None if full else load_state(storage)
    if state is None and not full and storage.exists(STATE_PATH):
        say(f"{STATE_PATH} is damaged or of another release: reading everything")
    result = verify_table(storage, say, state)
    if result.state is not None:
        try:
            store_state(storage, result.state)
        except (OSError, HudiFormatError) as error:
            say(f"the next run has to read everything again, {STATE_PATH} cannot be written: {error}")
    return result
