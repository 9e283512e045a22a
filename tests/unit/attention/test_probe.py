"""A probe survives whatever the backend does to its process, and says what happened."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from paretune.attention import entry, probe
from paretune.attention.catalog import Cost
from paretune.attention.kernels.request import Request
from paretune.attention.reference import distance, exceeded, reference


def child(program):
    return (sys.executable, "-c", f"import sys, os, time, signal\n{program}")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("sys.exit(3)", "exited with 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11"),
        ("os._exit(0)", "exited with 0"),
        ("sys.stderr.write('noise\\nCUDA error: misaligned address'); sys.exit(1)", "misaligned address"),
        ("open(sys.argv[3], 'w').write('{\"name\": ')", "exited with 0"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", "no answer within 1 s"),
    ],
)
def test_whatever_happens_is_an_answer(program, words, tmp_path):
    found = probe("native", "cpu", timeout_s=1.0, cache=tmp_path, child=child(program))
    assert not found and words in found.reason


def test_an_answer_is_kept_and_a_timeout_is_not(tmp_path):
    answer = {
        "name": "native",
        "device": "cpu",
        "ok": True,
        "reason": "",
        "dtypes": ["float32"],
        "largest_error": 0.1,
        "is_repeatable": True,
    }
    good = child(f"open(sys.argv[3], 'w').write({json.dumps(answer)!r})")
    assert not probe("native", "cpu", timeout_s=0.5, cache=tmp_path, child=child("time.sleep(9)"))
    assert not list(tmp_path.iterdir())
    assert probe("native", "cpu", cache=tmp_path, child=good)
    kept = probe("native", "cpu", cache=tmp_path, child=child("sys.exit(1)"))
    assert kept and kept.dtypes == ("float32",)
    next(tmp_path.iterdir()).write_text("torn")
    assert not probe("native", "cpu", cache=tmp_path, child=child("sys.exit(1)"))


def test_a_backend_that_is_not_here_is_not_tried(tmp_path):
    found = probe("flash", "cpu", cache=tmp_path, child=child("open('/dev/null')"))
    assert not found and "not on cpu" in found.reason and not list(tmp_path.iterdir())


def test_a_real_backend_agrees_in_a_real_child(tmp_path):
    found = probe("_native_math", "cpu", cache=tmp_path)
    assert found, found.reason
    assert set(found.dtypes) == set(entry("_native_math").limits.dtypes) and 0 < found.largest_error < 3e-2
    assert found.is_repeatable is True


def test_wrong_numbers_are_noticed():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 33, 2, 64, generator=generator) for _ in range(3))
    expected, _ = reference(query, key, value, Request(None, False, 0.125, False, False))
    causal, _ = reference(query, key, value, Request(None, True, 0.125, False, False))
    flash = entry("flash")
    assert not exceeded(flash, distance(expected.bfloat16(), expected), dtype="bfloat16", on_gpu=True)
    for wrong in (causal, expected * 1.2, torch.zeros_like(expected), expected.flip(1), expected * float("nan")):
        for backend in (flash, entry("sage"), replace(flash, exactness="lossy", cost=Cost(family="sage_int8_fp16"))):
            assert exceeded(backend, distance(wrong, expected), dtype="bfloat16", on_gpu=True)
    noisy = expected + 0.01 * expected.abs().mean() * torch.randn(expected.shape, generator=generator)
    assert not exceeded(entry("sage"), distance(noisy, expected), dtype="bfloat16", on_gpu=True)
