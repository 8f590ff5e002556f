//! Tests of pipelines that are parsed from text.

use slotline_image::transform::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, GaussianBlur, Normalize, RandAugment, RandomApply,
    RandomCrop, RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, RandomSolarize,
    RandomVerticalFlip, Resize, Transform, TrivialAugmentWide,
};
use slotline_image::{Interpolation, PaddingMode, Pipeline, PipelineBuilder};

fn read(text: &str) -> Vec<Transform> {
    text.parse::<PipelineBuilder>().unwrap_or_else(|error| panic!("{text}: {error}")).transforms().to_vec()
}

fn error(text: &str) -> String {
    match text.parse::<PipelineBuilder>() {
        Ok(builder) => panic!("{text} was read as {builder}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn names_and_arguments_are_those_of_torchvision() {
    let all = "resize(256), center_crop([224, 160]), random_crop(32, 4, true, 7, reflect), \
               random_resized_crop(224, [0.5, 1], ratio=(3/4, 4/3),), random_horizontal_flip(0.3), \n vflip(), \
               normalize(mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25]),";
    let crop =
        RandomCrop { pad_if_needed: true, fill: [7; 3], padding_mode: PaddingMode::Reflect, ..RandomCrop::new(32) };
    let expected: [Transform; 7] = [
        Resize::new(256).into(),
        CenterCrop::new([224, 160]).into(),
        crop.padding(4).into(),
        RandomResizedCrop { scale: [0.5, 1.0], ..RandomResizedCrop::new(224) }.into(),
        RandomHorizontalFlip::new(0.3).into(),
        RandomVerticalFlip::new(0.5).into(),
        Normalize::new([0.5; 3], [0.25; 3]).into(),
    ];
    assert_eq!(read(all), expected);
    assert_eq!(
        read("hflip, normalize(imagenet)"),
        [RandomHorizontalFlip::default().into(), Normalize::imagenet().into()]
    );
    assert_eq!(read("resize(256, bilinear, 512)"), read("resize(size=256, max_size=512)"));
    assert_eq!(read("resize(size=256, max_size=512)"), [Resize { max_size: Some(512), ..Resize::new(256) }.into()]);
    assert_eq!(
        read("random_crop(8, padding=[1, 2])"),
        [RandomCrop { padding: [1, 2, 1, 2], ..RandomCrop::new(8) }.into()]
    );
    assert_eq!(
        read("random_crop(8, fill=[1, 2, 3], padding_mode='edge', padding=[1, 2, 3, 4])"),
        [RandomCrop { padding: [1, 2, 3, 4], fill: [1, 2, 3], padding_mode: PaddingMode::Edge, ..RandomCrop::new(8) }
            .into()]
    );
    assert_eq!(read(" "), []);
}

#[test]
fn transforms_of_colours_have_torchvisions_arguments() {
    let all = "color_jitter(0.4, [0.5, 1.5], hue=0.1), random_grayscale, gaussian_blur(23, sigma=[0.1, 2]), \
               gaussian_blur([3, 5], 1.5), random_solarize(128, 0.2), \
               random_apply('color_jitter(0.8), gaussian_blur(3)', p=0.8), rand_augment(magnitude=7), \
               trivial_augment_wide(interpolation=bilinear, fill=[1, 2, 3]), auto_augment(svhn), \
               random_erasing(0.1, value=random), random_erasing(value=3), random_erasing(value=[1, 2, 3])";
    let jitter = ColorJitter { contrast: [0.5, 1.5], ..ColorJitter::new(0.4, 0.0, 0.0, 0.1) };
    let both: [Transform; 2] = [ColorJitter::new(0.8, 0.0, 0.0, 0.0).into(), GaussianBlur::new(3).into()];
    let trivial = TrivialAugmentWide { interpolation: Interpolation::Bilinear, fill: [1, 2, 3], ..Default::default() };
    let expected: [Transform; 12] = [
        jitter.into(),
        RandomGrayscale::new(0.1).into(),
        GaussianBlur::new(23).into(),
        GaussianBlur { kernel_size: [3, 5], sigma: [1.5; 2] }.into(),
        RandomSolarize::new(128.0, 0.2).into(),
        RandomApply::new(both, 0.8).into(),
        RandAugment { magnitude: 7, ..RandAugment::default() }.into(),
        trivial.into(),
        AutoAugment::new(AutoAugmentPolicy::Svhn).into(),
        RandomErasing { value: None, ..RandomErasing::new(0.1) }.into(),
        RandomErasing { value: Some([3.0; 3]), ..RandomErasing::default() }.into(),
        RandomErasing { value: Some([1.0, 2.0, 3.0]), ..RandomErasing::default() }.into(),
    ];
    assert_eq!(read(all), expected);
    let written = expected.into_iter().fold(PipelineBuilder::default(), PipelineBuilder::then).to_string();
    assert_eq!(read(&written), read(all), "{written}");
    assert_eq!(read("random_invert(0.3), random_autocontrast").len(), 2);
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for (text, written) in [
        ("resize(256),center_crop(224)", "resize(256), center_crop(224)"),
        ("resize([224, 224])", "resize([224, 224])"),
        ("resize(256, max_size=300)", "resize(256, max_size=300)"),
        ("resize(256, max_size=none)", "resize(256)"),
        (
            "random_crop(32, padding=[1, 2, 1, 2], padding_mode=edge)",
            "random_crop(32, padding=[1, 2, 1, 2], padding_mode=edge)",
        ),
        ("random_crop([8, 9], 4, fill=[0, 0, 255])", "random_crop([8, 9], padding=4, fill=[0, 0, 255])"),
        ("random_resized_crop(size=224, scale=[0.1, 1])", "random_resized_crop(224, scale=[0.1, 1])"),
        ("random_resized_crop(224, ratio=[3/4, 4/3])", "random_resized_crop(224)"),
        ("hflip(0.5), vflip(0.25)", "random_horizontal_flip, random_vertical_flip(p=0.25)"),
        ("normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])", "normalize(imagenet)"),
        ("normalize([0.1, 0, -1e-9], std=[1, 1, 1])", "normalize([0.1, 0, -0.000000001], std=[1, 1, 1])"),
    ] {
        let builder: PipelineBuilder = text.parse().unwrap();
        assert_eq!(builder.to_string(), written);
        assert_eq!(read(written), builder.transforms());
    }
    let pipeline: Pipeline = "random_resized_crop(224), hflip, normalize(imagenet)".parse().unwrap();
    assert_eq!(pipeline.to_string(), "random_resized_crop(224), random_horizontal_flip, normalize(imagenet)");
}

#[test]
fn options_say_how_files_are_read() {
    for (text, written) in [
        ("exif, resize(256), center_crop(224)", "exif, resize(256), center_crop(224)"),
        ("resize([8, 8]), check(false), reduced(), strict(true)", "reduced, strict, check(false), resize([8, 8])"),
        ("exif(false), check, resize([8, 8]), exif(on=true), exif(False)", "resize([8, 8])"),
    ] {
        let builder: PipelineBuilder = text.parse().unwrap();
        assert_eq!(builder.to_string(), written);
        assert_eq!(written.parse::<PipelineBuilder>().unwrap().to_string(), written);
        let pipeline: Pipeline = builder.build().unwrap();
        assert_eq!(
            pipeline.normalize([0.5; 3], [0.5; 3]).unwrap().to_string().split(", normalize").next(),
            Some(written)
        );
    }
}

#[test]
fn errors_name_the_transform_the_argument_and_the_place() {
    for (text, expected) in [
        ("resize(256), hflp", "character 14 of the pipeline: unknown transform hflp (did you mean hflip?); known are "),
        ("RandomCrop(32)", "unknown transform RandomCrop (did you mean random_crop?)"),
        ("resize(256) hflip", "character 13 of the pipeline: expected a comma and another transform, found 'h'"),
        (
            "random_apply([color_jitter(0.4)])",
            "character 27 of the pipeline: expected a comma or ], found '('; transforms as an argument are one text in quotation \
             marks",
        ),
        ("resize(256", "character 11 of the pipeline: expected a comma or ), found the end of the text"),
        (", hflip", "character 1 of the pipeline: expected the name of a transform, found ','"),
        (
            "random_crop(32, pading=4)",
            "character 17 of the pipeline: random_crop: unknown argument pading (did you mean padding?); known are size, padding, pad_if_needed, fill, padding_mode",
        ),
        (
            "random_crop(padding=4)",
            "character 1 of the pipeline: random_crop: size is missing; it is a whole number, or [height, width]",
        ),
        ("random_crop(siz=4)", "unknown argument siz (did you mean size?)"),
        ("random_crop", "random_crop: size is missing"),
        ("random_crop(32.5)", "random_crop: size is 32.5, expected a whole number, or [height, width]"),
        ("random_crop(-4)", "size is -4"),
        ("random_crop(32, size=3)", "character 17 of the pipeline: random_crop: size is given twice"),
        ("random_crop(padding=3, 32)", "character 24 of the pipeline: random_crop: 32 has no name"),
        ("random_crop(3, padding_mode=wrap)", "padding_mode is wrap, expected constant, edge, reflect or symmetric"),
        ("random_crop(3, fill=256)", "fill is 256, expected a whole number from 0 to 255, or [red, green, blue]"),
        ("center_crop(3, 4)", "character 16 of the pipeline: center_crop: 4 is one argument too many; known are size"),
        ("exiff, resize(8)", "character 1 of the pipeline: unknown transform exiff (did you mean exif?)"),
        ("exif(maybe)", "character 6 of the pipeline: exif: on is maybe, expected true or false"),
        ("exif(true, 2)", "exif: 2 is one argument too many; known are on"),
        ("random_apply('exif, color_jitter(0.4)')", "expected the text of transforms in quotation marks"),
        (
            "resize(256, 512)",
            "resize: interpolation is 512, expected nearest, box, bilinear, hamming, bicubic, lanczos",
        ),
        ("color_jitter(much)", "color_jitter: brightness is much, expected a number, or [from, to]"),
        ("random_apply(hflp)", "transforms is hflp, expected the text of transforms in quotation marks"),
        ("auto_augment(imagenette)", "policy is imagenette, expected imagenet, cifar10 or svhn"),
        ("hflip(often)", "hflip: p is often, expected a number"),
        ("random_resized_crop(224, scale=0.5)", "scale is 0.5, expected a list of 2, each a number"),
        ("normalize(imagnet)", "mean is imagnet, expected a list of 3, each a number (did you mean imagenet?)"),
        ("normalize([1, 2, 3])", "normalize: std is missing"),
        ("hflip(p=ü)", "p is ü"),
        ("ü, (", "character 1 of the pipeline: unknown transform ü"),
        ("hflip(\"ab)", "expected the closing quotation mark"),
        ("hflip([[[[[[1]]]]]])", "character 11 of the pipeline: expected a number, a word or a list"),
    ] {
        let message = error(text);
        assert!(message.contains(expected), "{text}\n{message}\n{expected}");
    }
    let message = "resize(0)".parse::<Pipeline>().unwrap_err().to_string();
    assert!(message.contains("Resize: size is 0 × 0"), "{message}");
}

#[test]
fn transforms_in_transforms_are_read_as_they_are_written() {
    let mut transform = Transform::from(RandomApply::new([GaussianBlur::new(3)], 1.0));
    for depth in 1..7 {
        transform = RandomApply::new([transform], 0.25).into();
        let builder = Pipeline::builder().then(transform.clone());
        let text = builder.to_string();
        let read: PipelineBuilder = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.transforms(), builder.transforms(), "{depth}");
    }
}

#[test]
fn numbers_are_finite() {
    for text in ["hflip(+nan)", "hflip(0/0)", "normalize([1/0, 0, 0], [1, 1, 1])", "random_erasing(value=1e39)"] {
        let error = text.parse::<PipelineBuilder>().unwrap_err();
        assert!(error.to_string().contains("expected a"), "{error}");
    }
}
