"""Keep a component's weights in sharded files that are mapped into memory, instead of in the process's own memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paretune.strategies.base import ComponentStrategy, Facts, Role, Undo, tunable
from paretune.strategies.errors import PlanError
from paretune.strategies.rules import Before, Excludes
from paretune.strategies.sizes import SizeError, parse_size

if TYPE_CHECKING:
    import torch

__all__ = ["ShardedCheckpoint"]

_FIRST = "the weights are read from the shards before anything places or converts them"


@dataclass(frozen=True, kw_only=True)
class ShardedCheckpoint(ComponentStrategy):
    """Write the weights as safetensors shards and load them back shard by shard, as a checkpoint too large for memory
    is.

    The host needs room for one shard beside what else it holds, and the operating system may drop pages of the mapped
    files that nothing reads. ``paretune.strategies.mechanics.checkpoint`` saves and loads such checkpoints for good.
    The shards go to a new folder inside ``folder`` (the system's temporary one unless said), which undo removes.

    Raises ``OSError`` when the folder cannot be written.
    """

    everywhere: ClassVar[bool] = True
    roles: ClassVar[tuple[Role, ...]] = ("denoiser", "text_encoder", "vae", "other")
    rules = (
        Before(other="layerwise_casting", because=_FIRST),
        Before(other="quantize", because=_FIRST),
        Before(other="channels_last", because=_FIRST),
        Excludes(other="sharded_checkpoint", because="weights have one home"),
    )

    max_shard_size: int | str = tunable(
        default="5GB", choices=("5GB",), free=True, help="largest shard, such as 5GB (10^9) or 5GiB (2^30)"
    )
    folder: str | None = tunable(default=None, choices=(None,), free=True, help="where the folder of shards is made")

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            parse_size(self.max_shard_size, name="sharded_checkpoint.max_shard_size")
        except SizeError as error:
            raise PlanError(str(error)) from error

    def apply(self, model: torch.nn.Module, device: torch.device, undo: Undo) -> Facts:
        from paretune.strategies.mechanics.sharding import keep_in_shards

        return keep_in_shards(model, self.max_shard_size, self.folder, undo)
