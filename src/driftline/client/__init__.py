"""A client of the gateway with a local store: works offline, shows its writes at once, syncs when it can.

>>> from driftline.client import Store
>>> store = Store(":memory:", "laptop")
>>> store.put("todos", "1", {"title": "buy milk", "done": False})
>>> store.put("todos", "1", {"done": True})
>>> store.get("todos", "1"), store.pending
({'done': True, 'title': 'buy milk'}, 2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.client._http import (
        FeedReader as FeedReader,
        GatewayClient as GatewayClient,
        Pulled as Pulled,
        SnapshotPage as SnapshotPage,
    )
    from driftline.client._rows import Change as Change, Subscription as Subscription
    from driftline.client._store import Rejected as Rejected, Store as Store
    from driftline.client._sync import Follower as Follower, SyncReport as SyncReport
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
