"""Odd JSON for /generate and /generate_stream: values of any type and depth, unknown keys, broken bodies."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping

from hypothesis import strategies as st

from tests.fuzz.odd_grpc import ANSWER_TIMEOUT_S, MOST_MS, rarely
from voxcpm_client.server import TritonServer

VERBS = ("generate", "generate_stream")
# Shallow: of JSON nested 100,000 deep Triton 2.51 dies before the model sees the request.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-2, 40) | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
RIGHT_VALUES = {
    "BYTES": st.text(max_size=20), "BOOL": st.booleans(), "INT32": st.integers(-2, 40), "INT64": st.integers(),
    "FP32": st.floats(-1, 3) | st.lists(st.floats(-1, 1), max_size=128),
}
KNOWN_VALUES = {
    "format": ["mp3", "wav", "flac", "opus", "pcm_f32le"], "encoding": ["raw", "base64"], "prompt_text": ["Hello."],
    "prompt_audio": ["UklGRg=="], "sample_rate": [8000, 16000], "bitrate": [64],
}


@st.composite
def bodies(draw: st.DrawFn, types: Mapping[str, str]) -> tuple[str, bytes]:
    """A verb and what is posted to it: a good request made odd in a few ways; most of them reach the model."""
    verb = draw(st.sampled_from(VERBS))
    body: dict[str, object] = {"target_text": "Hello.", "max_length": 2, "encoding": "base64"}
    if verb == "generate":
        body["stream"] = False
    names = st.sampled_from([name for name in sorted(types) if name != "deadline_ms"])
    for name in draw(st.lists(names, max_size=4, unique=True)):
        right = st.sampled_from(KNOWN_VALUES[name]) if name in KNOWN_VALUES else RIGHT_VALUES[types[name]]
        body[name] = draw(VALUES if draw(rarely(6)) else right)
    if draw(rarely(8)):
        body[draw(st.sampled_from(["parameters", "id", "timeout", "priority"]) | st.text(max_size=10))] = draw(VALUES)
    if draw(rarely(12)):
        del body[draw(st.sampled_from(sorted(body)))]
    body["deadline_ms"] = draw(st.just(MOST_MS) | st.integers(-5, MOST_MS))
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    if draw(rarely(8)):
        start = draw(st.integers(0, len(data)))
        data = data[:start] + draw(st.binary(max_size=8)) + data[start + draw(st.integers(0, 8)) :]
    return verb, data


def post(server: TritonServer, verb: str, body: bytes) -> str:
    """The whole answer as text; raises TimeoutError when it does not end."""
    connection = http.client.HTTPConnection(server.http_url, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("POST", f"/v2/models/voxcpm/{verb}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        assert response.status in (200, 400, 500), response.status
        assert data, "an empty answer"
        return data.decode("latin-1")
    finally:
        connection.close()
