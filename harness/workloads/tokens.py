"""Make tokenizers without a vocabulary file: one token per word, newline or punctuation mark."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["TokenizerSpec", "synthetic_tokenizer", "vocabulary"]

_LETTERS = string.ascii_lowercase + string.digits

# A word is known by its first two characters, so a vocabulary of about 1,400 entries has a token for each.
_FIRST_TWO = r"(?<=[a-z0-9]{2})[a-z0-9]+"
_PIECES = r"\n|[a-z0-9]+|[^a-z0-9\s]"


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """What a pipeline can see of a tokenizer: how long, what it wraps a prompt in, how it pads.

    Attributes:
        max_length: `model_max_length`, in tokens.
        begin: special token put before every text, or none.
        end: special token put after every text, or none.
        pad: padding token; may be the same word as `end`, as in CLIP.
        padding_side: `right` or `left`.
        special_tokens: further words that are one token each (chat markers).
        chat_template: Jinja text for `apply_chat_template`, or none.
        position_ids: also return `position_ids`, which ChatGLM reads.
    """

    max_length: int
    begin: str | None = None
    end: str | None = None
    pad: str = "<pad>"
    padding_side: str = "right"
    special_tokens: tuple[str, ...] = ()
    chat_template: str | None = None
    position_ids: bool = False


def vocabulary(spec: TokenizerSpec) -> dict[str, int]:
    """Ids of every token; special tokens have the highest ids and `end` the highest of all.

    CLIP's text model pools at the largest id of the text, which is how the end of the text is found there.
    """
    pieces = ["<unk>", "\n", *string.punctuation, *_LETTERS, *(a + b for a in _LETTERS for b in _LETTERS)]
    specials = [*spec.special_tokens, spec.pad, spec.begin, spec.end]
    words = list(dict.fromkeys([*pieces, *(word for word in specials if word and word != spec.end)]))
    return {word: index for index, word in enumerate([*words, spec.end] if spec.end else words)}


def synthetic_tokenizer(spec: TokenizerSpec) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers' own class with a made-up vocabulary: about one token per word of the text."""
    from transformers import PreTrainedTokenizerFast

    kind = _class_with_position_ids() if spec.position_ids else PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = kind(
        tokenizer_object=_core(spec),
        unk_token="<unk>",
        pad_token=spec.pad,
        bos_token=spec.begin,
        eos_token=spec.end,
        additional_special_tokens=list(spec.special_tokens),
        model_max_length=spec.max_length,
        padding_side=spec.padding_side,
        model_input_names=["input_ids", "attention_mask"],
    )
    if spec.chat_template:
        tokenizer.chat_template = spec.chat_template
    return tokenizer


def _core(spec: TokenizerSpec) -> Tokenizer:
    """The splitting rules and the vocabulary, without transformers' wrapping."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    words = vocabulary(spec)
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    splits = [(_PIECES, "isolated"), (r"[^\S\n]+", "removed"), (_FIRST_TWO, "removed")]
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), behavior=behavior) for pattern, behavior in splits]
    )
    around = [word for word in (spec.begin, spec.end) if word]
    if around:
        single = " ".join(word for word in (spec.begin, "$A", spec.end) if word)
        core.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[(word, words[word]) for word in around]
        )
    return core


def _class_with_position_ids() -> type[PreTrainedTokenizerFast]:
    """A tokenizer class that also counts positions from the first real token, as ChatGLM's does."""
    from transformers import PreTrainedTokenizerFast

    class PositionedTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            encoded = super().__call__(*args, **kwargs)
            encoded["position_ids"] = (encoded["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            return encoded

    return PositionedTokenizer
