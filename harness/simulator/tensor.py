"""A tensor with a shape, a dtype and a claimed device, but no data; small ones on the host or the card may keep real values."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from paretune.harness.simulator.storage import Storage, StorageView

__all__ = ["SimulatedTensor", "extent_bytes", "make_tensor", "own", "signature_of"]

_make = torch.Tensor._make_wrapper_subclass
_set_data = torch._C.TensorBase.data.__set__  # type: ignore[attr-defined]
_inference = torch.is_inference_mode_enabled
_SHARED_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
"""Every simulated tensor also carries the CPU's dispatch key, whatever device it claims: PyTorch then allows
`parameter.data = other` between them, which every offload hook relies on. The Python key is served first."""

_signatures: dict[tuple[Any, ...], int] = {}


class SimulatedTensor(torch.Tensor):
    """A wrapper that holds a counted storage instead of data.

    `sim_storage` is the memory, `sim_value` a real CPU tensor or `None`, `sim_signature` a small number that is equal
    for equal (dtype, size, stride, device).
    """

    sim_storage: Storage
    sim_value: torch.Tensor | None
    sim_signature: int
    sim_owner: tuple[str, str]

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: Any, data: torch.Tensor, requires_grad: bool = False, **_: Any) -> Any:
        """`type(parameter)(value, requires_grad=...)`: how accelerate makes a parameter of the same class as another."""
        return torch.nn.Parameter(data.detach(), requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        from paretune.harness.simulator.dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        """An alias without history, as for every tensor."""
        return _alias(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        source = _as_simulated(value)
        source.sim_storage.machine.spoil()
        _set_data(self, source)
        self.sim_storage, self.sim_value = source.sim_storage, source.sim_value
        self.sim_signature = source.sim_signature
        if "sim_owner" in self.__dict__:
            source.sim_storage.relabel(*self.sim_owner)

    @property
    def _is_param(self) -> bool:
        """What `torch.nn.Parameter` marks its tensors with; here it also says that the bytes are weights."""
        return bool(self.__dict__.get("sim_is_parameter", False))

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.__dict__["sim_is_parameter"] = value
        if value:
            own(self, self.sim_storage.label[0], "weight")

    def untyped_storage(self) -> Any:
        """Identity and size of the memory behind this tensor."""
        return StorageView(self.sim_storage)

    def data_ptr(self) -> int:
        """A stand-in address, unique among live tensors; zero for an empty tensor."""
        base = self.sim_storage.address()
        offset = self.storage_offset()
        return base + int(offset) * self.element_size() if base and offset else base

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked host memory."""
        return self.sim_storage.pinned

    def pin_memory(self, device: Any = None) -> torch.Tensor:
        """A copy in page-locked host memory; the tensor itself if it is pinned already."""
        from paretune.harness.simulator.copies import pinned_copy

        return pinned_copy(self)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory from being reused until the stream has passed the point of release."""
        storage = self.sim_storage
        if storage.index >= 0:
            storage.machine.spoil()
            storage.uses = (storage.uses or set()) | {stream.stream_id}

    def numpy(self, *, force: bool = False) -> Any:
        """The values, where the simulation has them."""
        with _disable_current_modes():  # the conversion detaches, and a simulated detachment has no address
            return self._known_values("numpy").numpy(force=force)

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy().astype(dtype)

    def tolist(self) -> Any:
        """The values, where the simulation has them; waits for the device as a real one would."""
        values = self._known_values("tolist")
        if self.sim_storage.index >= 0:
            self.sim_storage.machine.cards[self.sim_storage.index].synchronize()
        return values.tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        values = None if self.sim_storage.values_lost else self.sim_value
        shown = f", values={values.tolist()}" if values is not None and values.numel() <= 16 else ""
        return f"SimulatedTensor(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device}{shown})"

    def __format__(self, format_spec: str) -> str:
        """A scalar's value where a number's format is asked for, as for every tensor; otherwise what `repr` says."""
        if format_spec and self.dim() == 0:
            return format(self.item(), format_spec)
        return object.__format__(self, format_spec)

    def __dlpack__(self, **_: Any) -> Any:
        """There is no memory to share."""
        from paretune.harness.simulator.errors import missing_value

        raise missing_value(self.sim_storage.machine, "__dlpack__", self)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copy: torch.Tensor = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        from paretune.harness.simulator.errors import missing_value

        raise missing_value(self.sim_storage.machine, "pickle (saving, or sending to another process)", self)

    def _known_values(self, operator: str) -> torch.Tensor:
        from paretune.harness.simulator.errors import require_value

        return require_value(self, operator)


def signature_of(dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], index: int) -> int:
    """A number that two tensors share exactly if dtype, size, stride and device are equal."""
    key = (dtype, size, stride, index)
    found = _signatures.get(key)
    if found is None:
        found = _signatures[key] = len(_signatures)
    return found


def make_tensor(
    storage: Storage,
    dtype: torch.dtype,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    *,
    offset: int = 0,
    signature: int | None = None,
    value: torch.Tensor | None = None,
) -> SimulatedTensor:
    """A tensor over a storage; sizes and strides in elements."""
    device = _DEVICES[storage.index]
    if _inference():
        with torch._C._InferenceMode(False):
            made = _make(
                SimulatedTensor, size, stride, offset, dtype=dtype, device=device, _extra_dispatch_keys=_SHARED_KEYS
            )
    else:
        made = _make(
            SimulatedTensor, size, stride, offset, dtype=dtype, device=device, _extra_dispatch_keys=_SHARED_KEYS
        )
    made.sim_storage = storage
    made.sim_value = value
    made.sim_signature = signature_of(dtype, size, stride, storage.index) if signature is None else signature
    return made


def own(tensor: torch.Tensor, component: str, kind: str) -> None:
    """Say whose memory a tensor is, now and whenever its data are exchanged; ordinary tensors have no owner."""
    if isinstance(tensor, SimulatedTensor):
        tensor.sim_owner = (component, kind)
        tensor.sim_storage.relabel(component, kind)


def extent_bytes(size: tuple[int, ...], stride: tuple[int, ...], itemsize: int) -> int:
    """Bytes that a storage needs to hold a tensor of this geometry from its first element on."""
    last = 0
    for length, step in zip(size, stride, strict=True):
        if length == 0:
            return 0
        last += (length - 1) * step
    return (last + 1) * itemsize


class _Devices(dict[int, torch.device]):
    def __missing__(self, index: int) -> torch.device:
        device = self[index] = torch.device("sim", index) if index >= 0 else torch.device("cpu")
        return device


_DEVICES = _Devices()


def _alias(tensor: SimulatedTensor) -> SimulatedTensor:
    return make_tensor(
        tensor.sim_storage,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        offset=int(tensor.storage_offset()),
        signature=tensor.sim_signature,
        value=tensor.sim_value,
    )


def _as_simulated(value: torch.Tensor) -> SimulatedTensor:
    if isinstance(value, SimulatedTensor):
        return value
    from paretune.harness.simulator.adopt import adopt

    return adopt(value)
