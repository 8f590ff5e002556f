"""Transforms of pictures as objects: the same pipelines as those of their texts."""

import copy
import dataclasses
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest
from test_pictures import photos  # noqa: F401

import slotline
from slotline import _slotline, image
from slotline.image import (
    AutoAugment,
    CenterCrop,
    ColorJitter,
    CutMix,
    GaussianBlur,
    MixUp,
    Normalize,
    Options,
    RandAugment,
    RandomAdjustSharpness,
    RandomApply,
    RandomAutocontrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomPosterize,
    RandomResizedCrop,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    TrivialAugmentWide,
)

text_of = _slotline.image_text
TRANSFORMS = {image._snake_case(kind.__name__): kind for kind in image.Transform.__subclasses__() if kind is not Options}
# Values of the arguments without defaults.
REQUIRED = {
    "size": 8,
    "kernel_size": 3,
    "sharpness_factor": 2,
    "bits": 4,
    "threshold": 99,
    "transforms": [RandomInvert()],
    "mean": [0, 0, 0],
    "std": [1, 1, 1],
}
JITTER = ColorJitter(0.8, contrast=[0.5, 1], hue=0.2)

# An object, and a text of the same transform.
CASES = [
    (Resize(20), "resize(20)"),
    (Resize((24, 30)), "resize([24, 30])"),
    (Resize(20, max_size=40), "resize(20, max_size=40)"),
    (Resize(20, "bicubic"), "resize(20, interpolation=bicubic)"),
    (CenterCrop(8), "center_crop([8, 8])"),
    (RandomCrop([8, 9], 4, padding_mode="reflect"), "random_crop([8, 9], padding=4, padding_mode=reflect)"),
    (RandomCrop(60, [1, 2], True, fill=[9, 8, 7]), "random_crop(60, padding=[1, 2], pad_if_needed=true, fill=[9, 8, 7])"),
    (RandomResizedCrop(16, (0.4, 1), [Fraction(3, 4), 4 / 3]), "random_resized_crop(16, scale=[0.4, 1], ratio=[3/4, 4/3])"),
    (RandomResizedCrop(np.int32(16), np.array([0.5, 1])), "random_resized_crop(16, [0.5, 1])"),
    (RandomHorizontalFlip(), "hflip"),
    (RandomVerticalFlip(0.3), "vflip(0.3)"),
    (JITTER, "color_jitter(0.8, [0.5, 1], hue=0.2)"),
    (RandomGrayscale(1e-7), "random_grayscale(0.0000001)"),
    (GaussianBlur([5, 9], 1.5), "gaussian_blur([5, 9], sigma=1.5)"),
    (RandomAdjustSharpness(2), "random_adjust_sharpness(2)"),
    (RandomAutocontrast(p=1), "random_autocontrast(1)"),
    (RandomEqualize(0), "random_equalize(0)"),
    (RandomInvert(0.9), "random_invert(0.9)"),
    (RandomPosterize(3, p=0.9), "random_posterize(3, p=0.9)"),
    (RandomSolarize(99.5), "random_solarize(99.5)"),
    (RandomApply([JITTER, RandomInvert()], 0.8), "random_apply('color_jitter(0.8, [0.5, 1], hue=0.2), random_invert', p=0.8)"),
    (RandomApply([RandomApply([GaussianBlur(3)])]), "random_apply(\"random_apply('gaussian_blur(3)')\")"),
    (RandAugment(3, 5, 11, "bilinear", 128), "rand_augment(3, 5, 11, bilinear, 128)"),
    (TrivialAugmentWide(interpolation="bilinear", fill=(1, 2, 3)), "trivial_augment_wide(interpolation=bilinear, fill=[1, 2, 3])"),
    (AutoAugment("cifar10"), "auto_augment(cifar10)"),
    (RandomErasing(1, (0.1, 0.2), value=[1, 2, 3]), "random_erasing(1, scale=[0.1, 0.2], value=[1, 2, 3])"),
    (RandomErasing(value="random"), "random_erasing(value=random)"),
    (Normalize([0.5] * 3, (0.25, 0.25, 0.25)), "normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])"),
    (Normalize.imagenet(), "normalize(imagenet)"),
    (Options(exif=True, check=False, exact=True), "exif, check(false), exact"),
    (Options(reduced=True, strict=True), "strict, reduced"),
    (Options(), ""),
]


