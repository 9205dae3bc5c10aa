"""Why a server could not be started."""


class ServerError(RuntimeError):
    """No usable tritonserver, or one that did not come up; says what to do, or ends with the tail of its log."""
