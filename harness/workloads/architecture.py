"""Read an architecture file: the classes and configurations of a model, without weights; every key is checked."""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from paretune.harness.workloads.documents import ArchitectureError, read_document, shipped

__all__ = ["Architecture", "ArchitectureError", "Component", "Input", "Tokens", "load_architecture", "shipped"]

DType = Literal["float32", "float16", "bfloat16"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tokens(_Strict):
    """A synthetic tokenizer, see `tokens.TokenizerSpec`."""

    max_length: int = Field(gt=0)
    begin: str | None = None
    end: str | None = None
    pad: str = "<pad>"
    padding_side: Literal["right", "left"] = "right"
    special_tokens: tuple[str, ...] = ()
    chat_template: str | None = None
    position_ids: bool = False


class Component(_Strict):
    """One part of a pipeline: a class with its configuration, or a tokenizer.

    Attributes:
        class_name: a class of diffusers or transformers, or a dotted path.
        config: what the class (or its configuration class) is called with.
        dtype: where it differs from the architecture's.
        parameters: the number of parameters of the published model, checked by a test.
        tokenizer: instead of a class.
    """

    class_name: str | None = Field(default=None, alias="class")
    config: dict[str, Any] = {}
    dtype: DType | None = None
    parameters: int | None = Field(default=None, gt=0)
    tokenizer: Tokens | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Component:
        if (self.class_name is None) == (self.tokenizer is None):
            raise ValueError("give either `class` (with `config`) or `tokenizer`")
        return self


class Input(_Strict):
    """An argument that is made, not written down: a tensor of seeded noise, integers, a constant, or a picture.

    Attributes:
        shape: of the tensor, batch first.
        shared: the first dimension is not the batch (position ids, rotary tables).
        value: of a constant. high: bound of integers, exclusive.
        height, width: of a picture, in pixels.
        dtype: of a floating tensor, where it differs from the workload's.
    """

    kind: Literal["noise", "integers", "constant", "image"]
    shape: tuple[int, ...] = (1,)
    shared: bool = False
    value: float = 0.0
    high: int = 2
    height: int = 0
    width: int = 0
    dtype: DType | Literal["int64"] | None = None


class Architecture(_Strict):
    """One model: components by name, how it is called by default, and where its configuration was published.

    Attributes:
        pipeline: the diffusers class that runs it; without one the single component `model` is called itself.
        method: the method of `model` that is called: `forward`, `encode` or `decode`.
        options: further arguments of the pipeline's constructor.
        call: arguments of the pipeline's `__call__` (or of the method).
        inputs: arguments that are made from a seed.
    """

    name: str
    source: str
    pipeline: str | None = None
    method: Literal["forward", "encode", "decode"] = "forward"
    dtype: DType = "bfloat16"
    options: dict[str, Any] = {}
    components: dict[str, Component | None]
    call: dict[str, Any] = {}
    inputs: dict[str, Input] = {}

    @field_validator("call", "options")
    @classmethod
    def _null_takes_away(cls, value: dict[str, Any]) -> dict[str, Any]:
        """What a file inherits and its pipeline does not take is set to null."""
        return {key: item for key, item in value.items() if item is not None}

    @model_validator(mode="after")
    def _module_stands_alone(self) -> Architecture:
        if self.pipeline is None and list(self.components) != ["model"]:
            raise ValueError("without `pipeline` there is exactly one component, named `model`")
        return self


def load_architecture(name: str) -> Architecture:
    """The architecture of that name, or in the YAML file of that path.

    Raises:
        ArchitectureError: no such file (with the nearest name), or a key or value that does not belong there.
    """
    document = read_document(name)
    try:
        return Architecture(**document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "(top)"
        raise ArchitectureError(f"{name}: `{key}`: {first['msg']}. {_advice(key)}") from error


def _advice(key: str) -> str:
    known = [
        field.alias or name
        for kind in (Architecture, Component, Input, Tokens)
        for name, field in kind.model_fields.items()
    ]
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1)
    return f"Did you mean `{near[0]}`?" if near and near[0] != key.rpartition(".")[2] else "Correct the file."
