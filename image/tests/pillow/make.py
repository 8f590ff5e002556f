"""Writes pictures on which readers disagree, with Pillow's results of `exif_transpose` and `convert("RGB")`; and JPEGs, with
Pillow's results of resizing them.

Run it in this folder with Pillow 13, and cjpeg of libjpeg-turbo.
"""

import io
import os
import struct
import subprocess
import zlib

import numpy as np
from PIL import Image, ImageDraw, ImageOps

y, x = np.mgrid[0:16, 0:24]
PICTURE = Image.fromarray(np.dstack([x * 10, y * 15, (x + y) * 6]).astype(np.uint8))


def encoded(picture, format, **options):
    out = io.BytesIO()
    picture.save(out, format, **options)
    return out.getvalue()


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def tiff(big, kind, value):
    order = ">" if big else "<"
    value = struct.pack(order + "HH", value, 0) if kind == 3 else struct.pack(order + "I", value)
    entry = struct.pack(order + "HHHI", 1, 0x112, kind, 1) + value
    return (b"MM\0*" if big else b"II*\0") + struct.pack(order + "I", 8) + entry + bytes(4)


XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description tiff:Orientation="%d"/></rdf:RDF></x:xmpmeta>'
jpeg = encoded(PICTURE, "JPEG", quality=95, subsampling=0)
png = encoded(PICTURE, "PNG")
jfif = jpeg.find(b"JFIF\0") + 5
restarts = encoded(PICTURE, "JPEG", quality=95, subsampling=0, restart_marker_blocks=1)
third = restarts.find(b"\xff\xd2")
cmyk = encoded(PICTURE.convert("CMYK"), "JPEG", quality=95)
adobe = cmyk.find(b"Adobe") + 11
xmp_webp = encoded(PICTURE, "WEBP", lossless=True, xmp=XMP % 6)
raw = b"\nexif\n%8d\n" % 32 + (b"Exif\0\0" + tiff(True, 3, 5)).hex().encode() + b"\n"

FILES = {
    # Orientations.
    "exif_long_be.jpg": jpeg[:2] + segment(0xE1, b"Exif\0\0" + tiff(True, 4, 6)) + jpeg[2:],
    "exif_slong_le.jpg": jpeg[:2] + segment(0xE1, b"Exif\0\0" + tiff(False, 9, 8)) + jpeg[2:],
    "xmp.jpg": jpeg[:2] + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % 6) + jpeg[2:],
    "exif_behind.png": png[:-12] + chunk(b"eXIf", tiff(True, 4, 8)) + png[-12:],
    "xmp.png": png[:33] + chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP % 3) + png[33:],
    "raw_profile.png": png[:33] + chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw)) + png[33:],
    "xmp.webp": encoded(PICTURE, "WEBP", lossless=True, xmp=XMP % 7),
    "xmp_text.png": png[:33] + chunk(b"tEXt", b"XML:com.adobe.xmp\0" + XMP % 5) + png[33:],
    "xmp_compressed.png": png[:-12] + chunk(b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(XMP % 8)) + png[-12:],
    "exif_text.png": png[:33] + chunk(b"tEXt", b"exif\0" + tiff(False, 3, 7)) + png[33:],
    "exif_twice.png": png[:33] + chunk(b"eXIf", tiff(True, 3, 6)) + png[33:-12] + chunk(b"eXIf", tiff(True, 3, 3)) + png[-12:],
    "exif_behind_junk.jpg": jpeg[:2] + segment(0xE2, b"") + b"junk\xff\0" + segment(0xE1, b"Exif\0\0" + tiff(True, 3, 6)) + jpeg[2:],
    "exif_rational.jpg": jpeg[:2] + segment(0xE1, b"Exif\0\0" + tiff(True, 5, 26) + struct.pack(">II", 6, 1)) + jpeg[2:],
    "exif_float.jpg": jpeg[:2] + segment(0xE1, b"Exif\0\0" + tiff(True, 11, 0x40C00000)) + jpeg[2:],
    # WebPs that announce metadata that they do not have, and WebPs with metadata that is not announced.
    "xmp_missing.webp": xmp_webp[:20] + bytes([xmp_webp[20] | 8]) + xmp_webp[21:],
    "xmp_hidden.webp": xmp_webp[:20] + b"\0" + xmp_webp[21:],
    # A critical chunk of an unknown kind.
    "unknown_chunk.png": png[:33] + chunk(b"ABCD", b"data") + png[33:],
    # Fewer samples of colours than interpolation needs.
    "narrow.jpg": encoded(PICTURE.resize((4, 16)), "JPEG", quality=95, subsampling=1),
    # Files that libjpeg warns about.
    "jfif_0.00.jpg": jpeg[:jfif] + b"\0\0" + jpeg[jfif + 2 :],
    "jfif_2.01.jpg": jpeg[:jfif] + b"\2\1" + jpeg[jfif + 2 :],
    "zeros_before_the_end.jpg": jpeg[:-2] + bytes(99) + jpeg[-2:],
    "lost_restart.jpg": restarts[:third] + restarts[third + 2 :],
    "adobe_transform.jpg": cmyk[:adobe] + b"\7" + cmyk[adobe + 1 :],
}


