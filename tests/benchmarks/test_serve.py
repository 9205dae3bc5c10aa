"""`benchmarks.serve` on a server that runs already."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import serve
from benchmarks.perf_export import MAX_ATTEMPTS, IncompleteExport, complete_export
from voxcpm_client.server import TritonServer


@pytest.mark.server
def test_what_bench_measured_is_kept_where_perf_analyzer_fails(
    triton_server: TritonServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, file = tmp_path / "perf", tmp_path / "report.json"
    program.write_text("#!/bin/sh\necho no such model; exit 3\n")
    program.chmod(0o755)
    load = ["--clients", "2", "--patches", "2", "--perf-analyzer", str(program), "--json", str(file)]
    serve.main(["--url", triton_server.grpc_url, *load])
    report = json.loads(file.read_text(encoding="utf-8"))
    (row,) = report["bench"]["rows"]
    assert row["ok"] == row["n"] == 10
    assert [each["audio_s"] for each in row["requests"]] == pytest.approx([2 * 0.16] * 10)
    assert report["perf_analyzer"] == []
    assert set(report["machine"]) >= {"card", "processor", "torch", "tritonclient"}
    assert "status 3: no such model" in capfd.readouterr().out


@pytest.mark.server
def test_perf_analyzer_takes_the_requests(triton_server: TritonServer, tmp_path: Path) -> None:
    target, program = serve.Target(triton_server.grpc_url, "voxcpm"), find_perf_analyzer()
    row = serve.run_perf_analyzer(program, target, 2, 2, tmp_path)
    assert (row["clients"], row["n"]) == (2, 6)
    assert row["audio_s"] == pytest.approx(6 * 2 * 0.16)


@pytest.mark.parametrize("incomplete", [MAX_ATTEMPTS - 1, MAX_ATTEMPTS])
def test_an_export_without_an_end_is_made_again(incomplete: int, tmp_path: Path) -> None:
    export, runs = tmp_path / "export.json", tmp_path / "runs"
    whole = '{"experiments":[{"experiment":{"value":2},"requests":[]}]}'
    script = f"""test -e {export} && exit 1  # as perf_analyzer does
        echo >> {runs}
        test $(wc -l < {runs}) -gt {incomplete} && echo '{whole}' > {export} || echo '{whole[:9]}' > {export}"""

    def run() -> None:
        serve.run_once(["sh", "-c", script])

    if incomplete < MAX_ATTEMPTS:
        (load,) = complete_export(run, export)
        assert load.clients == 2
    else:
        with pytest.raises(IncompleteExport, match=r"export\.json has no end: .* run it again"):
            complete_export(run, export)
    assert len(runs.read_text()) == MAX_ATTEMPTS


def test_a_machine_without_perf_analyzer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = serve.parse(["--perf-analyzer", "no-such-program"])
    assert serve.measure_with_perf_analyzer(serve.Target("127.0.0.1:9", "voxcpm"), arguments, tmp_path) == []
    assert "is not installed: python -m benchmarks.install_perf_analyzer" in capsys.readouterr().out


def test_a_setting_without_a_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.parse(["--set", "cuda_graphs"])
    assert "expected NAME=VALUE, got 'cuda_graphs'" in capsys.readouterr().err


def find_perf_analyzer() -> str:
    beside = Path(sys.executable).parent / "perf_analyzer"
    program = shutil.which("perf_analyzer") or shutil.which(beside)
    if program is None:
        pytest.skip("perf_analyzer is not installed: python -m benchmarks.install_perf_analyzer (Linux on x86-64)")
    return program
