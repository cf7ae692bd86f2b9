"""Errors that the service's event loop reports, and the one that it ignores."""

from __future__ import annotations

import asyncio
import logging
import ssl

import pytest

from gitops_ds.service import event_loop


class Connection(asyncio.Transport):
    def __init__(self, *, closed: bool) -> None:
        super().__init__()
        self._closed = closed

    def is_closing(self) -> bool:
        return self._closed


HANDLE = RuntimeError(
    "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is "
    "closed"
)


@pytest.mark.parametrize(
    ("error", "closed", "reported"),
    [
        (ssl.SSLError("bad record"), True, False),
        (ssl.SSLError("bad record"), False, True),
        (HANDLE, False, False),
        (RuntimeError("another"), False, True),
    ],
)
def test_only_a_tls_error_on_a_closed_connection_is_not_reported(
    caplog: pytest.LogCaptureFixture, error: Exception, *, closed: bool, reported: bool
) -> None:
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.ERROR, "asyncio"):
            event_loop.report(
                loop,
                {
                    "message": "Fatal error on SSL protocol",
                    "exception": error,
                    "transport": Connection(closed=closed),
                },
            )
            event_loop.report(loop, {"message": "Task exception was never retrieved"})
    finally:
        loop.close()
    messages = [record.getMessage().splitlines()[0] for record in caplog.records]
    assert messages == ["Fatal error on SSL protocol"] * reported + [
        "Task exception was never retrieved"
    ]
