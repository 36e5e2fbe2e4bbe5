"""The base of the HTTP services: server processes, limits on connections, bodies and rates, metrics, JSON errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.http._requests import (
        EXCEPTION_HANDLERS as EXCEPTION_HANDLERS,
        STATUS_OF_CODE as STATUS_OF_CODE,
        Metrics as Metrics,
        RateLimiter as RateLimiter,
        RequestMiddleware as RequestMiddleware,
        clear as clear,
        error_body as error_body,
        error_headers as error_headers,
        error_members as error_members,
        prometheus_text as prometheus_text,
        public_error as public_error,
        read_body as read_body,
        stream_body as stream_body,
    )
    from driftline.http._server import (
        ConnectionLimits as ConnectionLimits,
        ServerOptions as ServerOptions,
        Service as Service,
        listen as listen,
        serve as serve,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
