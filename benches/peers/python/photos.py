"""python-jpegs: JPEGs in files, decoded, resized and cropped to 224 x 224, as floating-point numbers."""

import numpy as np
import torch

COUNT = 512  # samples, of which two at a time are the same picture
PICTURES = 256
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Photos(torch.utils.data.Dataset):
    """The label of a photograph is its number."""

    def __init__(self, folder, decoder):
        from PIL import Image

        if decoder == "torchvision":
            from torchvision.transforms.v2 import functional

            self.functional = functional
        self.image = Image
        self.files = [folder / f"{number:03}.jpg" for number in range(PICTURES)]
        self.read = self.with_torchvision if decoder == "torchvision" else self.with_pillow
        if not self.files[-1].exists():
            folder.mkdir(parents=True, exist_ok=True)
            for number, file in enumerate(self.files):
                Image.fromarray(picture(number)).save(file, quality=90)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return self.read(str(self.files[index % PICTURES])), index

    def with_pillow(self, file):
        with self.image.open(file) as image:
            image = image.convert("RGB")
        scale = 256 / min(image.size)
        width, height = (round(side * scale) for side in image.size)
        left, top = (width - 224) // 2, (height - 224) // 2
        image = image.resize((width, height), self.image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
        pixels = (
            torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32, memory_format=torch.contiguous_format)
        )
        mean, deviation = (torch.tensor(three)[:, None, None] * 255 for three in (MEAN, DEVIATION))
        return pixels.sub_(mean).div_(deviation)

    def with_torchvision(self, file):
        from torchvision.io import ImageReadMode, decode_jpeg, read_file

        image = decode_jpeg(read_file(file), mode=ImageReadMode.RGB)
        image = self.functional.center_crop(self.functional.resize(image, [256], antialias=True), [224, 224])
        image = self.functional.to_dtype(image, torch.float32, scale=True)
        return self.functional.normalize(image, MEAN, DEVIATION)

    def verify(self, batch, take):
        pixels, labels = (np.asarray(part) for part in batch)
        for image, label in zip(pixels, labels, strict=True):
            take(int(label))
            if image.shape != (3, 224, 224) or not np.array_equal(image, self[int(label)][0].numpy()):
                raise ValueError(f"wrong pixels in image {label}")

    @staticmethod
    def size(batch):
        return len(batch[1])


def picture(number):
    """Returns a picture of about 500 x 375 with waves of several lengths, and edges."""
    height, width = 365 + number % 21, 490 + number % 23
    y, x = np.mgrid[:height, :width].astype(np.float32)
    planes = []
    for channel in range(3):
        waves = np.sin((x * (1 + number % 7) + y * channel) / 60) + np.sin((x + y * (1 + number % 5)) / (4 + channel))
        edges = ((x // 40 + y // 30 + number + channel) % 3) * 30
        planes.append(100 + 40 * waves + edges)
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)