def lzw(indices):
    bits = held = 0
    out = bytearray()
    for code in [256] + sum([[index] + [256] * (i % 200 == 199) for i, index in enumerate(indices)], []) + [257]:
        bits |= code << held
        held += 9
        while held >= 8:
            out.append(bits & 255)
            bits >>= 8
            held -= 8
    out.append(bits & 255)
    return b"\x08" + b"".join(bytes([len(out[i : i + 255])]) + out[i : i + 255] for i in range(0, len(out), 255)) + b"\0"


COLOURS = bytes([10, 20, 30, 200, 0, 0, 0, 200, 0, 0, 0, 200, 250, 250, 0, 0, 250, 250, 250, 0, 250, 90, 90, 90])
FRAME = b"\x2c" + struct.pack("<HHHHB", 2, 2, 4, 4, 0) + lzw([1, 2, 3, 4] * 4) + b"\x3b"
HEADER = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x82, 5, 0) + COLOURS
FILES["small_frame.gif"] = HEADER + FRAME
FILES["small_transparent_frame.gif"] = HEADER + b"\x21\xf9\4\1\0\0\6\0" + FRAME
LOCAL = b"\x2c" + struct.pack("<HHHHB", 2, 2, 4, 4, 0x82) + COLOURS[::-1] + lzw([1, 2, 3, 4] * 4) + b"\x3b"
FILES["small_frame_of_its_own_colours.gif"] = HEADER + LOCAL

