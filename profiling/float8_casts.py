"""Which layers of a model compute in FP8, and the casts of their operands, done by torchao's own functions.

A cast here takes the same tensor with the same settings as the one in training, so that what is measured is what
training computes.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .tally import Rounded


class Casts(Protocol):
    """The casts of one layer's operands. None: the operand is not cast, or came in FP8 already."""

    def input(self, given: torch.Tensor) -> Rounded | None:
        """Of the layer's input, shape (…, in_features)."""

    def weight(self, given: torch.Tensor) -> Rounded | None:
        """Of the weight as the forward pass sees it, shape (out_features, in_features)."""

    def grad_output(self, given: torch.Tensor) -> Rounded | None:
        """Of the gradient of the layer's output, shape (…, out_features)."""


def float8_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear, Casts]]:
    """Every linear layer that computes in FP8, with its name as the unwrapped model has it."""
    try:
        from torchao.float8.float8_linear import Float8Linear
    except ImportError:
        return
    for name, module in model.named_modules():
        name = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        if isinstance(module, Float8Linear):
            yield name, module, _Float8Casts(module)
        elif isinstance(module, nn.Linear) and (config := _microscaled_config(module.weight)):
            yield name, module, _MicroscaledCasts(config)


_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "module")
"""Parts of a name that torch.compile, checkpointing and data parallelism put in."""


class _Float8Casts:
    """`Float8Linear`: one scale for a tensor, row or column."""

    def __init__(self, module: Any) -> None:
        self._config, self._mm = module.config, module.linear_mm_config

    def input(self, given: torch.Tensor) -> Rounded | None:
        if torch.is_autocast_enabled():
            given = given.to(torch.get_autocast_dtype("cuda"))
        return self._cast(given, "input", axis=-1)

    def weight(self, given: torch.Tensor) -> Rounded | None:
        from torchao.float8.distributed_utils import tensor_already_casted_to_fp8

        if tensor_already_casted_to_fp8(given):
            return None
        given = getattr(given, "_tensor", given).detach()  # a weight meant for a float8 all-gather has an inner one
        found = self._cast(given.t(), "weight", axis=0)
        if found is None:
            return None
        scale = found.scale.t() if found.scale.ndim == 2 else found.scale
        return found._replace(exact=found.exact.t(), data=found.data.t(), scale=scale)

    def grad_output(self, given: torch.Tensor) -> Rounded | None:
        return self._cast(given.reshape(-1, given.shape[-1]), "grad_output", axis=-1)

    def _cast(self, given: torch.Tensor, operand: str, *, axis: int) -> Rounded | None:
        from torchao.float8.config import ScalingType
        from torchao.float8.distributed_utils import tensor_already_casted_to_fp8
        from torchao.float8.float8_scaling_utils import get_maybe_axiswise_dim, hp_tensor_to_float8_dynamic
        from torchao.float8.float8_training_tensor import GemmInputRole

        cast = getattr(self._config, f"cast_config_{operand}")
        if cast.scaling_type is ScalingType.DISABLED or tensor_already_casted_to_fp8(given):
            return None
        _check_whole(given)
        done = hp_tensor_to_float8_dynamic(
            given,
            cast.target_dtype,
            self._mm,
            gemm_input_role=GemmInputRole(operand),
            scaling_granularity=cast.scaling_granularity,
            axiswise_dim=get_maybe_axiswise_dim(axis, cast.scaling_granularity),
            round_scales_to_power_of_2=self._config.round_scales_to_power_of_2,
        )
        columns = given.shape[-1]
        scale = done._scale.reshape(-1, done._scale.shape[-1]) if done._scale.ndim else done._scale
        return Rounded(
            given.reshape(-1, columns), done._data.reshape(-1, columns), scale, cast.scaling_granularity.value
        )


class _MicroscaledCasts:
    """Weights wrapped for mxfp8: one power-of-two scale for 32 values along the inner dimension."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def input(self, given: torch.Tensor) -> Rounded | None:
        return self._cast(given)

    def weight(self, given: torch.Tensor) -> Rounded | None:
        return self._cast(getattr(given, "_data", given))

    def grad_output(self, given: torch.Tensor) -> Rounded | None:
        return self._cast(given)

    def _cast(self, given: torch.Tensor) -> Rounded:
        from torchao.prototype.mx_formats.config import MXFP8Dim0CastKernelChoice
        from torchao.prototype.mx_formats.mx_tensor import MXTensor, get_fp_scale

        _check_whole(given)
        exact = given.reshape(-1, given.shape[-1]).contiguous()
        done = MXTensor.to_mx(
            exact,
            torch.float8_e4m3fn,
            _BLOCK,
            self._config.scale_calculation_mode,
            self._config.kernel_preference,
            mxfp8_dim0_cast_kernel_choice=MXFP8Dim0CastKernelChoice.TRITON,
        )
        scale = get_fp_scale(done.scale).reciprocal().reshape(-1, 1)
        return Rounded(exact.reshape(-1, _BLOCK), done.qdata.reshape(-1, _BLOCK), scale, f"block{_BLOCK}")


_BLOCK = 32


def _microscaled_config(weight: Any) -> Any:
    """The settings that a weight wrapped for mxfp8 carries; None for any other."""
    local = weight._local_tensor if isinstance(weight, DTensor) else weight.data
    config = getattr(local, "config", None)
    return config if type(config).__name__ == "MXFP8TrainingOpConfig" else None


def _check_whole(given: torch.Tensor) -> None:
    if isinstance(given, DTensor):
        raise NotImplementedError("a layer's operand is spread over ranks, as under tensor parallelism")
