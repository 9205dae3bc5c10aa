"""The asyncio twins of `blocking.py`."""

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


class AsyncControlMethods:
    """Each is its blocking namesake's twin."""

    def _calls(self) -> UnaryCalls:
        raise NotImplementedError

    async def acontrol(self, op: str, **fields: Any) -> dict[str, Any]:
        calls = self._calls()
        return read_control(await calls.ainfer(control_request(op, calls.model, calls.token, fields)))

    async def avoices(self) -> list[Voice]:
        return [read_voice(each) for each in (await self.acontrol("voices"))["voices"]]

    async def aadd_voice(
        self,
        name: str | None = None,
        *,
        prompt_audio: AudioFile | None = None,
        prompt_text: str | None = None,
        prompt_latents: FloatArray | None = None,
        reference_audio: AudioFile | None = None,
        reference_latents: FloatArray | None = None,
    ) -> Voice:
        fields = voice_fields(
            name, prompt_audio, prompt_text, prompt_latents, reference_audio, reference_latents
        )
        return read_voice(await self.acontrol("add_voice", **fields))

    async def aremove_voice(self, name: str) -> None:
        await self.acontrol("remove_voice", name=name)

    async def aloras(self) -> list[Lora]:
        return [read_lora(each) for each in (await self.acontrol("loras"))["loras"]]

    async def aregister_lora(
        self, name: str, path: str | None = None, *, uri: str | None = None, sha256: str | None = None
    ) -> Lora:
        return read_lora(await self.acontrol("register_lora", name=name, path=path, uri=uri, sha256=sha256))

    async def aunregister_lora(self, name: str) -> None:
        await self.acontrol("unregister_lora", name=name)

    async def astatus(self) -> dict[str, Any]:
        return await self.acontrol("status")

    async def aqueue(self) -> list[str]:
        waiting: list[str] = (await self.acontrol("queue"))["waiting"]
        return waiting

    async def acancel(self, request_id: str) -> int:
        return int((await self.acontrol("cancel", request_id=request_id))["cancelled"])

    async def adrain(self, deadline_ms: int | None = None) -> int:
        return int((await self.acontrol("drain", deadline_ms=deadline_ms))["open"])

    async def ainfo(self) -> dict[str, Any]:
        return {**await self.acontrol("info"), "server_version": await self._calls().aserver_version()}

    async def aencode(self, audio: AudioFile, role: str = "prompt") -> FloatArray:
        calls = self._calls()
        return read_latents(await calls.ainfer(encode_request(audio, role, calls.model)))
