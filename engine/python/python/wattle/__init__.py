"""Wattle: an embedded, transactional, ordered key-value store whose data may outgrow memory."""

import random as _random
import time as _time

from ._wattle import (
    ClosedError,
    Conflict,
    CorruptionError,
    Engine,
    Error,
    KeyExists,
    Range,
    ReadOnlyError,
    Transaction,
    Tree,
    open,
)

__all__ = [
    "ClosedError",
    "Conflict",
    "CorruptionError",
    "Engine",
    "Error",
    "KeyExists",
    "Range",
    "ReadOnlyError",
    "Transaction",
    "Tree",
    "open",
    "transact",
]


def transact(engine, work, *, attempts=100, **options):
    """Runs work(txn) in a transaction and commits it; after a conflict it runs again.

    Gives the result of work. After the last attempt the Conflict is raised.
    """
    for attempt in range(1, attempts + 1):
        try:
            with engine.begin(**options) as txn:
                return work(txn)
        except Conflict:
            if attempt == attempts:
                raise
            _time.sleep(_random.random() * min(0.0001 * 2**attempt, 0.05))
    raise ValueError(f"attempts is at least 1, not {attempts}")
