"""`stepscope recipes`."""

import json

import pytest

from stepscope.dashboards.cli import main
from stepscope.dashboards.recipes import in_words
from stepscope.record.recipes import RECIPES, recipe


def test_all_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert all(row.name in out and row.summary in out for row in RECIPES)


def test_mxtw_is_said_to_compute_what_tensorwise_does_and_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "custom"]) == 0
    out = capsys.readouterr().out
    assert "Its casts equal those of tensorwise" in out
    assert "the dtype of the all-gather and precomputed scales and padding" in out
    assert "e5m2" in out


def test_gw_hp_runs_two_of_three_gemms_in_fp8() -> None:
    assert {row.name: row.float8_gemms for row in RECIPES} == {
        "bf16": 0, "tensorwise": 3, "rowwise": 3, "rowwise_with_gw_hp": 2, "mxtw": 3, "mxfp8": 3
    }  # fmt: skip
    assert "2 of the 3 GEMMs of a linear layer run in FP8." in in_words(recipe("rw_gw_hp"))


def test_json_is_the_row_itself_and_an_unknown_name_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "rowwise", "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["schema"] == "stepscope.recipe/1"
    assert row["input"] == {"dtype": "e4m3", "granularity": "axiswise"}
    assert main(["recipes", "--format", "json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert everything["schema"] == "stepscope.recipes/1"
    assert [one["name"] for one in everything["recipes"]] == [one.name for one in RECIPES]
    assert everything["recipes"][2] | {"schema": "stepscope.recipe/1"} == row
    assert main(["recipes", "fp4"]) == 2
    assert "choose from bf16, tensorwise" in capsys.readouterr().err
