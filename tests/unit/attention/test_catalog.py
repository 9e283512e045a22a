"""The catalogue is complete, consistent and readable without torch; its refusals follow the limits it states."""

import importlib

import pytest
from diffusers.models.attention_dispatch import AttentionBackendName

from paretune.attention import availability, catalog, entry
from paretune.attention.call import Call, refusal
from paretune.attention.catalog.rates import CHARTED, share

BASE = {"batch": 1, "queries": 64, "keys": 64, "heads": 4, "key_heads": 4, "head_size": 64, "value_size": 64}


def call(**changes):
    return Call(**{"dtype": "bfloat16", "compute_capability": (9, 0), **BASE, **changes})


def refused(name, **changes):
    return refusal(entry(name), call(**changes))


def test_every_name_of_diffusers_is_there():
    assert set(catalog()) == {member.value for member in AttentionBackendName}


@pytest.mark.parametrize("name", catalog())
def test_entries_are_consistent(name):
    found = entry(name)
    module, _, function = found.adapter.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert (found.hub is None) == (not name.endswith("_hub"))
    assert found.is_lossy == ("sage" in name)
    assert share(found.cost.family, compute_capability=(9, 0), head_size=128, sequence=4096).value > 0
    limits = found.limits
    assert limits.dtypes and (limits.capabilities or "cuda" not in found.devices)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean _flash_3_hub"):
        entry("flash_3_hub")


@pytest.mark.parametrize("name", catalog())
def test_availability_on_a_cpu_gives_one_reason(name):
    here = availability(name, "cpu")
    assert bool(here) == ("any" in entry(name).devices or "cpu" in entry(name).devices)
    if not here:
        assert here.reason.endswith(".") and "not on cpu" in here.reason
        assert str(here).startswith("no: ")


def test_a_missing_or_old_package_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr("paretune.attention.available._present", lambda kind: True)
    monkeypatch.setattr("paretune.attention.available.compute_capability", lambda kind, index=None: (9, 0))
    missing = availability("flash", "cuda")
    assert "'flash-attn' is not installed" in missing.reason and "pip install flash-attn" in missing.install
    monkeypatch.setattr("paretune.attention.available.importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("paretune.attention.available.metadata.version", lambda name: "2.5.9")
    assert "is 2.5.9, it needs 2.6.3 or newer" in availability("flash", "cuda").reason
    monkeypatch.setattr("paretune.attention.available.metadata.version", lambda name: "2.8.3")
    assert availability("flash", "cuda")
    assert "9.0" in availability("sage_blackwell_hub", "cuda").reason


@pytest.mark.parametrize("size", [1, 5, 8, 16, 24, 33, 64, 72, 80, 96, 100, 128, 160, 192, 256, 264, 384, 512])
@pytest.mark.parametrize("name", catalog())
def test_head_sizes_outside_the_limits_are_refused(name, size):
    sizes = entry(name).limits.head_sizes
    largest = sizes.largest((9, 0))
    fits = size >= sizes.minimum and (largest is None or size <= largest) and size % sizes.multiple == 0
    fits = fits and (not sizes.only or size in sizes.only)
    place = {"compute_capability": entry(name).limits.capabilities[-1][1] if entry(name).limits.capabilities else None}
    if name == "flash_4_hub":
        place = {"compute_capability": (9, 0)}
    reason = refused(name, head_size=size, value_size=size, **place)
    assert (reason is None) == fits, reason


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("flash", {"dtype": "float32"}, "not float32"),
        ("flash", {"mask": "padding"}, "takes no mask"),
        ("flash", {"causal": True, "keys": 32}, "first-key alignment"),
        ("flash", {"compute_capability": (7, 5)}, "this device has 7.5"),
        ("flash_varlen", {"mask": "dense"}, "key padding"),
        ("flash_varlen", {"mask": "padding", "causal": True}, "cannot combine"),
        ("_native_cudnn", {"keys": 1}, "at least 2 keys"),
        ("_native_cudnn", {"return_lse": True}, "log-sum-exp"),
        ("_native_efficient", {"dtype": "float32", "head_size": 6, "value_size": 6}, "multiples of 4"),
        ("sage", {"compute_capability": (10, 0)}, "this device has 10.0"),
        ("_sage_qk_int8_pv_fp8_cuda_sm90", {"compute_capability": (8, 9)}, "9.0"),
        ("sage_blackwell_hub", {"compute_capability": (12, 0), "default_scale": False}, "scale is fixed"),
        ("xformers", {"compute_capability": (10, 0), "mask": "dense"}, "masks and float32"),
        ("flash_4_hub", {"compute_capability": (10, 0), "head_size": 256, "value_size": 256}, "8 to 128"),
        ("native", {"key_heads": 2}, "enable_gqa"),
        ("native", {"key_heads": 3, "enable_gqa": True}, "not a multiple"),
    ],
)
def test_each_reason_says_what_is_wrong(name, changes, words):
    assert words in refused(name, **changes)


def test_the_int8_fp8_kernel_serves_ada():
    assert refused("_sage_qk_int8_pv_fp8_cuda", compute_capability=(8, 9)) is None


def test_rates_keep_the_ratios_of_their_charts():
    for curve in CHARTED:
        base = next(
            c
            for c in CHARTED
            if (c.family, c.chart, c.compute_capability, c.head_size)
            == ("fa2", curve.chart, curve.compute_capability, curve.head_size)
            or ((c.family, c.chart, c.compute_capability) == ("fa2", curve.chart, curve.compute_capability)
            and c.head_size == max(d.head_size for d in CHARTED if d.compute_capability == c.compute_capability
                                   and d.chart == c.chart and d.family == "fa2" and d.head_size <= 128))
        )  # fmt: skip
        if base.head_size != curve.head_size:
            continue
        place = {"compute_capability": curve.compute_capability, "head_size": curve.head_size, "sequence": 10**7}
        ratio = share(curve.family, **place).value / share("fa2", **place).value
        assert ratio == pytest.approx(curve.long_tflops / base.long_tflops, rel=0.01)
        assert share(curve.family, **place).evidence == "published"


def test_uncharted_rates_are_inferred_and_never_above_the_card():
    for capability in ((8, 0), (8, 6), (8, 9), (12, 0)):
        for family in ("fa3", "fa4", "cudnn", "triton"):
            found = share(family, compute_capability=capability, head_size=128, sequence=4096)
            assert found.evidence == "inferred" and 0 < found.value <= 1.05
    with pytest.raises(ValueError, match="no chart"):
        share("unheard_of", compute_capability=(9, 0), head_size=64, sequence=1)


def test_longer_sequences_are_never_slower():
    for family in {curve.family for curve in CHARTED}:
        values = [share(family, compute_capability=(9, 0), head_size=64, sequence=2**n).value for n in range(6, 16)]
        assert values == sorted(values)
