"""The blocking methods of a client that are not speech."""

from __future__ import annotations

from typing import Any

from voxcpm_client.control.calls import UnaryCalls
from voxcpm_client.control.requests import (
    control_request,
    encode_request,
    read_control,
    read_latents,
    read_lora,
    read_voice,
    voice_fields,
)
from voxcpm_client.types import AudioFile, FloatArray, Lora, Voice


class ControlMethods:
    """They ask the server's models `voxcpm_control` and `voxcpm_encode`, which must lie in its repository."""

    def _calls(self) -> UnaryCalls:
        raise NotImplementedError

    def control(self, op: str, **fields: Any) -> dict[str, Any]:
        """Any operation of `voxcpm_control` and its answer, for the client's model; `model=None` means every model."""
        calls = self._calls()
        return read_control(calls.infer(control_request(op, calls.model, calls.token, fields)))

    def voices(self) -> list[Voice]:
        """The registered voices, by name."""
        return [read_voice(each) for each in self.control("voices")["voices"]]

    def add_voice(
        self,
        name: str | None = None,
        *,
        prompt_audio: AudioFile | None = None,
        prompt_text: str | None = None,
        prompt_latents: FloatArray | None = None,
        reference_audio: AudioFile | None = None,
        reference_latents: FloatArray | None = None,
    ) -> Voice:
        """Register a voice for the option `voice`: a prompt with its transcript, a reference, or both.

        Without a name the server draws one. Raises AlreadyExists for a name that is taken, Forbidden without the
        right token, and what a request with that prompt and reference would raise.
        """
        fields = voice_fields(
            name, prompt_audio, prompt_text, prompt_latents, reference_audio, reference_latents
        )
        return read_voice(self.control("add_voice", **fields))

    def remove_voice(self, name: str) -> None:
        """Streams that have begun with it go on. Raises UnknownVoice, and Forbidden without the right token."""
        self.control("remove_voice", name=name)

    def loras(self) -> list[Lora]:
        """The registered adapters, by name."""
        return [read_lora(each) for each in self.control("loras")["loras"]]

    def register_lora(
        self, name: str, path: str | None = None, *, uri: str | None = None, sha256: str | None = None
    ) -> Lora:
        """Register an adapter for the option `lora`: a folder below the server's lora_root, or a `uri`.

        `uri` is "hf://owner/name", or "demo://giant" for the example that the server's package has. `sha256` is what
        the file with the weights must have. Raises AlreadyExists for a name that is taken, Forbidden without the right
        token, and InvalidParameter for what the server's model cannot use.
        """
        return read_lora(self.control("register_lora", name=name, path=path, uri=uri, sha256=sha256))

    def unregister_lora(self, name: str) -> None:
        """Streams that have begun with it go on. Raises UnknownLora, and Forbidden without the right token."""
        self.control("unregister_lora", name=name)

    def status(self) -> dict[str, Any]:
        """How full the engines are: totals, and `instances` one by one."""
        return self.control("status")

    def queue(self) -> list[str]:
        """Ids of the requests that wait inside the model. Raises Forbidden without the right token."""
        waiting: list[str] = self.control("queue")["waiting"]
        return waiting

    def cancel(self, request_id: str) -> int:
        """End all requests of that id with Cancelled, whoever sent them; returns how many there were."""
        return int(self.control("cancel", request_id=request_id)["cancelled"])

    def drain(self, deadline_ms: int | None = None) -> int:
        """Have the engines refuse new requests with Draining, for good; returns how many they still have.

        Those finish; what has not within `deadline_ms` ends with Draining, too. `status()["open"]` tells how many are
        left. Raises Forbidden without the right token.
        """
        return int(self.control("drain", deadline_ms=deadline_ms)["open"])

    def info(self) -> dict[str, Any]:
        """What the server runs: model, rates, formats, limits, versions."""
        return {**self.control("info"), "server_version": self._calls().server_version()}

    def encode(self, audio: AudioFile, role: str = "prompt") -> FloatArray:
        """Latents [frames, feat_dim] that stand for an audio file as `prompt_latents`, or, with the role "reference",
        as `reference_latents`: silence fills up the first patch of a prompt, and the last of a reference."""
        calls = self._calls()
        return read_latents(calls.infer(encode_request(audio, role, calls.model)))
