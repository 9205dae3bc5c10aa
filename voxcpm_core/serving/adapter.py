"""The Triton model's body: validates requests, takes a place for each, and hands them to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from voxcpm_core.errors import RequestError, invalid_parameter, shutting_down
from voxcpm_core.faults import internal_error
from voxcpm_core.handle import EngineHandle
from voxcpm_core.lora.store import LoraStore
from voxcpm_core.metrics.instance import Metrics, NoMetrics
from voxcpm_core.prepare import count_target_tokens, prepare
from voxcpm_core.serving.attempts import attempts
from voxcpm_core.serving.chaining import vae_context, with_latents
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.drain import Drain
from voxcpm_core.serving.gate import Gate, Place
from voxcpm_core.serving.inputs import ParsedRequest, parse_request
from voxcpm_core.serving.intake import Intake, most_positions
from voxcpm_core.serving.meters import Meter, Meters
from voxcpm_core.serving.output import Output
from voxcpm_core.serving.parameters import allowed_names, reject_unknown, request_id_of, utf8_or_none
from voxcpm_core.serving.poller import CancelPoller
from voxcpm_core.serving.responses import Responses, TritonResponses
from voxcpm_core.serving.roster import Roster
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.serving.stream import OutputStream
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.text.normalizer import require_normalizer
from voxcpm_core.threads import in_thread
from voxcpm_core.tracing.context import trace_context
from voxcpm_core.tracing.tracing import NoTracing, Tracing
from voxcpm_core.types import EngineRequest, Failed, FloatArray
from voxcpm_core.voices import VoiceStore
from voxcpm_core.voices.speech import with_voice


@dataclass(frozen=True)
class _Arrival:
    """A request in the gate's line."""

    channel: Channel
    parsed: ParsedRequest
    prepared: EngineRequest
    output: Output
    place: Place


