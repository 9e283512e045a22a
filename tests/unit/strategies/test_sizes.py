"""Sizes are read strictly: units told apart, ambiguous letters refused, and what is written is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.strategies.sizes import SizeError, format_gib, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1GiB", 2**30),
        ("1GB", 10**9),
        ("1 GB", 10**9),
        (" 12GiB ", 12 * 2**30),
        ("0.5MiB", 2**19),
        ("1.1GB", 1_100_000_000),
        ("0B", 0),
        ("3KiB", 3072),
        ("3kB", 3000),
        ("1TB", 10**12),
        (10**9, 10**9),
        (0, 0),
    ],
)
def test_what_is_a_size(text: object, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    ["1Gib", "1Gb", "0.5gb", "-1", "-1GiB", "", " ", "inf", "infGiB", "nan", "12", "1e9", "1e3GB", "GiB", "1,5GB",
     "1GiB 2", "0.5B", "1PiBs", "１GiB", 0.5, 1e9, float("inf"), -1, True, None, [], "1 G B"],
)  # fmt: skip
def test_what_is_none(text: object) -> None:
    with pytest.raises(SizeError, match=r"budget\.device_memory"):
        parse_size(text, name="budget.device_memory")


def test_the_message_says_what_was_meant() -> None:
    with pytest.raises(SizeError, match="Did you mean 'GiB'"):
        parse_size("1Gib")
    with pytest.raises(SizeError, match="has no unit"):
        parse_size("12")


@given(st.integers(min_value=0, max_value=2**50))
def test_round_trip(num_bytes: int) -> None:
    assert parse_size(format_size(num_bytes)) == num_bytes


def test_gib_for_people() -> None:
    assert format_gib(12 * 2**30) == "12.00 GiB"
