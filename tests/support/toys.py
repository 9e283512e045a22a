"""Small models that are awkward on purpose: each has one habit of real models that placement code gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["MODULES", "PIPELINES", "Case", "FakePipeline", "Interrupt", "make_pipeline"]

WIDTH = 8


class Block(nn.Module):
    """A residual block with a normalisation, two linear layers, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gain * self.down(functional.gelu(self.up(self.norm(x))))


class LoneLayers(nn.Module):
    """Layers that stand alone before and after the blocks, parameters and buffers at the root."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.after = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH))
        self.register_buffer("mean", torch.rand(WIDTH))
        self.register_buffer("scratch", torch.rand(WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.after(x) + self.scratch

    def un_normalise(self, x: torch.Tensor) -> torch.Tensor:
        """Reads two root tensors outside of any forward."""
        return x * self.scale + self.mean


class OutOfOrder(nn.Module):
    """Calls its blocks in another order than it declares them, one of them twice, one only sometimes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.skips = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in (2, 0, 0, 3) if self.skips else (2, 0, 1, 3, 0):
            x = self.blocks[index](x)
        self.skips = not self.skips
        return x


class SharedModule(nn.Module):
    """One module under two parents."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), shared) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


class TiedWeights(nn.Module):
    """An embedding tied to the output layer, and a bias that is a view of another parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 16, bias=False)
        self.head.weight = self.embed.weight
        self.part = nn.Parameter(self.blocks[0].up.weight.detach()[2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed((x.abs() * 10).long().clamp(max=15)).mean(-2) + self.part
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Buffers(nn.Module):
    """Every kind of buffer, deep down and at the root."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.layer = nn.Linear(WIDTH, WIDTH)
        self.inner.register_buffer("count", torch.tensor(3))
        self.inner.register_buffer("index", torch.arange(WIDTH).flip(0))
        self.inner.register_buffer("factor", torch.tensor(0.5), persistent=False)
        self.inner.register_buffer("nothing", None)
        self.register_buffer("wide", torch.rand(1).expand(WIDTH))
        self.register_buffer("column", torch.rand(WIDTH, WIDTH).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner.layer(x)[..., self.inner.index] * self.inner.factor
        return (x + self.inner.count) @ self.column + self.wide


class BareParameters(nn.Module):
    """Parameters in a ParameterList, a ParameterDict and on a container that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.ParameterList(torch.rand(WIDTH) for _ in range(2))
        self.named = nn.ParameterDict({"a": torch.rand(WIDTH, WIDTH)})
        self.holder = nn.Module()
        self.holder.weight = nn.Parameter(torch.rand(WIDTH, WIDTH))
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x * self.table[0] + self.table[1]) @ self.named["a"]
        return self.blocks[0](x @ self.holder.weight)


class ReadsChildren(nn.Module):
    """Uses the weights of children that it never calls, in a functional call, and asks one for its device and value."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.filter = nn.Conv1d(1, 1, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH)), nn.Sequential(nn.Linear(WIDTH, WIDTH))])
        self.register_buffer("flag", torch.tensor(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.linear(x.to(self.project.weight.device), self.project.weight, self.project.bias)
        if self.flag.item():
            x = functional.conv1d(x.unsqueeze(1), self.filter.weight, self.filter.bias, padding=1).squeeze(1)
        first, second = self.blocks[0][0].weight, self.blocks[1][0].weight
        return self.blocks[1](functional.linear(functional.linear(x, first), second))


class Attention(nn.Module):
    """torch's own attention, whose output layer's weights are read and never called."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.MultiheadAttention(WIDTH, 2, batch_first=True) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unsqueeze(0)
        for block in self.blocks:
            x = x + block(x, x, x, need_weights=False)[0]
        return x[0]


class Recursive(nn.Module):
    """Calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
        x = self.blocks[0](self.layer(x))
        return self(x, depth - 1) if depth else self.layer(x)


class Convolutions(nn.Module):
    """Weights of rank 1 to 5, one of them stored with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.two = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.three = nn.Conv3d(1, 1, 1)
        self.one = nn.Conv1d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(x.reshape(1, 2, 4, -1))
        return self.one(self.three(x.unsqueeze(0)).squeeze(0).flatten(2)).flatten()


class Checkpointed(nn.Module):
    """Recomputes its blocks in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


@dataclass
class Carrier:
    """A tensor in a dataclass."""

    value: torch.Tensor


class OddContainers(nn.Module):
    """Takes and returns tensors in containers that are not tuples, and fills a dict of the caller's."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen: dict[str, torch.Tensor] = {}
        out = self.inner(Carrier(x), box=SimpleNamespace(value=x), seen=seen)
        return out.value + seen["input"]

    def inner(self, carrier: Carrier, *, box: SimpleNamespace, seen: dict[str, torch.Tensor]) -> Carrier:
        seen["input"] = carrier.value
        return Carrier(self.blocks[0](carrier.value) + box.value)


class Interrupt(KeyboardInterrupt):
    """Stands for the user's Ctrl-C."""


@dataclass(frozen=True)
class Case:
    """A toy and how to build it; ``entries`` are further calls that must answer as the untouched model does."""

    name: str
    build: Callable[[], nn.Module]
    entries: tuple[Callable[[nn.Module, torch.Tensor], torch.Tensor], ...] = ()

    def model(self, seed: int = 0) -> nn.Module:
        """The toy with seeded weights, in evaluation mode."""
        torch.manual_seed(seed)
        return self.build().eval()

    @staticmethod
    def input() -> torch.Tensor:
        """What every toy takes."""
        return torch.linspace(-1, 1, 4 * WIDTH).reshape(4, WIDTH)


MODULES = (
    Case(
        "lone_layers",
        LoneLayers,
        (
            lambda m, x: m.un_normalise(x),
            lambda m, x: m.blocks[1](x),
            lambda m, x: m.blocks[1].up(x),
            lambda m, x: m.after(x),
        ),
    ),
    Case("out_of_order", OutOfOrder),
    Case("shared_module", SharedModule, (lambda m, x: m.blocks[1](x),)),
    Case("tied_weights", TiedWeights),
    Case("buffers", Buffers),
    Case("bare_parameters", BareParameters),
    Case("reads_children", ReadsChildren),
    Case("attention", Attention),
    Case("recursive", Recursive),
    Case("convolutions", Convolutions),
    Case("checkpointed", Checkpointed),
    Case("odd_containers", OddContainers),
)


class FakeVae(nn.Module):
    """An autoencoder in small: two directions, none of them ``forward``, and statistics that the pipeline reads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        self.decoder = nn.Module()
        self.decoder.inlet = nn.Linear(WIDTH, WIDTH)
        self.decoder.up_blocks = nn.ModuleList(Block() for _ in range(2))
        self.bn = nn.BatchNorm1d(WIDTH)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        z = self.decoder.inlet(z)
        for block in self.decoder.up_blocks:
            z = block(z)
        return z

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x))


class FakePipeline:
    """A pipeline in small: a text encoder, a denoiser that is called every step, an autoencoder, and a history."""

    model_cpu_offload_seq = "text_encoder->transformer->vae"

    def __init__(self, text_encoder: nn.Module | None, transformer: nn.Module, vae: nn.Module | None) -> None:
        self.text_encoder, self.transformer, self.vae = text_encoder, transformer, vae

    @property
    def components(self) -> dict[str, nn.Module | None]:
        """As diffusers' pipelines name their parts."""
        return {"text_encoder": self.text_encoder, "transformer": self.transformer, "vae": self.vae, "scheduler": None}

    @property
    def _execution_device(self) -> torch.device:
        return next(self.transformer.parameters()).device

    def encode_prompt(self, x: torch.Tensor) -> torch.Tensor:
        """Run the text encoder alone."""
        assert self.text_encoder is not None
        return self.text_encoder(x.to(self._execution_device))

    def __call__(self, x: torch.Tensor, embeddings: torch.Tensor | None = None, steps: int = 3) -> torch.Tensor:
        embeddings = self.encode_prompt(x) if embeddings is None else embeddings
        latents = torch.ones_like(x, device=self._execution_device)
        history = []
        for _ in range(steps):
            latents = latents - 0.1 * self.transformer(latents + embeddings)
            history.append(latents)
        latents = torch.stack(history).mean(0)
        if self.vae is None:
            return latents
        latents = latents * torch.sqrt(self.vae.bn.running_var + 1e-4) + self.vae.bn.running_mean
        return self.vae.decode(latents)


def make_pipeline(seed: int = 0, *, text_encoder: bool = True, vae: bool = True) -> FakePipeline:
    """A seeded pipeline of toys."""
    torch.manual_seed(seed)
    parts = [Block() if text_encoder else None, LoneLayers(), FakeVae() if vae else None]
    for part in parts:
        if part is not None:
            part.eval()
    return FakePipeline(*parts)  # type: ignore[arg-type]


PIPELINES = (make_pipeline,)
