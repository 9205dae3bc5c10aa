"""Types, shapes and codes of what goes back to Triton."""

import numpy as np

from tests.serving.fake_triton import FakeBackend, InferenceResponse
from voxcpm_core.errors import ErrorCode
from voxcpm_core.serving.chunker import Chunk
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.responses import StreamInfo, TritonResponses, chunk_tensors

RESPONSES = TritonResponses(FakeBackend())


def built(chunk: Chunk, options: OutputOptions) -> InferenceResponse:
    return RESPONSES.data(chunk_tensors(chunk, StreamInfo("r1", 2**60, 48_000, options)))


def test_types_and_shapes_are_those_of_the_contract():
    chunk = Chunk(b"\x00\x01\x00", 3, 640, np.zeros((4, 8), np.float32), "stop")
    response = built(chunk, OutputOptions(wants_latents=True))
    types = {t.name(): (t.as_numpy().dtype, t.as_numpy().shape) for t in response.output_tensors}
    assert types == {
        "audio": (np.dtype(object), (1,)), "chunk_index": (np.dtype(np.int32), (1,)),
        "num_samples": (np.dtype(np.int32), (1,)), "sample_rate": (np.dtype(np.int32), (1,)),
        "request_id": (np.dtype(object), (1,)), "is_last": (np.dtype(bool), (1,)),
        "finish_reason": (np.dtype(object), (1,)), "seed": (np.dtype(np.int64), (1,)),
        "latents": (np.dtype(np.float32), (4, 8)),
    }
    outputs = response.outputs()
    del outputs["latents"]
    assert outputs == {
        "audio": b"\x00\x01\x00", "chunk_index": 3, "num_samples": 640, "sample_rate": 48_000, "request_id": b"r1",
        "is_last": True, "finish_reason": b"stop", "seed": 2**60,
    }


def test_a_chunk_in_the_middle():
    outputs = built(Chunk(b"ab", 0, 1, None), OutputOptions()).outputs()
    assert (outputs["is_last"], outputs["finish_reason"], "latents" in outputs) == (False, b"", False)


def test_base64_encodes_the_chunk_by_itself():
    outputs = built(Chunk(b"\xff\x00a", 0, 1, None), OutputOptions(base64=True)).outputs()
    assert outputs["audio"] == b"/wBh"


def test_latents_alone_bring_no_audio():
    chunk = Chunk(b"", 0, 0, np.zeros((2, 8), np.float32))
    outputs = built(chunk, OutputOptions(wants_audio=False, wants_latents=True)).outputs()
    assert "audio" not in outputs
    assert outputs["latents"].shape == (2, 8)


def test_every_code_has_its_triton_code():
    codes = {code.value: RESPONSES.error("m", code.triton_code).error.code for code in ErrorCode}
    invalid = [f"INVALID_{kind}" for kind in ("TEXT", "AUDIO", "LATENTS", "PARAMETER")]
    assert codes == {
        **dict.fromkeys([*invalid, "CONFLICTING_INPUTS", "TOO_LARGE", "FORBIDDEN"], "INVALID_ARG"),
        **dict.fromkeys(("UNKNOWN_VOICE", "UNKNOWN_LORA"), "NOT_FOUND"),
        "ALREADY_EXISTS": "ALREADY_EXISTS",
        **dict.fromkeys(("OVERLOADED", "DRAINING", "NOT_READY"), "UNAVAILABLE"),
        "CANCELLED": "CANCELLED",
        "DEADLINE_EXCEEDED": "CANCELLED",
        "INTERNAL": "INTERNAL",
    }
