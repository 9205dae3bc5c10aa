"""Products by an algorithm that is named, with a library that computes on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.lt_stand_in import LtStandIn
from voxcpm_core.kernels import cublaslt
from voxcpm_core.kernels.cublaslt import Problem, add_product, linear, offered
from voxcpm_core.kernels.product_configs import LtConfig

FIRST, SECOND, SPLIT, UNKNOWN = LtConfig(1, 0), LtConfig(7, 2), LtConfig(8, 0), LtConfig(9, 9)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> LtStandIn:
    stand_in = LtStandIn([FIRST, SECOND], split=[SPLIT])
    monkeypatch.setattr(cublaslt, "_library", lambda: stand_in)
    monkeypatch.setattr(cublaslt, "_stream", lambda device: 0)
    monkeypatch.setattr(cublaslt, "_handle", lambda device: None)
    monkeypatch.setattr(cublaslt, "ALIGNMENT", 2)  # the CPU's memory has less than a GPU's
    cublaslt._plan.cache_clear()
    yield stand_in
    cublaslt._plan.cache_clear()


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


@pytest.mark.parametrize("shape", [(3, 5, 24), (15, 24)], ids=str)
def test_the_named_algorithm_gives_the_product(shape, library):
    x, weight = randn(*shape, seed=0), randn(40, 24, seed=1)
    found = linear(x, weight, SECOND)
    assert found.shape == (*shape[:-1], 40)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, weight), atol=2e-2, rtol=1e-2)
    assert library.used == [SECOND]


def test_a_product_is_scaled_and_added_to_what_is_there(library):
    total, rows, weight = randn(15, 40, seed=0), randn(15, 24, seed=1), randn(40, 24, seed=2)
    expected = total.float() + 0.5 * rows.float() @ weight.float().t()
    add_product(total, rows, weight, 0.5, FIRST)
    torch.testing.assert_close(total.float(), expected, atol=2e-2, rtol=1e-2)
    assert library.used == [FIRST]


@pytest.mark.parametrize("config", [None, UNKNOWN, SPLIT], ids=str)
def test_what_is_not_offered_is_left_to_torch(config, library):
    x, weight = randn(15, 24, seed=0), randn(40, 24, seed=1)
    assert torch.equal(linear(x, weight, config), torch.nn.functional.linear(x, weight))
    total = randn(15, 40, seed=2)
    expected = torch.addmm(total, x, weight.t(), alpha=0.5)
    add_product(total, x, weight, 0.5, config)
    assert torch.equal(total, expected)
    assert library.used == []


@pytest.mark.parametrize("which", [None, "total", "rows", "weight"])
def test_memory_that_the_library_may_not_take_is_left_to_torch(which, library, monkeypatch):
    monkeypatch.setattr(cublaslt, "ALIGNMENT", 64)  # as the CPU's memory has
    total, rows, weight = (
        randn(size + 1, width, seed=seed)[name == which :][:size]  # a row further it is not aligned
        for seed, (name, size, width) in enumerate((("total", 15, 40), ("rows", 15, 24), ("weight", 40, 24)))
    )
    expected = torch.addmm(total, rows, weight.t())
    add_product(total, rows, weight, 1.0, FIRST)
    torch.testing.assert_close(total, expected, atol=2e-2, rtol=1e-2)
    assert library.used == ([FIRST] if which is None else [])


def test_one_go_over_k_is_offered_alone_and_once(library):
    problem = Problem(0, 15, 40, 24, torch.bfloat16)
    assert offered(problem) == [FIRST, SECOND]
    library.configs = [SECOND, SECOND]
    assert offered(problem) == [SECOND]
    library.configs = library.split = []
    assert offered(problem) == []


def test_a_failure_is_told(library, monkeypatch):
    monkeypatch.setattr(library, "cublasLtMatmul", lambda *arguments: 14)
    with pytest.raises(RuntimeError, match="status 14"):
        linear(randn(15, 24, seed=0), randn(40, 24, seed=1), FIRST)
    monkeypatch.setattr(library, "cublasLtMatmulAlgoGetHeuristic", lambda *arguments: 7)
    with pytest.raises(RuntimeError, match="status 7"):
        linear(randn(16, 24, seed=0), randn(40, 24, seed=1), FIRST)
