"""The owner of a response sender: exactly one FINAL, and no question to Triton after it."""

import threading

from tests.serving.fake_triton import FakeBackend, FakeSender
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.responses import TritonResponses


def channel_to(sender: FakeSender) -> Channel:
    return Channel(sender, TritonResponses(FakeBackend()), "r1")


def test_an_error_is_one_response_with_final():
    sender = FakeSender()
    channel = channel_to(sender)
    assert channel.fail(RequestError(ErrorCode.INVALID_TEXT, "target_text is empty"))
    assert [(e.message, e.code) for e in sender.errors] == [
        ("[INVALID_TEXT] request r1: target_text is empty", "INVALID_ARG")
    ]
    assert sender.num_finals == 1
    assert channel.closed


def test_there_is_one_final_whatever_is_called():
    sender = FakeSender()
    channel = channel_to(sender)
    channel.finish()
    channel.finish()
    assert not channel.fail(RequestError(ErrorCode.INTERNAL, "late"))
    channel.send([])
    assert not channel.is_cancelled()
    assert (sender.num_finals, sender.responses, sender.violations, sender.num_polls) == (1, [], [], 0)


def test_a_deadline_is_a_reason_to_end_and_not_after_final():
    channel = channel_to(FakeSender())
    channel.set_deadline(60_000)
    assert channel.departure() is None
    channel.set_deadline(0)
    departure = channel.departure()
    assert departure is not None
    assert departure.code is ErrorCode.DEADLINE_EXCEEDED
    channel.finish()
    assert channel.departure() is None


def test_final_never_overlaps_a_cancel_question():
    for _ in range(30):
        sender = FakeSender(delay_s=lambda: 0.001)
        channel = channel_to(sender)
        start = threading.Barrier(4)

        def ask(channel: Channel = channel, start: threading.Barrier = start) -> None:
            start.wait()
            while not channel.closed:
                channel.is_cancelled()
            channel.is_cancelled()

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        start.wait()
        channel.finish()
        for asker in askers:
            asker.join()
        assert sender.violations == []


def test_a_blocked_data_send_does_not_block_the_cancel_question():
    entered, release = threading.Event(), threading.Event()

    def delay() -> float:
        entered.set()
        release.wait(5)
        return 0.0

    sender = FakeSender(delay_s=delay)
    channel = channel_to(sender)
    thread = threading.Thread(target=channel.send, args=([],))
    thread.start()
    assert entered.wait(5)
    sender.gone.set()
    assert channel.is_cancelled()
    release.set()
    thread.join()
