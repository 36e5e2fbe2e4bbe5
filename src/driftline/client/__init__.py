"""A client of the gateway with a store of its own: works offline, shows its writes at once, syncs when it can.

>>> store = Store(":memory:", "laptop")
>>> store.put("todos", "1", {"title": "buy milk", "done": False})
>>> store.put("todos", "1", {"done": True})
>>> store.get("todos", "1"), store.pending
({'done': True, 'title': 'buy milk'}, 2)
"""

from driftline.client._store import Change, Rejected, Store
from driftline.client._sync import Follower, SyncReport

__all__ = ["Change", "Follower", "Rejected", "Store", "SyncReport"]
