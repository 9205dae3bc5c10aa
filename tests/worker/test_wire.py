"""Messages between parent and worker, over a real socket pair."""

import random
import socket
import threading

import pytest

from voxcpm_core.wire import Wire


@pytest.fixture
def wires():
    ends = [Wire(end) for end in socket.socketpair()]
    yield ends
    for end in ends:
        end.close()


def test_messages_of_any_size_arrive_in_order_whatever_is_announced_between(wires):
    sender, receiver = wires
    rng = random.Random(3)
    messages = [rng.randbytes(size) for size in (1, 5, 70_000, 3, 2_000_000, 65_532, 65_533, 1, 9)]

    def send() -> None:
        for message in messages:
            sender.announce()
            sender.announce()
            sender.send(message)

    thread = threading.Thread(target=send)
    thread.start()
    assert [receiver.receive() for _ in messages] == messages
    thread.join()


def test_the_end_of_the_other_side_is_noticed_also_within_a_message(wires):
    sender, receiver = wires
    sender.send(b"whole")
    sender._socket.sendall(b"\x05\x00\x00\x00cut")
    sender.close()
    assert receiver.receive() == b"whole"
    with pytest.raises(EOFError):
        receiver.receive()