FILES["frame_beyond.gif"] = HEADER + b"\x2c" + struct.pack("<HHHHB", 5, 6, 4, 4, 0) + lzw([1, 2, 3, 4] * 4) + b"\x3b"
UNCOLOURED = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 2, 5, 0)
FILES["no_palette.gif"] = UNCOLOURED + b"\x21\xf9\4\1\0\0\x77\0" + b"\x2c" + struct.pack("<HHHHB", 2, 2, 4, 4, 0) + lzw(list(range(0, 256, 16))) + b"\x3b"
FILES["few_shades.gif"] = HEADER[:13] + bytes(i // 3 for i in range(24)) + FRAME.replace(lzw([1, 2, 3, 4] * 4), lzw(list(range(0, 256, 16))))
FILES["junk_between_blocks.gif"] = HEADER + b"\0junk\x21\x77\3abc\0\x21\xf9\5\1\0\0\6\0\0" + FRAME

# The first frame with alpha, at (4, 2) of a canvas of 24 × 16 pixels.
clear = np.dstack([np.asarray(PICTURE), (x * 11).astype(np.uint8)])


def animation(lossless):
    def frame(picture, at):
        file = encoded(Image.fromarray(picture), "WEBP", lossless=lossless, exact=True, quality=90)
        start = 12 if file[12:16] != b"VP8X" else 30
        size = [at[0] // 2, at[1] // 2, picture.shape[1] - 1, picture.shape[0] - 1, 100]
        data = b"".join(struct.pack("<I", number)[:3] for number in size) + b"\0" + file[start:]
        return b"ANMF" + struct.pack("<I", len(data)) + data

    size = struct.pack("<I", 23)[:3] + struct.pack("<I", 15)[:3]
    canvas = b"VP8X" + struct.pack("<II", 10, 0x12) + size + b"ANIM" + struct.pack("<I", 6) + b"\x40\x80\xc0\xff\0\0"
    data = b"WEBP" + canvas + frame(clear[:12, :16], (4, 2)) + frame(clear, (0, 0))
    return b"RIFF" + struct.pack("<I", len(data)) + data


FILES["alpha.webp"] = animation(True)
FILES["alpha_lossy.webp"] = animation(False)

# PNGs with sixteen bits per channel.
rows = b"".join(b"\0" + struct.pack(">12H", *range(i * 4000, i * 4000 + 12 * 300, 300)) for i in range(4))
for name, kind, width in (("rgb16.png", 2, 4), ("rgba16.png", 6, 3), ("grey_alpha16.png", 4, 6)):
    header = struct.pack(">IIBBBBB", width, 4, 16, kind, 0, 0, 0)
    FILES[name] = png[:8] + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

for name, data in FILES.items():
    open(name, "wb").write(data)
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    picture.save(name + ".expected.png", optimize=True)

# PNGs whose rows have a wrong checksum: the one of the chunk, which PIL does not check, and the one of the compressed data.
os.makedirs("damaged", exist_ok=True)
large = PICTURE.resize((160, 120))
rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in np.asarray(large)))
header = struct.pack(">IIBBBBB", 160, 120, 8, 2, 0, 0, 0)
for name, data in (("chunk", chunk(b"IDAT", rows)[:-4] + bytes(4)), ("rows", chunk(b"IDAT", rows[:-4] + bytes(4)))):
    open(f"damaged/{name}.png", "wb").write(png[:8] + chunk(b"IHDR", header) + data + chunk(b"IEND", b""))

# JPEGs of unusual kinds, with Pillow's results.
y, x = np.mgrid[0:44, 0:75]
waves = Image.fromarray(np.dstack([128 + 50 * np.sin(x / (5 + i) + y / (7 - i)) for i in range(3)]).astype(np.uint8))


def cjpeg(*options):
    return subprocess.run(["cjpeg", *options], input=encoded(waves, "PPM"), capture_output=True, check=True).stdout


inks = encoded(waves.convert("CMYK"), "JPEG")
adobe = inks.find(b"\xff\xee")
rgb = encoded(waves, "JPEG", keep_rgb=True)

# A separate scan for each channel, taken from three grey pictures; the second and the third have half the size.
luma, *chroma = waves.convert("YCbCr").split()
grey, blue, red = [encoded(it, "JPEG") for it in (luma, *[it.resize((38, 22)) for it in chroma])]
start = grey.find(b"\xff\xc0")
frame = segment(0xC0, struct.pack(">BHHB", 8, 44, 75, 3) + bytes([1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0]))
scans = [segment(0xDA, bytes([1, i + 1, 0, 0, 63, 0])) + it[it.find(b"\xff\xda") + 10 : -2] for i, it in enumerate((grey, blue, red))]
apart = grey[:start] + frame + grey[start + 13 : grey.find(b"\xff\xda")] + b"".join(scans) + b"\xff\xd9"

# A quantisation table that changes after the first scan.
progressive = encoded(waves, "JPEG", quality=80, progressive=True)
behind = progressive.find(b"\xff\xc4", progressive.find(b"\xff\xda"))
changed = progressive[:behind] + segment(0xDB, b"\1" + bytes([40] * 64)) + progressive[behind:]