def known(text):
    """Returns the names that the parser expects in place of an unknown one."""
    with pytest.raises(slotline.DataError, match="unknown") as error:
        text_of(text)
    return re.split(", ", re.search("known are (.*)", str(error.value))[1])


def test_every_transform_and_option_of_the_parser_has_its_object():
    options = [field.name for field in dataclasses.fields(Options)]
    assert sorted(known("none")) == sorted([*TRANSFORMS, "hflip", "vflip", *options])
    assert {type(transform) for transform, _ in CASES} == {*TRANSFORMS.values(), Options}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_arguments_and_defaults_are_those_of_the_parser(name):
    fields = dataclasses.fields(TRANSFORMS[name])
    assert known(f"{name}(none=1)") == [field.name for field in fields]
    required = {field.name: REQUIRED[field.name] for field in fields if field.default is dataclasses.MISSING}
    # The object writes all of its arguments, and this text only those without a default.
    given = required | ({"transforms": repr(image.pipeline(REQUIRED["transforms"]))} if "transforms" in required else {})
    text = f"{name}({', '.join(f'{argument}={value}' for argument, value in given.items())})"
    assert str(TRANSFORMS[name](**required)) == text_of(text)
    assert all(field.name in TRANSFORMS[name].__doc__ for field in fields)


@pytest.mark.parametrize(("transform", "text"), CASES, ids=[text for _, text in CASES])
def test_an_object_is_the_transform_of_its_text(transform, text):
    assert str(transform) == text_of(text) == text_of(str(transform))
    for same in pickle.loads(pickle.dumps(transform)), copy.deepcopy(transform), dataclasses.replace(transform):
        assert same == transform and hash(same) == hash(transform) and str(same) == str(transform)
    if "array(" not in repr(transform):
        assert eval(repr(transform), vars(image) | {"Fraction": Fraction}) == transform
    assert [other for other, _ in CASES if other == transform] == [transform]


@pytest.mark.parametrize(("transform", "text"), CASES, ids=[text for _, text in CASES])
def test_pictures_of_an_object_have_the_bits_of_its_text(photos, transform, text):  # noqa: F811
    if isinstance(transform, Normalize | RandomErasing):
        around = [CenterCrop(16), *([Normalize.imagenet()] if "erasing" in text else [])], []
    else:
        around = [Options(exact="bicubic" in text), RandomResizedCrop(60)], [CenterCrop(16)]
    before, after = around
    texts = [image.pipeline(before), text, image.pipeline(after)]
    try:
        by_text = slotline.folder(photos, image=", ".join(filter(None, texts)))
    except slotline.DataError as error:
        if "turbo" in str(error):
            pytest.skip("needs libjpeg-turbo")
        raise
    datasets = by_text, slotline.folder(photos, image=[*before, transform, *after])
    for a, b in zip(*(slotline.Loader(dataset, 5, shuffle=True, seed=2) for dataset in datasets), strict=True):
        np.testing.assert_array_equal(a["data"], b["data"])
    assert pickle.loads(pickle.dumps(datasets[1])).fields == by_text.fields


