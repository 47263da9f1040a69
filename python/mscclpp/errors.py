"""The exceptions of the library: one family, `Error`, each with a message and a `code`."""

from __future__ import annotations

import builtins

from ._mscclpp import ErrorCode


class Error(RuntimeError):
    """Base class. `code`: an ErrorCode, or the number of the failing layer (errno, cudaError_t, CUresult)."""

    code: ErrorCode | int = ErrorCode.InternalError

    def __init__(self, message: str = "", code: ErrorCode | int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidUsage(Error, ValueError):
    """An argument, the order of calls or the environment is wrong; the message says what to do."""

    code = ErrorCode.InvalidUsage


class Timeout(Error, builtins.TimeoutError):
    """A blocking call timed out."""

    code = ErrorCode.Timeout


class RemoteError(Error):
    """Another rank failed, exited or sent invalid data; the message names it."""

    code = ErrorCode.RemoteError


class Aborted(Error):
    """The object was shut down while the call was blocked."""

    code = ErrorCode.Aborted


class SysError(Error):
    """A failed system call; `code` is an errno."""


class CudaError(Error):
    """A failed call of the CUDA runtime; `code` is a cudaError_t."""


class CuError(Error):
    """A failed call of the CUDA driver; `code` is a CUresult."""


class IbError(Error):
    """A failed verbs call; `code` is an errno."""
