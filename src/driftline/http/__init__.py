"""What every HTTP service of driftline stands on: processes, connections, bodies, rates, one shape of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.http._metrics import Metrics as Metrics, clear as clear, exposition as exposition
    from driftline.http._requests import (
        EXCEPTION_HANDLERS as EXCEPTION_HANDLERS,
        STATUS_OF_CODE as STATUS_OF_CODE,
        RateLimiter as RateLimiter,
        RequestFrame as RequestFrame,
        error_body as error_body,
        error_headers as error_headers,
        public_error as public_error,
        read_limited as read_limited,
        refetch_members as refetch_members,
        timed_chunks as timed_chunks,
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
