"""Find the largest tile that fits: forecast the need of every size from those that ran, run the largest, look again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from paretune.harness.constraints import need_against
from paretune.harness.question import Question
from paretune.harness.records import Record
from paretune.harness.refining import best_of, changed, choices, value_in
from paretune.strategies import Plan, VaeTiling
from paretune.strategies.mechanics.tiles import largest_fitting

__all__ = ["forecast_needs", "try_larger_tiles"]

_STEP_PIXELS = 64
_MAX_RUNS = 5


def try_larger_tiles(
    question: Question, records: Sequence[Record], run: Callable[[str], Record]
) -> Iterator[tuple[str, Record]]:
    """Run the recommended plan with the largest tile that is forecast to fit the budget, and look again, a few times.

    ``run`` measures a plan. Each plan comes with its record as it is made; its tile size is a number like any other.
    Nothing is done without a cap, where the space leaves no choice of a tile size, or where the recommended plan does
    not tile with square tiles. A larger tile is no finding by itself: the recommendation compares what was measured.
    """
    cap_bytes, known = question.budget.device_memory, list(records)
    if cap_bytes is None or len(choices(question, VaeTiling, "tile_size")) < 2:
        return
    best = best_of(question, known)
    if best is None:
        return
    plan, sides = Plan.parse(best.plan), [best.workload.get(name) for name in ("height", "width")]
    chosen = _tile_of(plan)
    if chosen is None:
        return
    side = max((size for size in sides if isinstance(size, int)), default=0)
    needs = {tile: need for record in known if (found := _sibling(record, plan, cap_bytes)) for tile, need in [found]}
    for _ in range(_MAX_RUNS):
        tile = _next_tile(needs, chosen, side, cap_bytes)
        if tile is None:
            return
        text = str(changed(plan, VaeTiling, tile_size=tile))
        record = run(text)
        yield text, record
        needs[tile] = need_against(record, cap_bytes)


def _next_tile(needs: Mapping[int, int], chosen: int, side: int, cap_bytes: int) -> int | None:
    """The size to run next, between the largest known to fit and the smallest known not to; ``None`` when none is left.

    It is the largest that is forecast to fit. After one that did not fit the forecast is trusted only while it narrows
    the rest by a third, and the middle is taken otherwise.
    """
    low = max([chosen, *(tile for tile, need in needs.items() if need <= cap_bytes)])
    high = min((tile for tile, need in needs.items() if need > cap_bytes and tile > low), default=None)
    left = range((low // _STEP_PIXELS + 1) * _STEP_PIXELS, high or side, _STEP_PIXELS)
    if not left:
        return None
    tile = largest_fitting(left, forecast_needs(needs), cap_bytes)
    if high is not None and (tile is None or tile < low + (high - low) / 3):
        return left[len(left) // 2]
    return tile


def forecast_needs(needs: Mapping[int, int]) -> Callable[[int], int]:
    """Bytes that a plan needs by the side of its tile, from at least one side that ran; it never falls as tiles grow.

    Needs grow with a tile's area: straight between two sides, and beyond the last as between the last two. A single one
    is taken to grow with the area as a whole, which is too much rather than too little.
    """
    points: list[tuple[int, int]] = []
    for side in sorted(needs):
        points.append((side * side, max(needs[side], points[-1][1] if points else 0)))
    if len(points) == 1:
        points.insert(0, (0, 0))

    def forecast(side: int) -> int:
        area = side * side
        index = next((i for i in range(1, len(points)) if points[i][0] >= area), len(points) - 1)
        (low, below), (high, above) = points[index - 1], points[index]
        return max(round(below + (above - below) * (area - low) / (high - low)), points[0][1])

    return forecast


def _tile_of(plan: Plan) -> int | None:
    """Side of the plan's square tiles."""
    size = value_in(plan, VaeTiling, "tile_size")
    return size if isinstance(size, int) else None


def _sibling(record: Record, plan: Plan, cap_bytes: int) -> tuple[int, int] | None:
    """Tile size and need of a record of the same plan but for its tile size."""
    other = Plan.parse(record.plan)
    tile = _tile_of(other)
    if tile is None or changed(plan, VaeTiling, tile_size=tile) != other:
        return None
    return tile, need_against(record, cap_bytes)
