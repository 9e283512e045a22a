"""Make a large card behave like a small one: hold memory that neither PyTorch's allocator nor any library can have.

A limit inside the allocator would leave out the context and the libraries' own memory, and cuDNN would still choose
algorithms for a large card. What the driver reports as free is what all of them see, so the ballast is taken from the
driver, where PyTorch does not count it either.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import TracebackType

import torch

from paretune.harness.devices.names import DeviceError

__all__ = ["Ballast", "cuda_allocate", "cuda_release"]

_CHUNK_BYTES = 64 << 20


def _cuda_driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if ctypes.sizeof(ctypes.c_wchar) == 2 else "libcuda.so.1")


def cuda_allocate(num_bytes: int) -> int | None:
    """Take device memory from the CUDA driver in the current context; its address, or ``None`` when there is none left."""
    address = ctypes.c_uint64(0)
    status = _cuda_driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(num_bytes))
    return int(address.value) if status == 0 else None


def cuda_release(address: int) -> None:
    """Give back what ``cuda_allocate`` took."""
    _cuda_driver().cuMemFree_v2(ctypes.c_uint64(address))


class Ballast:
    """Holds everything above ``cap_bytes`` of the card while open; ``None`` holds nothing.

    allocate, release: where the memory comes from, the CUDA driver by default.
    Raises ``DeviceError`` when the card has less than the cap or the memory cannot be taken this way.
    """

    def __init__(
        self,
        device: torch.device,
        cap_bytes: int | None,
        *,
        allocate: Callable[[int], int | None] = cuda_allocate,
        release: Callable[[int], None] = cuda_release,
    ) -> None:
        self._device, self._cap_bytes = device, cap_bytes
        self._allocate, self._release = allocate, release
        self._addresses: list[int] = []

    @property
    def held_bytes(self) -> int:
        """What is held now."""
        return len(self._addresses) * _CHUNK_BYTES

    def __enter__(self) -> Ballast:
        if self._cap_bytes is None:
            return self
        if self._device.type != "cuda":
            raise DeviceError(f"a cap below the card's memory needs CUDA; on {self._device.type} leave it out.")
        total = torch.cuda.mem_get_info(self._device)[1]
        if self._cap_bytes > total:
            raise DeviceError(f"a cap of {self._cap_bytes} bytes is more than the card has ({total}). Lower it.")
        self.fill(total - self._cap_bytes)
        return self

    def fill(self, num_bytes: int) -> None:
        """Hold ``num_bytes``, to the nearest chunk below. Raises ``DeviceError`` when others hold part of it."""
        while num_bytes - self.held_bytes >= _CHUNK_BYTES:
            address = self._allocate(_CHUNK_BYTES)
            if address is None:
                short = num_bytes - self.held_bytes
                self.drop()
                raise DeviceError(
                    f"the ballast lacks {short} bytes: something else uses the card. Stop it or raise the cap."
                )
            self._addresses.append(address)

    def drop(self) -> None:
        """Give everything back."""
        while self._addresses:
            self._release(self._addresses.pop())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
