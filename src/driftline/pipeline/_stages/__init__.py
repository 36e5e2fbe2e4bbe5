"""The stages of a pipeline. One in a file of its own is named by the key that declares it: `counts.py` by `counts`.

Such a file has `declare(section, key)`, which reads the key of a table, and `stages(plan, declared)`, which makes the
stages of a table; they may need those of all other keys.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def own_stage(key: str) -> Any | None:
    """The module that declares this key of tables, if there is one."""
    if not key.isidentifier() or find_spec(f"{__name__}.{key}") is None:
        return None
    module = import_module(f"{__name__}.{key}")
    return module if hasattr(module, "declare") else None