class Adapter:
    """One instance of the model. `pb_utils` is Triton's Python backend module."""

    def __init__(
        self, engine: EngineHandle, pb_utils: Any, metrics: Metrics | None = None, tracing: Tracing | None = None
    ) -> None:
        self._engine = engine
        self._metrics = metrics or NoMetrics()
        self._tracing = tracing or NoTracing()
        self._logger = pb_utils.Logger
        self.roster = Roster()
        self.voices = VoiceStore(engine.config.voices, engine.config.max_voices, engine.config.max_voices_mib)
        self.loras = LoraStore(engine.config.lora_root if engine.config.num_lora_slots else "")
        self._responses = TritonResponses(pb_utils)
        self._allowed = allowed_names(engine.config.allowed_parameters)
        config = engine.config
        self._gate = Gate(config.max_running, config.max_waiting, engine.stats().pages_total, config.kv_page_size)
        self._intake = Intake(engine.model, config)
        self.drain = Drain(self._refuse_all, self._dismiss_all)
        self._pool = SenderPool()
        self._poller = CancelPoller()

    def execute(self, requests: Iterable[Any], responses: Responses | None = None) -> None:
        """Answer or queue each request; blocks while the engine is full and never raises.

        `requests` are Triton's own, or like them and with the `responses` that their senders take.
        """
        for request in requests:
            enter = self._line_up(request, responses or self._responses)
            if enter is not None:
                enter()

    def execute_apart(self, request: Any, responses: Responses) -> None:
        """As `execute`, but it is a thread of the request's own that blocks: the next request may line up behind it."""
        enter = self._line_up(request, responses)
        if enter is None:
            return
        try:
            in_thread(enter, "voxcpm-entering")
        except RuntimeError:  # no thread is to be had; who has lined up must enter
            enter()

    def decode(self, data: bytes) -> FloatArray:
        """An audio file as mono samples [samples] at the encoder's rate; takes seconds at times. See `AudioDecoder`."""
        return self._intake.decode(data)

    def cancel(self, request_id: str) -> int:
        """End all requests of that id with CANCELLED; returns how many there are."""
        num_cancelled = self.roster.cancel(request_id)
        self.look_for_departures()
        return num_cancelled

    def look_for_departures(self) -> None:
        """Ask at once who has gone: of somebody it is known."""
        self._gate.look_for_departures()
        self._poller.poll_now()

    def close(self) -> None:
        """Refuse what waits at the gate, end the streams with an error, and stop all threads."""
        self.drain.close()
        self._gate.close(shutting_down())
        self._intake.close()
        self._engine.close()
        if not self._pool.close():
            self._logger.log_warn("some responses could not be sent before the model was closed")
        self._poller.close()

    def _refuse_all(self, error: RequestError) -> None:
        self._metrics.drains()
        self._gate.close(error)

    def _dismiss_all(self, error: RequestError) -> None:
        self.roster.dismiss_all(error)
        self.look_for_departures()

    def _line_up(self, request: Any, responses: Responses) -> Callable[[], None] | None:
        """Read the request and put it into the gate's line; what is returned waits there and never raises.

        None when the request has been answered.
        """
        # Over JSON, any bytes can come as the id, and the backend decodes them only when asked.
        given_id = utf8_or_none(request.request_id)
        sender, request_id = request.get_response_sender(), request_id_of(given_id)
        channel = Channel(sender, responses, request_id, self._meter(request, request_id))
        self.roster.arrived(channel)
        with channel.answering(self._logger.log_error):
            if given_id is None:
                raise invalid_parameter("the request id is not valid UTF-8")
            arrival = self._read(request, channel)
            return lambda: self._enter(arrival)
        self.roster.forget(channel)
        return None

    def _meter(self, request: Any, request_id: str) -> Meter:
        meter, spans = self._metrics.request(), self._tracing.request(trace_context(request), request_id)
        return meter if spans is None else Meters(meter, spans)

    def _read(self, request: Any, channel: Channel) -> _Arrival:
        parameters = utf8_or_none(request.parameters)
        if parameters is None:
            raise invalid_parameter("a request parameter is not valid UTF-8")
        reject_unknown(parameters, self._allowed)
        parsed = parse_request(InputTensors(request.inputs()), channel.request_id, request.requested_output_names())
        if parsed.options.deadline_ms is not None:
            channel.set_deadline(parsed.options.deadline_ms)
        if parsed.normalize:
            require_normalizer()
        engine = self._engine
        if parsed.voice is not None:
            speech = with_voice(parsed.speech, self.voices.get(parsed.voice), engine.model)
            parsed = replace(parsed, speech=speech)
        if parsed.lora is not None:
            parsed = replace(parsed, speech=replace(parsed.speech, lora=self.loras.get(parsed.lora).ref))
        output = Output(channel.request_id, parsed.options, engine.model)
        prepared = prepare(parsed.speech, engine.model, engine.config, engine.tokenizer)
        num_positions = prepared.num_positions
        if not parsed.is_complete:
            num_positions = most_positions(prepared, parsed, engine.model, engine.config)
        return _Arrival(channel, parsed, prepared, output, self._gate.line_up(num_positions))

    def _enter(self, arrival: _Arrival) -> None:
        channel, parsed, place = arrival.channel, arrival.parsed, arrival.place
        with channel.answering(self._logger.log_error):
            try:
                place.enter(channel.departure)
                self.roster.placed(channel, place)
                stream = OutputStream(channel, place, arrival.output, self._pool, self._logger.log_info)
                if parsed.is_complete:
                    self._run(stream, arrival.prepared, parsed, arrival.output)
                else:
                    self._intake.start(lambda: self._complete(parsed, channel, arrival, stream))
            except Exception:
                place.leave()
                raise
        if channel.closed:
            self.roster.forget(channel)

    def _complete(self, parsed: ParsedRequest, channel: Channel, arrival: _Arrival, stream: OutputStream) -> None:
        """Decode and normalise, in a thread of the intake."""
        engine = self._engine
        try:
            speech = self._intake.complete(parsed, channel.departure)
            if parsed.options.is_chained:
                speech = with_latents(speech, engine)
            prepared = prepare(speech, engine.model, engine.config, engine.tokenizer)
            arrival.place.shrink(prepared.num_positions)
            self._run(stream, prepared, replace(parsed, speech=speech), arrival.output)
        except RequestError as error:
            stream.sink(Failed(error))
        except Exception as error:
            stream.sink(Failed(internal_error(error, f"request {channel.request_id!r}", self._logger.log_error)))

    def _run(self, stream: OutputStream, prepared: EngineRequest, parsed: ParsedRequest, output: Output) -> None:
        if parsed.options.is_chained:
            output.chain(stream.id, vae_context(parsed.speech, self._engine))
        tries: tuple[EngineRequest, ...] = (prepared,)
        if parsed.retry_badcase:
            tries = attempts(prepared, count_target_tokens(parsed.speech, self._engine.tokenizer))
        stream.run(self._engine, tries)
        self._poller.watch(stream)
