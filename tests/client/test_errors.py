"""Error texts become exception classes."""

from __future__ import annotations

import pytest

from voxcpm_client import Client, errors
from voxcpm_client.error_texts import error_from_message, error_from_status

CODES = {
    "INVALID_TEXT": errors.InvalidText,
    "INVALID_AUDIO": errors.InvalidAudio,
    "INVALID_LATENTS": errors.InvalidLatents,
    "INVALID_PARAMETER": errors.InvalidParameter,
    "CONFLICTING_INPUTS": errors.ConflictingInputs,
    "TOO_LARGE": errors.TooLarge,
    "UNKNOWN_VOICE": errors.UnknownVoice,
    "UNKNOWN_LORA": errors.UnknownLora,
    "ALREADY_EXISTS": errors.AlreadyExists,
    "FORBIDDEN": errors.Forbidden,
    "OVERLOADED": errors.Overloaded,
    "DRAINING": errors.Draining,
    "NOT_READY": errors.NotReady,
    "CANCELLED": errors.Cancelled,
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "INTERNAL": errors.InternalError,
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_contract_has_its_class(code: str) -> None:
    error = error_from_message(f"[{code}] request r1: some words")
    assert type(error) is CODES[code]
    assert error.code == code
    assert str(error) == f"[{code}] request r1: some words"


def test_codes_of_the_engine_are_covered() -> None:
    from voxcpm_core.errors import ErrorCode

    assert {code.value for code in ErrorCode} <= set(CODES)


@pytest.mark.parametrize(
    "prefix",
    [
        "in ensemble 'voxcpm_mp3', ",
        "in ensemble 'outer', in ensemble 'inner', ",
        "[request id: r1] ",
        "[request id: <id_unknown>] ",
        "Failed to process the request(s) for model instance 'voxcpm_0_0', message: ",
    ],
)
def test_a_code_behind_what_triton_writes_before(prefix: str) -> None:
    assert type(error_from_message(f"{prefix}[TOO_LARGE] request r: text")) is errors.TooLarge
    assert type(error_from_message(f"{prefix}Exceeds maximum queue size")) is errors.Overloaded


@pytest.mark.parametrize(
    "message",
    [
        "unexpected inference input '[INTERNAL] ' for model 'voxcpm'",
        "what [TOO_LARGE] request r: text",
        " [TOO_LARGE] request r: text",
        "[TOO_LARGE]",
        "failed to parse 'Exceeds maximum queue size'",
        "no such thing as Stub process 'x' is not healthy",
    ],
)
def test_words_inside_a_message_are_no_code(message: str) -> None:
    error = error_from_message(message)
    assert (type(error), error.code) == (errors.VoxError, "")


def test_a_code_wins_over_what_its_message_quotes() -> None:
    message = "[INVALID_PARAMETER] request r: format: got '[INTERNAL] Exceeds maximum queue size'"
    assert type(error_from_message(message)) is errors.InvalidParameter


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[request id: r] Exceeds maximum queue size", errors.Overloaded),
        ("Request timeout expired", errors.QueueTimeout),
        ("Request for unknown model: 'x' is not found", errors.UnknownModel),
        ("Request for unknown model: 'x' has no available versions", errors.NotReady),
        ("Request for unknown model: 'x' version 3 is not at ready state", errors.NotReady),
        ("Stub process 'voxcpm_0_0' is not healthy.", errors.StubUnhealthy),
    ],
)
def test_known_texts_of_triton(message: str, kind: type[errors.VoxError]) -> None:
    error = error_from_message(message)
    assert type(error) is kind
    assert error.code == kind.code != ""


def test_triton_s_own_errors_are_kinds_of_the_contract_s() -> None:
    assert issubclass(errors.QueueTimeout, errors.DeadlineExceeded)
    assert issubclass(errors.UnknownModel, errors.NotReady)
    assert issubclass(errors.StubUnhealthy, errors.InternalError)
    assert issubclass(errors.ConnectionLost, errors.ServerUnavailable)


def test_unknown_code_is_kept() -> None:
    error = error_from_message("[BRAND_NEW] request r: words")
    assert (type(error), error.code) == (errors.VoxError, "BRAND_NEW")


def test_retry_after() -> None:
    assert error_from_message("[DRAINING] request r: shutting down; retry after 250 ms").retry_after_ms == 250
    assert error_from_message("[DRAINING] request r: shutting down").retry_after_ms is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("UNAVAILABLE", errors.ServerUnavailable),
        ("DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        ("CANCELLED", errors.Cancelled),
        ("INTERNAL", errors.VoxError),
    ],
)
def test_statuses_of_grpc(status: str, kind: type[errors.VoxError]) -> None:
    assert type(error_from_status(status, "details", "host:1", num_chunks=0)) is kind


def test_a_lost_connection_is_told_from_no_server() -> None:
    assert "no answer" in str(error_from_status("UNAVAILABLE", "details", "host:1", num_chunks=0))
    lost = error_from_status("UNAVAILABLE", "details", "host:1", num_chunks=3)
    assert type(lost) is errors.ConnectionLost
    assert str(lost) == "the connection to host:1 was lost after 3 chunks: details"


@pytest.mark.parametrize("url", ["http://localhost:8000", "https://a.example", "grpc://a.example:1", "a.example", ""])
def test_addresses_that_are_not_grpc_s(url: str) -> None:
    with pytest.raises(errors.InvalidUrl, match=r"gRPC address, host:port, usually with port 8001") as caught:
        Client(url=url)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("url", ["localhost:8001", "10.0.0.1:1", "[::1]:8001", "dns:///a.example:8001", "unix:/run/t"])
def test_addresses_that_are(url: str) -> None:
    assert Client(url=url).url == url
