"""One tritonserver process: start, wait until it is ready, stop it with everything that it started."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from voxcpm_client.server import log, ports, scratch, shared_memory
from voxcpm_client.server.errors import ServerError
from voxcpm_client.server.installation import find_installation
from voxcpm_client.server.listening import group_listens
from voxcpm_client.server.repository import path_for_shell

_POLL_S = 0.05
_TRITON_EXIT_TIMEOUT_S = 30  # of --exit-timeout-secs
_UNLOAD_S = 5.0  # what tritonserver may take on top; past its time it can hang while a stream runs


class TritonServer:
    """A tritonserver on a model repository. A port of 0 is replaced by a free one.

    `settings` (VOXCPM_*) are set on top of this process's environment. The log goes to `log_file`, or to this
    process's stderr when that is None. Addresses are `host:port`, as tritonclient takes them.
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
        asked = {"--http-port": http_port, "--grpc-port": grpc_port, "--metrics-port": metrics_port}
        self._ports = ports.with_free_ports(host, asked)
        self.log_file = log_file
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._relay: log.LogRelay | None = None
        self._cleanup = ExitStack()

    @property
    def http_url(self) -> str:
        return self._address("--http-port")

    @property
    def grpc_url(self) -> str:
        return self._address("--grpc-port")

    @property
    def metrics_url(self) -> str:
        return self._address("--metrics-port")

    @property
    def pid(self) -> int:
        """The process id of tritonserver, which also names its process group."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_timeout_s(self) -> int:
        """How long tritonserver lets running streams go on when it is told to end."""
        given = re.findall(r"--exit-timeout-secs[= ](\d+)", " ".join(self._arguments))
        return int(given[-1]) if given else _TRITON_EXIT_TIMEOUT_S

    def start(self) -> None:
        """Start the process; it is not ready yet.

        Raises ServerError when no usable server is installed or a port is taken.
        """
        installation = find_installation(os.environ)
        ports.require_free(self._host, self._ports)
        shared_memory.sweep_abandoned()
        scratch.sweep_abandoned()
        folder = Path(self._cleanup.enter_context(scratch.new_folder()))
        prefix = shared_memory.new_prefix()
        self._cleanup.callback(shared_memory.sweep, prefix)
        command = [
            str(installation.binary),
            f"--model-repository={path_for_shell(self._repository, folder / 'models')}",
            *installation.lay_out_backends(folder / "backends"),
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            *self._address_arguments(),
            *self._arguments,
        ]
        output = self._cleanup.enter_context(self.log_file.open("wb")) if self.log_file is not None else None
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **installation.environment, **self._settings},
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if self._process.stdout is not None:
            self._relay = log.LogRelay(self._process.stdout)
            self._relay.start()

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
        if self._relay is not None:
            self._relay.started()

    def is_ready(self) -> bool:
        """Whether this server, and not another on its port, answers and all its models are ready."""
        if self._process is None or self.exit_code() is not None:
            return False
        port = self._ports["--http-port"]
        connection = http.client.HTTPConnection(_reachable(self._host), port, timeout=5)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200 and group_listens(self.pid, port)
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

    def stop(self, grace_s: float | None = None) -> None:
        """SIGTERM, then after `grace_s` SIGKILL; in the end nothing of the server's process group is left.

        None waits a little longer than `exit_timeout_s`. An exception meanwhile, as of Ctrl-C, ends the waiting.
        """
        try:
            if self._process is not None:
                try:
                    self._end(grace_s if grace_s is not None else self.exit_timeout_s + _UNLOAD_S)
                finally:
                    self._kill_group()
        finally:
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
        assert self._process is not None
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._relay is not None:
            self._relay.join(timeout=2)
            self._relay = None

    def _address(self, option: str) -> str:
        return f"{_reachable(self._host)}:{self._ports[option]}"

    def _address_arguments(self) -> list[str]:
        addresses = [f"--{service}-address={self._host}" for service in ("http", "grpc", "metrics")]
        return addresses + [f"{option}={port}" for option, port in self._ports.items()]

    def _reason(self) -> str:
        if self.log_file is not None:
            return log.failure(self.log_file)
        return log.told(self._relay.causes()) if self._relay is not None else ""


def _reachable(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host
