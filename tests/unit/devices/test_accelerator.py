"""Without an accelerator its device says so; the ballast holds what it must, or nothing."""

import pynvml
import pytest
import torch

from paretune.harness.devices import device_named
from paretune.harness.devices.ballast import Ballast
from paretune.harness.devices.names import DeviceError, resolve_auto
from paretune.harness.environment import host_memory_limit_bytes
from paretune.harness.question import surroundings_of

CHUNK = 64 << 20


class Card:
    """A driver with so much free memory."""

    def __init__(self, free_bytes):
        self.free, self.taken = free_bytes, {}

    def allocate(self, num_bytes):
        if num_bytes > self.free:
            return None
        self.free -= num_bytes
        self.taken[len(self.taken) + 1] = num_bytes
        return len(self.taken)

    def release(self, address):
        self.free += self.taken.pop(address)


def ballast(card):
    return Ballast(torch.device("cuda"), None, allocate=card.allocate, release=card.release)


def test_the_ballast_holds_whole_chunks_and_gives_all_back():
    card = Card(10 * CHUNK)
    with ballast(card) as held:
        held.fill(3 * CHUNK + 5)
        assert held.held_bytes == 3 * CHUNK and card.free == 7 * CHUNK
    assert card.free == 10 * CHUNK and held.held_bytes == 0


def test_a_ballast_that_others_stand_in_the_way_of_holds_nothing():
    card = Card(2 * CHUNK)
    with ballast(card) as held, pytest.raises(DeviceError, match="something else uses the card"):
        held.fill(5 * CHUNK)
    assert card.free == 2 * CHUNK


def test_a_cap_needs_cuda():
    with pytest.raises(DeviceError, match="needs CUDA"):
        Ballast(torch.device("xpu"), 1).__enter__()


@pytest.mark.parametrize("spec", ["banana", "cuda:x", "gpu:0"])
def test_names_that_are_no_device_are_refused(spec):
    with pytest.raises(DeviceError, match="is not one"):
        device_named(spec)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is here")
def test_a_device_that_is_not_here_says_so_and_what_to_use():
    with pytest.raises(DeviceError, match="is not here"):
        device_named("cuda:3").facts()
    name, sentence = resolve_auto()
    assert name == "sim:rtx-4070" and "simulated" in sentence


@pytest.mark.parametrize(("text", "limit"), [("1048576", 1048576), ("max", None), ("", None)])
def test_the_containers_memory_limit_counts(tmp_path, text, limit):
    whole = host_memory_limit_bytes(tmp_path)
    (tmp_path / "memory.max").write_text(text + "\n")
    assert host_memory_limit_bytes(tmp_path) == (limit or whole)


def test_the_parent_of_trials_knows_the_card_without_initialising_it(monkeypatch):
    def refuse(*_):
        raise AssertionError("the parent initialised a device")

    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "_get_pynvml_handler", lambda device: f"card {device.index}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", {"card 0": (8, 6), "card 1": (9, 0)}.get)
    assert surroundings_of("cuda").compute_capability == (8, 6)
    there = surroundings_of("cuda:1")
    assert there.compute_capability == (9, 0) and there.num_devices == 2 and "streams" in there.capabilities
