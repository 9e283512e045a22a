"""Architecture files: every key is checked, inheritance merges, a changed configuration voids a parameter count."""

from __future__ import annotations

from pathlib import Path

import pytest

from paretune.harness.workloads.architecture import ArchitectureError, load_architecture
from paretune.harness.workloads.assemble import assemble

GOOD = """
source: https://example.org/model
method: decode
components:
  model:
    like: sd1.5-tiny/vae
inputs:
  z: {kind: noise, shape: [1, 4, 8, 8]}
"""


def written(folder: Path, text: str) -> str:
    file = folder / "mine.yaml"
    file.write_text(text)
    return str(file)


def test_a_file_of_the_users_own_is_read_and_named_after_its_file(tmp_path: Path) -> None:
    architecture = load_architecture(written(tmp_path, GOOD))
    assert architecture.name == "mine"
    assert architecture.components["model"] is not None
    assert architecture.components["model"].config["block_out_channels"] == [16, 32, 32, 32]
    assert type(assemble(architecture)).__name__ == "AutoencoderKL"


def test_what_is_inherited_can_be_changed_and_its_parameter_count_is_void(tmp_path: Path) -> None:
    text = "extends: flux.1-dev\ncomponents:\n  transformer:\n    config: {num_layers: 2}\ncall: {height: 64}\n"
    own, parent = load_architecture(written(tmp_path, text)), load_architecture("flux.1-dev")
    transformer, inherited = own.components["transformer"], parent.components["transformer"]
    assert transformer is not None
    assert inherited is not None
    assert (transformer.config["num_layers"], transformer.parameters) == (2, None)
    assert transformer.config["num_attention_heads"] == inherited.config["num_attention_heads"]
    assert own.call == {**parent.call, "height": 64}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("method: decode", "methd: decode"), "`methd`.*Did you mean `method`"),
        (("like: sd1.5-tiny/vae", "like: sd1.5-tiny/vea"), "has no component 'vea'"),
        (("like: sd1.5-tiny/vae", "like: sd1.5-tyni/vae"), "Did you mean 'sd1.5-tiny'"),
        (("  model:", "  vae:"), "without `pipeline` there is exactly one component"),
        (("like: sd1.5-tiny/vae", "config: {}"), "give either `class`"),
        (("kind: noise", "kind: white"), "`inputs.z.kind`"),
        (("source:", "source: ["), "not valid YAML"),
    ],
)
def test_mistakes_are_refused_with_file_and_key(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = written(tmp_path, GOOD.replace(*change))
    with pytest.raises(ArchitectureError, match=said):
        load_architecture(path)


@pytest.mark.parametrize(
    ("component", "said"),
    [
        ("class: NoSuchModel", "'NoSuchModel' is not in diffusers or transformers"),
        ("class: AutoencoderKL\n    config: {latent_chanels: 4}", "components.model: AutoencoderKL refuses"),
    ],
)
def test_classes_and_configurations_are_checked_when_built(tmp_path: Path, component: str, said: str) -> None:
    text = f"source: https://example.org\ncomponents:\n  model:\n    {component}\n"
    with pytest.raises(ArchitectureError, match=said):
        assemble(load_architecture(written(tmp_path, text)))


def test_files_that_build_on_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("extends: other.yaml\n")
    (tmp_path / "other.yaml").write_text("extends: one.yaml\n")
    with pytest.raises(ArchitectureError, match="circle"):
        load_architecture(str(tmp_path / "one.yaml"))
