"""A fitted network as an ONNX file: other programs then give the same probabilities without torch or this library."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import mogd
from mogd.scalers import Powers, affine, yeo_johnson
from mogd.wording import option

INPUT, OUTPUT = "X", "probabilities"
MISSING = "an ONNX file needs the packages onnx and onnxscript: pip install 'mogd[onnx]'"
ROWS_TRACED = 2  # one row would be taken for a constant: the file must take any number


class Probabilities(nn.Module):
    """From rows as `predict_proba` takes them to class probabilities: the scaler, the network, softmax."""

    slope: Tensor
    offset: Tensor

    def __init__(self, net: nn.Module, scaler: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.dtype, self.scales = net, dtype, scaler is not None
        slope, offset = (np.ones(()), np.zeros(())) if scaler is None else affine(scaler)
        self.register_buffer("slope", torch.from_numpy(slope))
        self.register_buffer("offset", torch.from_numpy(offset))
        self.powers = PowerLayer(scaler) if isinstance(scaler, Powers) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.scales:
            x = (self.powers(x) - self.offset) * self.slope
        return torch.softmax(self.net(x if x.dtype == torch.uint8 else x.to(self.dtype)), dim=1)


class PowerLayer(nn.Module):
    """The powers of a scaler, whose columns are found by a mask."""

    mean: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    power: Tensor
    powered: Tensor

    def __init__(self, scaler: Powers) -> None:
        super().__init__()
        n_columns, columns = len(affine(scaler)[0]), torch.from_numpy(scaler.columns_)
        learned = {
            "mean": (scaler.first_mean_, 0.0),
            "scale": (scaler.first_scale_, 1.0),
            "low": (scaler.low_, 0.0),
            "high": (scaler.high_, 0.0),
            "power": (scaler.powers_, 1.0),
        }
        for name, (values, elsewhere) in learned.items():
            full = torch.full((n_columns,), elsewhere, dtype=torch.float64)
            full[columns] = torch.from_numpy(values)
            self.register_buffer(name, full)
        self.register_buffer("powered", torch.zeros(n_columns, dtype=torch.bool).index_fill(0, columns, True))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.clamp((x - self.mean) / self.scale, self.low, self.high)
        return torch.where(self.powered, yeo_johnson(z, self.power, torch), x)


def write_onnx(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the network of a fitted `PartialLabelClassifier`; what `to_onnx` does."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already: pass {option('overwrite', True)} to replace it")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ImportError(MISSING) from None
    if getattr(_backbone(model.module_), "in_bfloat16", False):
        warnings.warn(
            "the network was trained with precision='bf16'; the ONNX file computes in float32, so that its "
            "probabilities differ in the third digit",
            stacklevel=3,
        )
    rows = np.zeros((ROWS_TRACED, *model.input_.shape[1:]), dtype=model.input_.dtype)
    if model.scaler_ is not None:
        rows = rows.astype(np.float64)  # before they are scaled, large numbers differ in digits that float32 has not
    program = _traced(model, torch.from_numpy(rows))
    program.model.metadata_props.update(described(model))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        program.save(part, external_data=False)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def described(model: Any) -> dict[str, str]:
    """The metadata of the file: what the columns of the probabilities mean, as JSON."""
    found = {"mogd.version": mogd.__version__, "mogd.classes": json.dumps(model.classes_.tolist(), ensure_ascii=False)}
    if (names := getattr(model, "feature_names_in_", None)) is not None:
        found["mogd.features"] = json.dumps([str(name) for name in names], ensure_ascii=False)
    if (calibration := getattr(model, "calibration_", None)) is not None:
        found["mogd.temperature"] = json.dumps(calibration.temperature)
    return found


def _traced(model: Any, rows: Tensor) -> Any:
    """The exported program of the model on the processor, for any number of rows."""
    device = next((p.device for p in model.module_.parameters()), torch.device("cpu"))
    net = Probabilities(model._viewing(model.module_), model.scaler_, model._dtype()).cpu().eval()
    try:
        with _silent(), torch.no_grad(), in_float32(model.module_):
            program = torch.onnx.export(
                net,
                (rows,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                input_names=[INPUT],
                output_names=[OUTPUT],
                verbose=False,
            )
    except Exception as error:  # whatever a network of the user's own makes the exporter raise
        said = str(error).strip().partition("\n")[0]
        raise ValueError(f"torch cannot write this network as ONNX: {said}") from error
    finally:
        model.module_.to(device)
    return program


@contextmanager
def in_float32(module: nn.Module) -> Iterator[None]:
    """Within the block a network of the library computes in the precision of its weights."""
    net = _backbone(module)
    before = getattr(net, "in_bfloat16", None)
    if before:
        net.in_bfloat16 = False  # type: ignore[assignment]
    try:
        yield
    finally:
        if before:
            net.in_bfloat16 = before


def _backbone(module: nn.Module) -> nn.Module:
    """The network behind the normalisation of images."""
    return module[-1] if isinstance(module, nn.Sequential) else module


@contextmanager
def _silent() -> Iterator[None]:
    """Without torch's remarks on packages that are not there and on its own coming changes."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
