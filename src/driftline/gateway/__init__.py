"""The sync gateway: durable push and pull of deltas, token checks, sync rules, flush to the lake, HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.gateway._auth import (
        parse_secrets as parse_secrets,
        read_secret_file as read_secret_file,
        rotate_secret_file as rotate_secret_file,
        sign as sign,
    )
    from driftline.gateway._http import gateway_routes as gateway_routes, openapi_document as openapi_document
    from driftline.gateway._lake.process import CompactionSettings as CompactionSettings
    from driftline.gateway._service import Gateway as Gateway
    from driftline.gateway._settings import (
        MIB as MIB,
        SECRET_VARIABLE as SECRET_VARIABLE,
        GatewaySettings as GatewaySettings,
        authenticator as authenticator,
        check_insecure as check_insecure,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
