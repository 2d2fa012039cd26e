"""Ranges named after modules: around the right work, also where activations are recomputed, and gone afterwards."""

import pytest
import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import profile

from stepscope.profiling.modules import ModuleRanges
from stepscope.trainer.models import build_model, checkpoint_activations

CPU = torch.device("cpu")


def forward_and_backward(model: torch.nn.Module) -> None:
    tokens = torch.arange(32).repeat(2, 1)
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()


def recorded(model: torch.nn.Module, *, depth: int | None = None) -> list[FunctionEvent]:
    with profile() as profiler, ModuleRanges(model, depth=depth):
        forward_and_backward(model)
    events: list[FunctionEvent] = list(profiler.events())
    return events


def test_every_module_is_a_range_that_holds_its_childrens() -> None:
    events = {event.name: event for event in recorded(build_model("pico", seed=1, device=CPU))}
    names = [name for name in events if name.startswith(("model", "lm_head"))]
    assert {"model", "model.layers.0", "model.layers.1.mlp.up_proj", "lm_head", "model.norm"} <= set(names)
    inner, outer = events["model.layers.1.mlp.up_proj"].time_range, events["model.layers.1.mlp"].time_range
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_depth_says_how_many_names_deep() -> None:
    events = recorded(build_model("pico", seed=1, device=CPU), depth=3)
    names = {event.name for event in events if event.name.startswith("model")}
    assert names == {
        "model", "model.embed_tokens", "model.norm", "model.rotary_emb", "model.layers.0", "model.layers.1"
    }  # fmt: skip


@pytest.mark.parametrize(("checkpointing", "passes"), [(False, 1), (True, 2)])
def test_a_recomputed_forward_pass_is_a_range_again(checkpointing: bool, passes: int) -> None:  # noqa: FBT001
    model = build_model("pico", seed=1, device=CPU)
    if checkpointing:
        checkpoint_activations(model)
    names = [event.name for event in recorded(model)]
    assert names.count("model.layers.0.mlp") == passes
    assert names.count("lm_head") == 1


def test_backward_operators_carry_the_sequence_number_of_one_in_the_modules_range() -> None:
    """What lets an analyzer charge backward work to the module that caused it."""
    events = recorded(build_model("pico", seed=1, device=CPU))
    [span] = [event.time_range for event in events if event.name == "model.layers.1.mlp.up_proj"]
    numbers = {
        event.sequence_nr
        for event in events
        if event.scope == 0 and event.sequence_nr >= 0 and span.start <= event.time_range.start <= span.end
    }
    backward = {event.name for event in events if event.scope == 1 and event.sequence_nr in numbers}
    assert "MmBackward0" in backward


def test_no_hook_stays_behind_and_a_failed_pass_closes_its_ranges() -> None:
    model = build_model("pico", seed=1, device=CPU)
    with pytest.raises(IndexError), ModuleRanges(model):
        model(input_ids=torch.full((1, 4), 10**6), use_cache=False)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    forward_and_backward(model)
