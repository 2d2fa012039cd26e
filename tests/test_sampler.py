"""Telemetry: the host through psutil, and the sampler's thread."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stepscope.profiling.host import HostSource
from stepscope.profiling.job import Job
from stepscope.profiling.sampler import Sampler
from stepscope.record.telemetry import HostSample, SamplerNote, read_telemetry


def test_the_host_reading_counts_this_process_and_its_children() -> None:
    source = HostSource()
    with subprocess.Popen([sys.executable, "-c", "x = bytearray(200 << 20); print(1, flush=True); input()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout
        child.stdout.readline()
        [with_child] = source.read(5)
        own = psutil.Process().memory_info().rss
        child.communicate(b"\n")
    assert isinstance(with_child, HostSample)
    assert with_child.t_ns == 5
    assert with_child.job_rss_bytes
    assert 150 << 20 < with_child.job_rss_bytes - own < 400 << 20
    assert with_child.memory_total_bytes == psutil.virtual_memory().total


def test_the_list_of_the_jobs_processes_is_made_anew_when_its_cost_has_been_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([10.0, 10.01, 19.9, 20.1, 20.1])  # a look of 10 ms is good for ten seconds more
    monkeypatch.setattr("stepscope.profiling.job.time.monotonic", lambda: next(clock))
    looks: list[object] = []
    monkeypatch.setattr(Job, "_look", lambda self: looks.append(self) or [])
    job = Job()
    assert job.pids() == set()
    assert len(looks) == 1
    job.pids()
    assert len(looks) == 1, "at 19.9 s"
    job.pids()
    assert len(looks) == 2, "at 20.1 s"


def test_the_first_host_reading_has_no_cpu_share_because_it_ends_no_interval() -> None:
    source = HostSource()
    first, second = source.read(0)[0], source.read(1)[0]
    assert isinstance(first, HostSample)
    assert isinstance(second, HostSample)
    assert first.cpu_pct is None
    assert second.cpu_pct is not None
    assert 0 <= second.cpu_pct <= 100


def test_the_jobs_share_of_the_cpus_is_that_of_its_processes() -> None:
    source = HostSource()
    source.read(0)
    ends = time.monotonic() + 0.5
    began_s = time.process_time()
    while time.monotonic() < ends:
        pass
    expected = 100 * (time.process_time() - began_s) / 0.5 / (psutil.cpu_count() or 1)
    [busy] = source.read(1)
    assert isinstance(busy, HostSample)
    assert busy.job_cpu_pct == pytest.approx(expected, rel=0.2)


def test_the_sampler_reads_at_once_on_its_grid_and_on_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.node0.jsonl"
    with Sampler(path, 0.2):
        time.sleep(0.7)
    samples = read_telemetry(path)
    first, last = samples[0], samples[-1]
    assert first == SamplerNote(t_ns=first.t_ns, source="host", period_s=0.2)
    readings = [sample for sample in samples if isinstance(sample, HostSample)]
    assert isinstance(last, SamplerNote)
    assert last.samples == len(readings)
    assert 3 <= len(readings) <= 5, "at most at 0, 0.2, 0.4, 0.6 s, and one more on the way out"
    assert last.cpu_s is not None


def test_a_telemetry_file_that_cannot_be_written_ends_the_sampling_not_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Sampler(tmp_path / "absent" / "telemetry.jsonl", 0.1):
        time.sleep(0.05)
    [record] = caplog.records
    assert "telemetry ends here, training goes on: FileNotFoundError" in record.getMessage()
