"""Kernels from the Hub: whose code runs, from where, how often; with a kernel folder made here and no network."""

import json
import subprocess
import sys
import types

import pytest
import torch

from paretune.attention import BackendUnavailable, availability, entry, hub
from paretune.attention.catalog import HubKernel
from paretune.attention.trust import distrust, is_opted_in

COMMUNITY = HubKernel(repo="kernels-community/flash-attn2", version=3)
OTHER = HubKernel(repo="SageAttention/sage-attention", version=3)


@pytest.mark.parametrize(
    ("environment", "community", "other"),
    [
        ({}, True, False),
        ({"PARETUNE_TRUST_REMOTE_KERNELS": "true"}, True, True),
        ({"DIFFUSERS_TRUST_REMOTE_KERNELS": "YES"}, True, True),
        ({"PARETUNE_TRUST_REMOTE_KERNELS": "0"}, True, False),
        ({"DIFFUSERS_DISABLE_REMOTE_CODE": "1"}, False, False),
        ({"PARETUNE_DISABLE_REMOTE_CODE": "on", "PARETUNE_TRUST_REMOTE_KERNELS": "true"}, False, False),
        ({"DIFFUSERS_DISABLE_REMOTE_CODE": "true", "DIFFUSERS_TRUST_REMOTE_KERNELS": "true"}, False, False),
    ],
)
def test_whose_code_may_run(environment, community, other):
    assert (distrust(COMMUNITY, environment) is None) == community
    assert (distrust(OTHER, environment) is None) == other
    assert is_opted_in(environment) == (other and community)


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(hub, "_loaded", {})
    for name in ("PARETUNE", "DIFFUSERS"):
        monkeypatch.delenv(f"{name}_TRUST_REMOTE_KERNELS", raising=False)
        monkeypatch.delenv(f"{name}_DISABLE_REMOTE_CODE", raising=False)


@pytest.fixture
def folder(tmp_path):
    """A kernel that loads with any build of torch."""
    variant = tmp_path / "kernel" / "build" / "torch-universal"
    variant.mkdir(parents=True)
    metadata = {
        "name": "flash-attn2",
        "id": "_flash_attn2_made_for_tests",
        "version": 3,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (variant / "metadata.json").write_text(json.dumps(metadata))
    (variant / "__init__.py").write_text(
        "import torch\n"
        "def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):\n"
        "    q, k, v = (t.transpose(1, 2) for t in (q, k, v))\n"
        "    f = torch.nn.functional.scaled_dot_product_attention\n"
        "    return f(q, k, v, is_causal=causal, scale=softmax_scale).transpose(1, 2)\n"
    )
    return tmp_path / "kernel"


def test_a_local_kernel_is_loaded_once_and_computes(folder, fresh, monkeypatch):
    monkeypatch.setenv("LOCAL_KERNELS", f"{COMMUNITY.repo}={folder}")
    monkeypatch.setattr("paretune.attention.contract.require", lambda entry, device: None)
    import kernels

    from paretune.attention import attend

    loads, get_kernel = [], kernels.get_kernel
    monkeypatch.setattr(kernels, "get_kernel", lambda *a, **k: (loads.append((a, k)), get_kernel(*a, **k))[1])
    query = torch.randn(1, 5, 2, 16, dtype=torch.bfloat16)
    for _ in range(3):
        output = attend(query, query, query, backend="flash_hub", causal=True)
    torch.testing.assert_close(output, attend(query, query, query, causal=True), atol=3e-2, rtol=0)
    assert len(loads) == 1 and loads[0][1]["version"] == entry("flash_hub").hub.version


def test_untrusted_code_is_never_asked_for(fresh, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the Hub was asked")

    monkeypatch.setitem(sys.modules, "kernels", types.SimpleNamespace(get_kernel=refuse))
    with pytest.raises(BackendUnavailable, match="PARETUNE_TRUST_REMOTE_KERNELS"):
        hub.load_kernel(OTHER)
    monkeypatch.setenv("PARETUNE_DISABLE_REMOTE_CODE", "1")
    with pytest.raises(BackendUnavailable, match="forbids remote code"):
        hub.load_kernel(COMMUNITY)


def test_trust_shows_in_availability(fresh, monkeypatch):
    monkeypatch.setattr("paretune.attention.available._device_reason", lambda *_: "")
    monkeypatch.setattr("paretune.attention.available._missing", lambda _: None)
    assert availability("flash_hub", "cuda")
    assert "not a trusted publisher" in availability("sage_hub", "cuda").reason
    monkeypatch.setenv("PARETUNE_TRUST_REMOTE_KERNELS", "true")
    assert availability("sage_hub", "cuda")


@pytest.mark.parametrize("damage", ["no metadata", "bad metadata", "wrong variant", "import fails"])
def test_a_broken_kernel_gives_one_clear_error(damage, folder, fresh, monkeypatch):
    variant = folder / "build" / "torch-universal"
    if damage == "no metadata":
        (variant / "metadata.json").unlink()
    elif damage == "bad metadata":
        (variant / "metadata.json").write_text("{")
    elif damage == "wrong variant":
        variant.rename(variant.with_name("torch99-cxx11-cu999-riscv-plan9"))
    else:
        (variant / "__init__.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.setenv("LOCAL_KERNELS", f"{COMMUNITY.repo}={folder}")
    with pytest.raises(BackendUnavailable, match=r"kernels-community/flash-attn2 v3 cannot be loaded"):
        hub.load_kernel(COMMUNITY)
    assert not hub._loaded


def test_offline_without_a_cache_says_so(tmp_path):
    program = (
        "from paretune.attention.hub import load_kernel\n"
        "from paretune.attention import entry, BackendUnavailable\n"
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network used')\n"
        "socket.socket.connect = refuse\n"
        "try:\n    load_kernel(entry('flash_hub').hub)\n"
        "except BackendUnavailable as error:\n    raise SystemExit(0 if 'offline' in str(error) else str(error))\n"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_process_downloads_at_a_time(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_lock_path", lambda _: tmp_path / "lock")
    monkeypatch.setattr(hub, "DOWNLOAD_TIMEOUT_S", 0.05)
    monkeypatch.setitem(sys.modules, "kernels", types.SimpleNamespace(get_kernel=lambda *a, **k: pytest.fail("raced")))
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import filelock, sys, time\n"
            f"with filelock.FileLock({str(tmp_path / 'lock')!r}): sys.stdout.write('x'); sys.stdout.flush(); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.read(1) == b"x"
        with pytest.raises(BackendUnavailable, match="another process"):
            hub.load_kernel(COMMUNITY)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
