"""The errors that kubesim raises across its modules.

KubesimError
├── ApiError         the client's: a server refused a request, or cannot be reached
├── KubeconfigError  a kubeconfig cannot be used
├── SelectorError    a labelSelector does not parse
├── DecodeError      a body does not fit the types of its kind
└── StatusError      the API server's: a request ends in a Failure (kubesim.apiserver.errors)
"""

from __future__ import annotations


class KubesimError(Exception):
    """Any error of kubesim's own."""


class ApiError(KubesimError):
    """A request that the API server refused or that did not reach it.

    Attributes:
        status: The HTTP status, 4xx or 5xx; 0 if no server answered.
        reason: The reason of the `Status`, e.g. NotFound.
        message: The message of the `Status`.
        retry_after_s: Seconds after which the server wants to be asked again; 0 if it does not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def unreachable(self) -> bool:
        return self.status == 0


class KubeconfigError(KubesimError):
    """A kubeconfig that cannot be used; the message names the file, what is wrong and what to do."""


class SelectorError(KubesimError):
    """A label selector that does not parse; the message is the real server's."""


class DecodeError(KubesimError):
    """A value that does not have its field's type; the message is in the words of Go's decoder.

    Attributes:
        conversion: The message for a strategic merge patch, which Go converts and does not decode.
    """

    def __init__(self, message: str, conversion: str = "") -> None:
        super().__init__(message)
        self.conversion = conversion or message
