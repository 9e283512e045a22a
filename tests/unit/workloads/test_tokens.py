"""Synthetic tokenizers: lengths, padding and special tokens as pipelines see them."""

from __future__ import annotations

import pytest

from paretune.harness.workloads.tokens import TokenizerSpec, synthetic_tokenizer, vocabulary

CLIP = TokenizerSpec(max_length=77, begin="<|startoftext|>", end="<|endoftext|>", pad="<|endoftext|>")
QWEN_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
)


def test_a_text_is_wrapped_padded_and_truncated_to_the_models_length() -> None:
    encoded = synthetic_tokenizer(CLIP)(
        ["An astronaut riding a horse", "fox " * 100], padding="max_length", truncation=True, return_tensors="pt"
    )
    assert encoded.input_ids.shape == (2, 77)
    assert encoded.attention_mask.sum(-1).tolist() == [7, 77]


def test_the_end_of_the_text_has_the_largest_id() -> None:
    words = vocabulary(CLIP)
    assert max(words, key=lambda word: words[word]) == "<|endoftext|>"
    assert len(words) < 1500


def test_words_newlines_and_marks_are_one_token_each() -> None:
    spec = TokenizerSpec(max_length=1024, special_tokens=("<|im_start|>", "<|im_end|>"))
    assert len(synthetic_tokenizer(spec).tokenize(QWEN_TEMPLATE)) == 34  # as many as Qwen-Image's pipeline cuts off


def test_positions_are_counted_from_the_first_real_token() -> None:
    tokenizer = synthetic_tokenizer(TokenizerSpec(max_length=8, padding_side="left", position_ids=True))
    encoded = tokenizer(["red fox"], padding="max_length", max_length=5, return_tensors="pt")
    assert encoded["position_ids"].tolist() == [[0, 0, 0, 0, 1]]


@pytest.mark.parametrize(("one", "other"), [("red fox", "red dog"), ("a", "b"), ("12", "13")])
def test_different_texts_have_different_tokens(one: str, other: str) -> None:
    tokenizer = synthetic_tokenizer(CLIP)
    assert tokenizer(one).input_ids != tokenizer(other).input_ids
