"""What a plan leaves behind is told; what a model does to itself when it is called is not held against the plan."""

import torch

from paretune.harness.restored import differences, look


def ours(module, args):
    return None


ours.__module__ = "paretune.strategies.mechanics.anything"


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3), torch.nn.BatchNorm2d(2)).eval()


def test_an_untouched_model_differs_in_nothing():
    made = model()
    before = look(made)
    made.called_once = True
    made[0].register_forward_pre_hook(lambda module, args: None)
    assert differences(before, look(made)) == []


def test_hooks_dtypes_strides_classes_and_placement_that_stay_are_named():
    for change, path in [
        (lambda m: m[0].register_forward_pre_hook(ours), "model.0"),
        (lambda m: m[0].half(), "model.0.weight"),
        (lambda m: m[0].to(memory_format=torch.channels_last), "model.0.weight"),
        (lambda m: setattr(m[1], "__class__", type("Other", (torch.nn.BatchNorm2d,), {})), "model.1"),
        (lambda m: m[1].to("meta"), "model.1.running_mean"),
        (lambda m: m.train(), "model"),
    ]:
        made = model()
        before = look(made)
        change(made)
        assert any(sentence.startswith(f"{path}: ") for sentence in differences(before, look(made))), path
