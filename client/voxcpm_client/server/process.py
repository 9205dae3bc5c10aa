"""One tritonserver process: start, wait until it is ready, stop it with everything that it started."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from voxcpm_client.server import log, shared_memory
from voxcpm_client.server.errors import ServerError
from voxcpm_client.server.installation import find_installation

_POLL_S = 0.05


class TritonServer:
    """A tritonserver on a model repository. A port of 0 is replaced by a free one.

    `settings` (VOXCPM_*) are set on top of this process's environment. The log goes to `log_file`, or to this
    process's own output when that is None. Addresses are `host:port`, as tritonclient takes them.
    """

    def __init__(
        self,
        repository: Path,
        *,
        settings: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        http_port: int = 0,
        grpc_port: int = 0,
        metrics_port: int = 0,
        log_file: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._repository = repository
        self._settings = dict(settings or {})
        self._host = host
        ports = _with_free_ports(host, [http_port, grpc_port, metrics_port])
        self._http_port, self._grpc_port, self._metrics_port = ports
        self.log_file = log_file
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._cleanup = ExitStack()

    @property
    def http_url(self) -> str:
        return self._address(self._http_port)

    @property
    def grpc_url(self) -> str:
        return self._address(self._grpc_port)

    @property
    def metrics_url(self) -> str:
        return self._address(self._metrics_port)

    @property
    def pid(self) -> int:
        """The process id of tritonserver, which also names its process group."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; it is not ready yet. Raises ServerError when no usable server is installed."""
        installation = find_installation(os.environ)
        shared_memory.sweep_abandoned()
        backends = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="voxcpm-backends-")))
        prefix = shared_memory.new_prefix()
        self._cleanup.callback(shared_memory.sweep, prefix)
        command = [
            str(installation.binary),
            f"--model-repository={self._repository}",
            *installation.lay_out_backends(backends),
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            *self._address_arguments(),
            *self._arguments,
        ]
        output = self._cleanup.enter_context(self.log_file.open("wb")) if self.log_file is not None else None
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **installation.environment, **self._settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Block until every model is ready. Raises ServerError when the process ends or the time is over before."""
        deadline_s = time.monotonic() + (timeout_s if timeout_s is not None else float("inf"))
        while not self.is_ready():
            code = self.exit_code()
            if code is not None:
                raise ServerError(f"tritonserver ended with exit status {code} before it was ready{self._reason()}")
            if time.monotonic() > deadline_s:
                raise ServerError(f"tritonserver was not ready after {timeout_s:g} s{self._reason()}")
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Whether the server answers and all its models are ready."""
        connection = http.client.HTTPConnection(_reachable(self._host), self._http_port, timeout=5)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def exit_code(self) -> int | None:
        """The exit status of a process that has ended; None while it runs. The process stays unreaped."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.pid, options)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait(self) -> int:
        """Block until the process ends by itself; returns its exit status."""
        while (code := self.exit_code()) is None:
            time.sleep(_POLL_S)
        return code

    def stop(self, grace_s: float = 20.0) -> None:
        """SIGTERM, then after `grace_s` SIGKILL; in the end nothing of the server's process group is left."""
        if self._process is not None:
            try:
                self._end(grace_s)
            finally:
                self._kill_group()
                self._process.wait()
                self._process = None
        self._cleanup.close()

    def __enter__(self) -> TritonServer:
        try:
            self.start()
            self.wait_until_ready(timeout_s=300)
        except BaseException:
            self.stop(grace_s=1)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, grace_s: float) -> None:
        os.kill(self.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        while self.exit_code() is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)

    def _kill_group(self) -> None:
        # The leader is not reaped yet, so its id cannot name a foreign process group.
        os.killpg(self.pid, signal.SIGKILL)

    def _address(self, port: int) -> str:
        return f"{_reachable(self._host)}:{port}"

    def _address_arguments(self) -> list[str]:
        return [
            f"--http-address={self._host}",
            f"--http-port={self._http_port}",
            f"--grpc-address={self._host}",
            f"--grpc-port={self._grpc_port}",
            f"--metrics-address={self._host}",
            f"--metrics-port={self._metrics_port}",
        ]

    def _reason(self) -> str:
        return log.failure(self.log_file) if self.log_file is not None else ""


def _reachable(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host


def _with_free_ports(host: str, ports: Sequence[int]) -> list[int]:
    """`ports` with each 0 replaced; all are held until the last is chosen, so that they differ."""
    with ExitStack() as held:
        chosen = []
        for port in ports:
            if port == 0:
                probe = held.enter_context(socket.socket())
                probe.bind((host, 0))
                port = probe.getsockname()[1]
            chosen.append(port)
    return chosen
