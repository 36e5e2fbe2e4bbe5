"""HTTP services and pages: `driftline serve` (compare service, gateway) and the console of `driftline ui`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.web._app import application as application
    from driftline.web._compare import CompareLimits as CompareLimits
    from driftline.web._console.app import Console as Console, Guard as Guard
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
