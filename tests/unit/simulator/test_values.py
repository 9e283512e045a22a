"""What depends on values is refused with the operator's and the module's name, and no stale value is ever told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paretune.harness.simulator import Simulation
from paretune.harness.simulator.errors import CannotInfer, NoValue
from paretune.harness.simulator.simulation import Simulation as Running


@pytest.fixture
def sim() -> Iterator[Running]:
    with Simulation("h100") as running, torch.no_grad():
        yield running


class Checks(nn.Module):
    """Does something with the values of its input."""

    def __init__(self, work: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.work = work

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.work(x)
        return x


REFUSED: dict[str, tuple[str, Callable[[torch.Tensor], Any]]] = {
    "item": ("_local_scalar_dense", lambda x: x.sum().item()),
    "bool": ("_local_scalar_dense", lambda x: 1 if torch.isnan(x).any() else 0),
    "int as an index": ("_local_scalar_dense", lambda x: [1, 2][x.long().max()]),
    "slice by a tensor": ("_local_scalar_dense", lambda x: x.flatten().sort().values[: x.long().max()]),
    "format": ("_local_scalar_dense", lambda x: f"{x.mean():.3f}"),
    "tolist": ("tolist", lambda x: x[0].tolist()),
    "numpy": ("numpy", lambda x: np.asarray(x.cpu())),
    "dlpack": ("__dlpack__", lambda x: np.from_dlpack(x.cpu())),
    "dlpack capsule": ("to_dlpack", lambda x: torch.utils.dlpack.to_dlpack(x)),
    "dlpack capsule of the host": ("to_dlpack", lambda x: torch.utils.dlpack.to_dlpack(x.cpu())),
    "pickle": ("pickle", pickle.dumps),
    "bytes": ("untyped_storage", lambda x: bytes(x.untyped_storage())),
    "nonzero": ("nonzero", lambda x: x.nonzero()),
    "where": ("nonzero", lambda x: torch.where(x > 0)),
    "masked_select": ("masked_select", lambda x: x.masked_select(x > 0)),
    "boolean index": ("nonzero", lambda x: x[x > 0]),
    "boolean assignment": ("nonzero", lambda x: x.__setitem__(x > 0, 0.0)),
    "unique": ("_unique2", lambda x: torch.unique(x, return_inverse=True)),
    "unique rows": ("unique_dim", lambda x: torch.unique(x, dim=0)),
    "unique_consecutive": ("unique_consecutive", torch.unique_consecutive),
    "bincount": ("bincount", lambda x: torch.bincount(x.long().flatten())),
    "repeat_interleave": ("repeat_interleave", lambda x: torch.repeat_interleave(x, x[0].long(), dim=0)),
    "equal": ("equal", lambda x: torch.equal(x, x)),
    "allclose": ("allclose", lambda x: torch.allclose(x, x)),
    "packed sequence": (
        "_pack_padded_sequence",
        lambda x: nn.utils.rnn.pack_padded_sequence(x[None], x[0, :1].long().cpu(), batch_first=True),
    ),
    "read past the dispatcher": ("tensor_split", lambda x: torch.tensor_split(x, x[0].long().cpu())),
    "sparse": ("_to_sparse", lambda x: x.to_sparse()),
    "no meta kernel": ("_ctc_loss", lambda x: nn.functional.ctc_loss(x[None].log_softmax(2), *[x[0, :1].long()] * 3)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_that_do_not_exist_are_refused_by_operator_and_module(sim: Running, what: str) -> None:
    operator, work = REFUSED[what]
    model = nn.Sequential(nn.Identity(), Checks(work))
    sim.label("denoiser", model)
    with pytest.raises((NoValue, CannotInfer), match=rf"{operator}[\s\S]* in module denoiser\.1 "):
        model(torch.empty(1000, 1000, device="sim"))


def unknown() -> torch.Tensor:
    """Four numbers that nobody knows, because they come from a tensor without values."""
    return torch.empty(1 << 20, device="sim")[:4]


def normalise(known: torch.Tensor) -> None:
    nn.functional.batch_norm(torch.empty(1 << 16, 4, device="sim"), known, torch.ones(4, device="sim"), training=True)


WRITTEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda known: known.add_(unknown()),
    "a view of it": lambda known: known[:2].add_(unknown()[:2]),
    "out": lambda known: torch.mul(unknown(), 2, out=known),
    "one element": lambda known: known.__setitem__(1, unknown()[0]),
    "copy": lambda known: known.copy_(unknown()),
    "fill": lambda known: known.fill_(unknown()[0]),
    "foreach": lambda known: torch._foreach_add_([known], [unknown()]),
    "many outs": lambda known: torch.split_copy(unknown(), 2, out=[known[:2], known[2:]]),
    "statistics": normalise,
}


@pytest.mark.parametrize("how", WRITTEN)
def test_a_value_written_over_by_an_unknown_one_is_told_no_more(sim: Running, how: str) -> None:
    known = torch.zeros(4, device="sim")
    view, alias = known[1:], known.detach()
    assert "values=[0.0, 0.0, 0.0, 0.0]" in repr(known)
    WRITTEN[how](known)
    for tensor in (known, view, alias, known.clone()):
        assert "values" not in repr(tensor)
        with pytest.raises(NoValue):
            tensor.tolist()


def test_a_pinned_copy_knows_no_more_than_its_source(sim: Running) -> None:
    known = torch.zeros(4)
    assert known.pin_memory().tolist() == [0.0] * 4
    known.copy_(torch.empty(1 << 20)[:4])
    with pytest.raises(NoValue):
        known.pin_memory().tolist()


def test_numbers_are_formatted_where_they_are_known(sim: Running) -> None:
    assert f"{torch.tensor(1.25, device='sim'):.1f}" == "1.2"
    assert f"{torch.empty(1 << 20, device='sim').sum()}".startswith("SimulatedTensor(")


def test_other_errors_of_a_module_stay_what_they_are(sim: Running) -> None:
    with pytest.raises(RuntimeError, match="same reduction dim") as caught:
        Checks(lambda x: x @ x[:3])(torch.empty(8, 8, device="sim"))
    assert not isinstance(caught.value, NoValue)
