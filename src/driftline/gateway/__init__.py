"""The sync gateway: durable push and pull of row deltas over HTTP, tokens, sync rules, flushes to the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.gateway._auth import (
        rotate_secret_file as rotate_secret_file,
        sign as sign,
        signing_secret as signing_secret,
    )
    from driftline.gateway._http import gateway_routes as gateway_routes, openapi_document as openapi_document
    from driftline.gateway._service import Gateway as Gateway
    from driftline.gateway._settings import (
        CompactionSettings as CompactionSettings,
        GatewaySettings as GatewaySettings,
        authenticator as authenticator,
        check_insecure as check_insecure,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
