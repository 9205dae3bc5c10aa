"""When a dead worker is started again."""

from voxcpm_core.worker.restarts import MAX_CRASHES, MAX_PAUSE_S, RestartPolicy


def test_it_gives_up_after_so_many_crashes_in_a_row():
    policy = RestartPolicy()
    pauses_s = []
    for _ in range(MAX_CRASHES):
        assert not policy.gave_up
        pauses_s.append(policy.crashed())
    assert policy.gave_up
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[0] < 0.5
    assert pauses_s[-1] == MAX_PAUSE_S


def test_a_generated_patch_starts_the_count_anew():
    policy = RestartPolicy()
    for _ in range(3 * MAX_CRASHES):
        policy.crashed()
        policy.worked()
    assert not policy.gave_up