def test_torchvisions_enums_are_words(photos):  # noqa: F811
    v2 = pytest.importorskip("torchvision.transforms.v2")
    assert Resize(8, v2.InterpolationMode.BICUBIC) == Resize(8, "bicubic")
    assert Resize(8, v2.InterpolationMode.NEAREST_EXACT) == Resize(8, "nearest")
    assert AutoAugment(v2.AutoAugmentPolicy.CIFAR10) == AutoAugment("cifar10")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Resize("x"), ValueError, "resize: size is x, expected a whole number for the shorter side, or [height, width]"),
        (lambda: Resize(8.0), ValueError, "resize: size is 8.0, expected a whole number"),
        (lambda: Resize(None), ValueError, "resize: size is missing; it is a whole number"),
        (lambda: Resize(0), ValueError, "Resize"),
        (lambda: RandomHorizontalFlip(2), ValueError, "is 2; a probability is between 0 and 1"),
        (lambda: RandomHorizontalFlip(True), ValueError, "p is True, expected a number"),
        (lambda: RandomHorizontalFlip(float("nan")), ValueError, "p is nan, expected a number"),
        (lambda: RandomHorizontalFlip(object), TypeError, "RandomHorizontalFlip: p is <class 'object'>; it must be a number, a word"),
        (lambda: RandomCrop(8, padding_mode="edge), hflip("), ValueError, "expected constant, edge, reflect or symmetric"),
        (lambda: Normalize([0, 0], [1, 1, 1]), ValueError, "mean is [0, 0], expected a list of 3"),
        (lambda: Options(exif=1), ValueError, "exif: on is 1, expected true or false"),
        (lambda: RandomApply("random_invert"), TypeError, "pass a list of transforms of slotline.image"),
        (lambda: RandomApply([Resize(8)]), ValueError, "only transforms of colours are possible"),
        (lambda: image.pipeline([Resize(8), len]), TypeError, "of type builtins.builtin_function_or_method; pass transforms of"),
        (lambda: slotline.folder("x", image=Resize(8)), TypeError, "or to image= their text"),
        (lambda: MixUp(num_classes=3, alpha=0), ValueError, "alpha is 0; it must be above 0"),
        (lambda: CutMix(num_classes=3, seed=-1), ValueError, "seed is -1; it must not be negative"),
    ],
)
def test_what_cannot_be_is_an_error_when_the_object_is_made(make, error, message):
    with pytest.raises(error, match=re.escape(message)):
        make()


def test_a_list_that_changes_later_does_not_change_the_object():
    size = [8, 9]
    crop = CenterCrop(size)
    size[0] = 7
    assert crop.size == (8, 9) and str(crop) == "center_crop([8, 9])"
    with pytest.raises(dataclasses.FrozenInstanceError):
        crop.size = 9


ARRAYS = [("numpy", False), ("numpy", True), ("torch", False), ("torch", True)]


@pytest.mark.parametrize(("library", "channels_last"), ARRAYS)
@pytest.mark.parametrize("kind", [MixUp, CutMix])
def test_pictures_and_labels_are_mixed_with_the_same_weights(kind, library, channels_last):
    torch = pytest.importorskip("torch") if library == "torch" else None
    pixels = np.random.default_rng(1).random((5, 3, 40, 60), np.float32)
    labels = np.array([0, 3, 3, 1, 2])
    mix = kind(num_classes=4, alpha=0.7, seed=3, channels_last=channels_last)
    weights = []
    for epoch, index in (0, 0), (0, 1), (1, 0), (1, 1):
        given = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)) if channels_last else pixels.copy()
        mixed, soft = mix(torch.from_numpy(given), torch.from_numpy(labels), epoch, index) if torch else mix(given, labels, epoch, index)
        mixed, soft = np.asarray(mixed), np.asarray(soft)
        assert soft.dtype == np.float32 and soft.shape == (5, 4)
        assert np.shares_memory(mixed, given)
        mixed = mixed.transpose(0, 3, 1, 2) if channels_last else mixed
        own = soft[0, 0]
        one_hot = np.eye(4, dtype="f4")[labels]
        np.testing.assert_allclose(soft, own * one_hot + (1 - own) * np.roll(one_hot, 1, 0), atol=1e-6)
        before = np.roll(pixels, 1, 0)
        if kind is MixUp:
            np.testing.assert_allclose(mixed, own * pixels + (1 - own) * before, atol=1e-6)
        else:
            cut = (mixed != pixels).any((0, 1))
            rows, columns = (np.flatnonzero(cut.any(axis)) for axis in (1, 0))
            np.testing.assert_array_equal(mixed, np.where(cut, before, pixels))
            assert cut.sum() == len(rows) * len(columns) and abs(cut.mean() - (1 - own)) < 1e-6
        again, _ = kind(num_classes=4, alpha=0.7, seed=3)(pixels.copy(), labels, epoch, index)
        np.testing.assert_array_equal(mixed, again)
        weights.append(own)
    assert len(set(weights)) == 4 and kind(num_classes=4, seed=4) != mix