# Channels with four, four and one blocks in a unit, all grey: each block has a code for its first coefficient, and an end.
codes = segment(0xC4, b"\0\1" + bytes(15) + b"\0") + segment(0xC4, b"\x10\1" + bytes(15) + b"\0")
frame = segment(0xC0, struct.pack(">BHHB", 8, 44, 75, 3) + bytes([1, 0x41, 0, 2, 0x41, 0, 3, 0x11, 0]))
scan = segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])) + bytes(18 * 9 * 2 // 8) + b"\x0f"
mixed = b"\xff\xd8" + segment(0xDB, bytes([0] + [1] * 64)) + frame + codes + scan + b"\xff\xd9"
FOREIGN = {
    "four_and_mixed": mixed,
    "scan_for_each_channel": apart,
    "changed_quantisation": changed,
    "arithmetic": cjpeg("-arithmetic"),
    "arithmetic_progressive": cjpeg("-arithmetic", "-progressive"),
    "quarter_width": cjpeg("-sample", "4x1,1x1,1x1"),
    "quarter_height": cjpeg("-sample", "1x4,1x1,1x1"),
    "eighth": cjpeg("-sample", "4x2,1x1,1x1"),
    "third": cjpeg("-sample", "3x1,1x1,1x1"),
    "two_samples_each": cjpeg("-sample", "2x1,2x1,2x1"),
    "half_height_of_two": cjpeg("-sample", "2x2,2x1,2x1"),
    "unequal": cjpeg("-sample", "2x2,2x1,1x1"),
    "tables_of_16_bits": cjpeg("-quality", "3"),
    "restarts": cjpeg("-restart", "1B"),
    "inks": inks[:adobe] + inks[adobe + 16 :],
    "inks_as_differences": inks.replace(b"Adobe\0\x64\0\0\0\0\0", b"Adobe\0\x64\0\0\0\0\2"),
    "names_of_rgb": rgb.replace(rgb[rgb.find(b"\xff\xee") :][:16], b""),
    "two_pictures": encoded(waves, "MPO", save_all=True, append_images=[waves.rotate(180)]),
}
os.makedirs("foreign", exist_ok=True)
for name, data in FOREIGN.items():
    open(f"foreign/{name}.jpg", "wb").write(data)
    Image.open(io.BytesIO(data)).convert("RGB").save(f"foreign/{name}.png", optimize=True)

# JPEGs that are resized to less than half: similar to a photograph, text, blocks of saturated colours, and smooth gradients.
height, width = 136, 160
y, x = np.mgrid[0:height, 0:width]
random = np.random.default_rng(5)
frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]) + 0.004
waves = [np.fft.ifft2(np.fft.fft2(random.normal(size=(height, width))) / frequency**1.3).real for _ in range(3)]
shapes = np.dstack([waves[0] + waves[i] * 0.3 for i in range(3)])
text = Image.new("RGB", (width, height), "white")
draw = ImageDraw.Draw(text)
for line in range(0, height, 12):
    draw.text((line % 7, line), "The quick brown fox jumps", fill=["black", "navy", "red"][line % 3])
CONTENTS = {
    "photograph": 128 + shapes / shapes.std() * 45,
    "text": np.asarray(text),
    "blocks": random.integers(0, 2, (height // 8, width // 8, 3)).repeat(8, 0).repeat(8, 1) * 255,
    "gradient": np.dstack([x * 255 / width, y * 255 / height, 128 + 127 * np.cos(x / 40 + y / 60)]),
}
os.makedirs("resized", exist_ok=True)
for name, pixels in CONTENTS.items():
    for colours in ("444", "420"):
        data = encoded(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), "JPEG", quality=85, subsampling=f"4:{colours[1]}:{colours[2]}")
        open(f"resized/{name}_{colours}.jpg", "wb").write(data)
        small = Image.open(io.BytesIO(data)).resize((64, 64), Image.Resampling.BILINEAR)
        small.save(f"resized/{name}_{colours}.png", optimize=True)
