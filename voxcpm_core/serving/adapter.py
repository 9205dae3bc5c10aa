"""The Triton model's body: validates requests, takes a place for each, and hands them to the engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from voxcpm_core.audio.decode import decode_audio
from voxcpm_core.audio.encode import make_encoder
from voxcpm_core.audio.resample import StreamResampler, output_rate
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.faults import internal_error
from voxcpm_core.prepare import prepare
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.chunker import Chunker
from voxcpm_core.serving.gate import Gate
from voxcpm_core.serving.handle import EngineHandle
from voxcpm_core.serving.inputs import parse_request
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.parameters import allowed_names, reject_unknown, utf8_or_none
from voxcpm_core.serving.poller import CancelPoller
from voxcpm_core.serving.responses import Responses, StreamInfo
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.serving.stream import OutputStream
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.types import EngineRequest, Failed, FloatArray


class Adapter:
    """One instance of the model. `pb_utils` is Triton's Python backend module."""

    def __init__(self, engine: EngineHandle, pb_utils: Any) -> None:
        self._engine = engine
        self._logger = pb_utils.Logger
        self._responses = Responses(pb_utils)
        self._allowed = allowed_names(engine.config.allowed_parameters)
        config = engine.config
        self._gate = Gate(config.max_running, config.max_waiting, engine.stats().pages_total, config.page_size)
        self._pool = SenderPool()
        self._poller = CancelPoller()

    def execute(self, requests: Iterable[Any]) -> None:
        """Answer or queue each request; blocks while the engine is full and never raises."""
        for request in requests:
            # Over JSON, any bytes can come as the id, and the backend decodes them only when asked.
            given_id = utf8_or_none(request.request_id)
            request_id = given_id or f"vx-{secrets.token_hex(8)}"
            channel = Channel(request.get_response_sender(), self._responses, request_id)
            try:
                if given_id is None:
                    raise RequestError(ErrorCode.INVALID_PARAMETER, "the request id is not valid UTF-8")
                self._accept(request, channel)
            except RequestError as error:
                self._refuse(channel, error)
            except Exception as error:
                self._refuse(channel, internal_error(error, request_id, self._logger.log_error))

    def close(self) -> None:
        """Refuse what waits at the gate, end the streams with an error, and stop all threads."""
        self._gate.close(RequestError(ErrorCode.NOT_READY, "the model is shutting down, retry after 1000 ms"))
        self._engine.close()
        if not self._pool.close():
            self._logger.log_warn("some responses could not be sent before the model was closed")
        self._poller.close()

    def _accept(self, request: Any, channel: Channel) -> None:
        parameters = utf8_or_none(request.parameters)
        if parameters is None:
            raise RequestError(ErrorCode.INVALID_PARAMETER, "a request parameter is not valid UTF-8")
        reject_unknown(parameters, self._allowed)
        parsed = parse_request(
            InputTensors(request.inputs()), channel.request_id, request.requested_output_names(), self._decode
        )
        if parsed.options.deadline_ms is not None:
            channel.set_deadline(parsed.options.deadline_ms)
        model, config = self._engine.model, self._engine.config
        prepared = prepare(parsed.speech, model, config, self._engine.tokenizer)
        rate = output_rate(parsed.options.format, parsed.options.sample_rate, model.vae.sample_rate)
        chunker = self._chunker(parsed.options, rate)
        place = self._gate.enter(prepared.num_positions, channel.departure)
        info = StreamInfo(channel.request_id, prepared.seed, rate, parsed.options)
        log = self._logger.log_info
        self._submit(prepared, OutputStream(channel, place, chunker, self._responses, info, self._pool, log))

    def _submit(self, prepared: EngineRequest, stream: OutputStream) -> None:
        """From here on the stream answers, also when the engine refuses."""
        try:
            stream_id = self._engine.submit(prepared, stream.sink)
        except RequestError as error:
            stream.sink(Failed(error))
        except Exception as error:
            stream.sink(Failed(internal_error(error, prepared.request_id, self._logger.log_error)))
        else:
            stream.submitted(lambda: self._engine.cancel(stream_id))
            self._poller.watch(stream)

    def _decode(self, data: bytes) -> FloatArray:
        return decode_audio(data, self._engine.model.vae.encoder_sample_rate, self._engine.config.max_audio_seconds)

    def _chunker(self, options: OutputOptions, rate: int) -> Chunker:
        model = self._engine.model
        model_rate = model.vae.sample_rate
        encoder = make_encoder(options.format, rate, options.stream, options.bitrate)
        resampler = StreamResampler(model_rate, rate) if rate != model_rate else None
        patch_seconds = model.samples_per_patch / model_rate
        return Chunker(options, encoder if options.wants_audio else None, patch_seconds, resampler=resampler)

    def _refuse(self, channel: Channel, error: RequestError) -> None:
        try:
            channel.fail(error)
        except Exception as fault:
            internal_error(fault, channel.request_id, self._logger.log_error)