@pytest.mark.parametrize(
    ("kind", "soft", "total"),
    [(MixUp, [1_053_634_620, 1_058_629_602], 197_063_524_973), (CutMix, [1_063_675_494, 1_036_831_949], 195_505_946_626)],
)
def test_a_mix_has_the_bits_of_rusts(kind, soft, total):
    # `image/tests/pipelines/mix.rs` checks the same numbers.
    pixels = (np.arange(180, dtype="f4") / np.float32(7)).reshape(3, 3, 5, 4)
    mixed, labels = kind(num_classes=2, alpha=0.7, seed=3)(pixels, np.array([0, 1, 1]), 1, 1)
    assert labels.view("u4")[0].tolist() == soft
    assert int(mixed.view("u4").astype("u8").sum()) == total


@pytest.mark.parametrize("kind", [MixUp, CutMix])
def test_a_mix_in_the_loader_follows_its_seed_and_resumes(kind):
    data = slotline.Arrays(x=np.random.default_rng(2).random((24, 3, 8, 6), np.float32), y=np.arange(24))
    mix = kind(num_classes=24, seed=3)

    def new(seed=5, workers=0):
        return slotline.Loader(data, 4, True, seed=seed, num_workers=workers, transform=lambda batch: mix(batch["x"], batch["y"]))

    def weights(batches):
        return [labels.max(1).tolist() for _, labels in batches]

    loader = new()
    passes = [weights(loader) for _ in range(2)]
    assert passes[0] != passes[1] and len({row[0] for each in passes for row in each}) > 6 and weights(new(6)) != passes[0]
    resumed = new(workers=2)
    other = new()
    batches = iter(other)
    next(batches), next(batches)
    resumed.load_state_dict(other.state_dict())
    assert weights(resumed) == passes[0][2:] and weights(resumed) == passes[1]
    # Outside of a loader, each call draws anew.
    drawn = [mix(np.ones((4, 3, 8, 6), "f4"), np.arange(4))[1].max() for _ in range(4)]
    assert len(set(drawn)) > 1


def test_what_cannot_be_mixed_is_an_error_and_changes_nothing():
    pixels, labels = np.ones((2, 3, 4, 4), "u1"), np.array([0, 2])
    with pytest.raises(slotline.DataError, match="type uint8; MixUp needs a floating-point type"):
        MixUp(num_classes=3)(pixels, labels, 0, 0)
    with pytest.raises(slotline.DataError, match="labels are from 0 to 2, but num_classes is 2"):
        CutMix(num_classes=2)(pixels, labels, 0, 0)
    with pytest.raises(slotline.DataError, match=r"pass \[N, 3, H, W\] and \[N\]"):
        CutMix(num_classes=3)(pixels[0], labels, 0, 0)
    with pytest.raises(slotline.DataError, match=r"images have shape \(2, 5, 4, 3\).*pass \[N, 3, H, W\]"):
        CutMix(num_classes=3)(np.ones((2, 5, 4, 3), "f4"), labels)
    with pytest.raises(slotline.DataError, match="labels have elements of type float64; pass integers"):
        CutMix(num_classes=3)(pixels, labels / 2)
    for wrong, message in [(labels.tolist(), "labels is of type list"), (labels, "belong together")]:
        with pytest.raises(TypeError, match=message):
            CutMix(num_classes=3)(pixels, wrong, 0)
    with pytest.raises(slotline.OptionError, match="epoch is -1"):
        CutMix(num_classes=3)(pixels, labels, -1, 0)
    assert (pixels == 1).all()
