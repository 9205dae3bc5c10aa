"""Messages over a stream socket. A message that has come whole is read with one system call: one comes each step."""

from __future__ import annotations

import socket
import struct

_HEADER = struct.Struct("<I")  # bytes that follow
_BUFFER_BYTES = 1 << 16


class Wire:
    """One end. One thread sends at a time, and one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray(_BUFFER_BYTES)
        self._num_read = 0

    def send(self, data: bytes) -> None:
        """Raises OSError when the other side has gone."""
        self._socket.sendall(_HEADER.pack(len(data)) + data)

    def announce(self) -> None:
        """Wake the receiver ahead of a message that is being made: a sleeping core takes a tenth of a ms to wake up."""
        self._socket.sendall(_HEADER.pack(0))

    def receive(self) -> bytes:
        """Block for the next message; raises EOFError or OSError when the other side has gone."""
        while not (num_bytes := self._next_length()):
            self._drop(_HEADER.size)  # it was an announcement
        end = _HEADER.size + num_bytes
        self._fill(end)
        message = bytes(memoryview(self._buffer)[_HEADER.size : end])
        self._drop(end)
        return message

    def close(self) -> None:
        self._socket.close()

    def _next_length(self) -> int:
        self._fill(_HEADER.size)
        length: int = _HEADER.unpack_from(self._buffer)[0]
        return length

    def _drop(self, num_bytes: int) -> None:
        rest = self._num_read - num_bytes
        self._buffer[:rest] = self._buffer[num_bytes : self._num_read]
        self._num_read = rest

    def _fill(self, num_bytes: int) -> None:
        if num_bytes > len(self._buffer):
            self._buffer.extend(bytes(num_bytes - len(self._buffer)))
        while self._num_read < num_bytes:
            num_new = self._socket.recv_into(memoryview(self._buffer)[self._num_read :])
            if not num_new:
                raise EOFError
            self._num_read += num_new
