"""Run folders of two ranks, made for comparisons."""

from pathlib import Path
from typing import Any

import msgspec

from stepscope.record.jsonl import JsonlWriter
from stepscope.record.manifest import Device, Manifest, Outcome, World
from stepscope.record.recipes import recipe
from stepscope.record.run import RunDir
from stepscope.record.steps import Step

GPU = Device(kind="cuda", name="NVIDIA H100", memory_bytes=80 * 10**9, capability="9.0", driver="570.1")
CPU = Device(kind="cpu", name="a CPU", memory_bytes=64 * 10**9)
CONFIG: dict[str, Any] = {"wrap": "layer", "seq_len": 2048, "steps": 10, "profile": True, "data": "a.jsonl"}


class Maker:
    """Makes run folders under one parent."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent

    def __call__(
        self,
        name: str,
        *,
        recipe_name: str = "bf16",
        durations: list[int] | None = None,
        device: Device = GPU,
        config: dict[str, Any] | None = None,
        telemetry: list[Any] | None = None,
        **manifest: Any,
    ) -> RunDir:
        folder = RunDir(self.parent / name)
        folder.path.mkdir()
        durations = durations or [200] * 8
        made = Manifest(
            run=name,
            recipe=recipe(recipe_name),
            emulated=False,
            config=CONFIG | (config or {}),
            world=World(size=2, nodes=1, backend="nccl"),
            devices=[device, device],
            model={"name": "llama-1b", "parameters": 10},
            data={"sha256": "abc"},
            versions={"torch": "2.13.0"},
            argv=[],
            started_ns=1,
            outcome=Outcome(state="completed", exit_code=0),
        )
        folder.write_manifest(msgspec.structs.replace(made, **manifest))
        on_gpu = device.kind == "cuda"
        for rank in (0, 1):
            with JsonlWriter(folder.steps_path(rank)) as writer:
                for number, duration in enumerate(durations, start=1):
                    writer.write(
                        Step(
                            step=number,
                            rank=rank,
                            start_ns=number * 1000,
                            duration_ns=duration - 10 * (1 - rank),  # the second rank is the slower one
                            tokens=30 + 10 * rank,
                            positions=64,
                            loss=5.0 - 0.5 * number,
                            memory_allocated_bytes=(20 + rank) * 10**9 if on_gpu else None,
                            rss_bytes=10**9,
                            eval_loss=1.25 if number == len(durations) else None,
                            eval_accuracy=0.5 if number == len(durations) else None,
                            marks=("first",) if number == 1 else ("eval",) if number == len(durations) else (),
                        )
                    )
        if telemetry:
            with JsonlWriter(folder.telemetry_path(0)) as writer:
                for sample in telemetry:
                    writer.write(sample)
        return folder
