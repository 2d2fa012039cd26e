"""`tensorboard --logdir` on the sample runs, asked over its own HTTP interface."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from stepscope.record.run import RunDir
from stepscope.record.steps import Step, timed
from stepscope.trainer.scalars import Scalars

SAMPLE = Path(__file__).parent.parent / "traces" / "sample"
RECIPES = ("bf16", "mxtw")


class TensorBoard:
    """A server on the sample folder."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, route: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/data/{route}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)

    def points(self, recipe: str, tag: str) -> dict[int, float]:
        """Step → value."""
        return {step: value for _, step, value in self.ask("plugin/scalars/scalars", run=recipe, tag=tag)}


@pytest.fixture(scope="module")
def tensorboard() -> Iterator[TensorBoard]:
    command = [sys.executable, "-W", "ignore", "-m", "tensorboard.main", "--logdir", str(SAMPLE), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            told = ""
            while not (found := re.search(r"http://\S+", told)):
                line = server.stderr.readline()
                assert line, f"TensorBoard did not start:\n{told}"
                told += line
            board = TensorBoard(found[0].rstrip("/"))
            deadline = time.monotonic() + 60
            while set(board.ask("plugin/scalars/tags")) != set(RECIPES):
                assert time.monotonic() < deadline, "the runs did not appear within 60 s"
                time.sleep(0.2)
            yield board
        finally:
            server.kill()


def test_every_recipe_shows_the_same_curves_side_by_side(tensorboard: TensorBoard) -> None:
    tags = tensorboard.ask("plugin/scalars/tags")
    wanted = {"train/loss", "train/lr", "train/grad_norm", "speed/tokens_per_s", "speed/step_ms", "memory/rss_bytes"}
    for recipe in RECIPES:
        assert wanted <= tags[recipe].keys()
    assert tags["bf16"].keys() == tags["mxtw"].keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_points_are_those_of_the_step_files(tensorboard: TensorBoard, recipe: str) -> None:
    ranks = RunDir(SAMPLE / recipe).steps()
    steps = ranks[0]
    assert tensorboard.points(recipe, "train/loss") == pytest.approx({step.step: step.loss for step in steps})
    assert tensorboard.points(recipe, "train/lr") == pytest.approx({step.step: step.lr for step in steps})
    assert tensorboard.points(recipe, "memory/rss_bytes") == pytest.approx(
        {step.step: step.rss_bytes for step in steps}
    )
    all_ranks = {step.step: step.tokens + other.tokens for step, other in zip(steps, ranks[1], strict=True)}
    assert tensorboard.points(recipe, "speed/tokens_per_s") == pytest.approx(
        {step.step: all_ranks[step.step] / (step.duration_ns / 1e9) for step in timed(steps)}
    )


def test_the_manifest_is_shown_as_text_and_the_recipe_as_a_hyperparameter(tensorboard: TensorBoard) -> None:
    assert tensorboard.ask("plugin/text/tags") == {recipe: ["run.json"] for recipe in RECIPES}
    assert "hparams" in tensorboard.ask("plugins_listing")


def test_of_a_resumed_run_the_steps_that_were_undone_are_shown_once(tmp_path: Path) -> None:
    for after, steps, first in ((0, range(1, 7), 100), (3, range(4, 7), 200)):
        with Scalars(tmp_path, after=after) as scalars:
            for number in steps:
                loss = float(first + number)
                scalars.record(Step(step=number, rank=0, start_ns=1, duration_ns=1, loss=loss), tokens_of_all=1)
        [written] = tmp_path.glob("events.*rank0")
        written.rename(tmp_path / f"events.out.tfevents.{after}.one")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert shown == [(1, 101.0), (2, 102.0), (3, 103.0), (4, 204.0), (5, 205.0), (6, 206.0)]
