//! BMP files of all kinds are decoded to the pixels that they describe.
#![cfg(feature = "bmp")]

use slotline_image::Pipeline;

const PALETTE: [[u8; 3]; 16] = {
    let mut palette = [[0; 3]; 16];
    let mut i = 0;
    while i < 16 {
        palette[i] = [(i * 37 % 256) as u8, (i * 91 % 256) as u8, (255 - i * 11) as u8];
        i += 1;
    }
    palette
};

fn index(x: usize, y: usize, colours: usize) -> usize {
    (x * 7 + y * 5 + x * y) % colours
}

/// Returns a BMP file. Its rows are given from the bottom, or from the top if the height is
/// negative.
fn file([width, height]: [i32; 2], bits: u16, compression: u32, masks: &[u32], rows: &[u8]) -> Vec<u8> {
    let mut between: Vec<u8> = masks.iter().flat_map(|mask| mask.to_le_bytes()).collect();
    if bits <= 8 {
        between.extend(PALETTE.iter().take(1 << bits).flat_map(|&[r, g, b]| [b, g, r, 0]));
    }
    let start = 54 + between.len() as u32;
    let colours = if bits == 8 { 16 } else { 0 };
    let head =
        [0, 0, start, 40, width as u32, height as u32, u32::from(bits) << 16 | 1, compression, 0, 0, 0, colours, 0];
    [&b"BM"[..], head.map(u32::to_le_bytes).as_flattened(), &between, rows].concat()
}

fn decode(file: &[u8], width: usize, height: usize) -> Vec<[u8; 3]> {
    let pipeline = Pipeline::bytes(height, width).unwrap().channels_last(true);
    let mut out = vec![0; 3 * width * height];
    pipeline.decode(file, &mut out).unwrap();
    out.as_chunks().0.to_vec()
}

fn wanted(width: usize, height: usize, colours: usize) -> Vec<[u8; 3]> {
    (0..width * height).map(|i| PALETTE[index(i % width, i / width, colours)]).collect()
}

#[test]
fn rows_of_any_width_and_depth_are_read() {
    for width in 1..40 {
        for (bits, downwards) in [(1, false), (4, false), (8, true), (24, false), (24, true), (32, false)] {
            let (height, colours) = (3, 1 << bits.min(4));
            let mut rows = Vec::new();
            for y in 0..height {
                let y = if downwards { y } else { height - 1 - y };
                let start = rows.len();
                match bits {
                    24 => rows.extend((0..width).flat_map(|x| {
                        let [r, g, b] = PALETTE[index(x, y, colours)];
                        [b, g, r]
                    })),
                    32 => rows.extend((0..width).flat_map(|x| {
                        let [r, g, b] = PALETTE[index(x, y, colours)];
                        [b, g, r, 77]
                    })),
                    bits => {
                        rows.resize(start + (width * bits).div_ceil(8), 0);
                        for x in 0..width {
                            rows[start + x * bits / 8] |= (index(x, y, colours) << (8 - bits - x * bits % 8)) as u8;
                        }
                    }
                }
                rows.resize(start + (rows.len() - start).next_multiple_of(4), 0);
            }
            let tall = if downwards { -(height as i32) } else { height as i32 };
            let file = file([width as i32, tall], bits as u16, 0, &[], &rows);
            assert_eq!(decode(&file, width, height), wanted(width, height, colours), "{bits} bits, {width} wide");
            // The file is too short if the bytes of the last pixel are missing, but not if only
            // padding is.
            let used = (width * bits).div_ceil(8).next_multiple_of(4) - (width * bits).div_ceil(8);
            let cut = &file[..file.len() - used - 1];
            let error = Pipeline::bytes(1, 1).unwrap().decode(cut, &mut [0; 3]).unwrap_err();
            assert!(error.to_string().contains("rows are missing"), "{error}");
        }
    }
}

#[test]
fn masks_choose_the_bits_of_colours() {
    let pixels = [0x0000_u16, 0x7fff, 0x7c00, 0x03e0, 0x001f, 0x4210, 0xffff];
    let rows: Vec<u8> = pixels.iter().chain([&0]).flat_map(|pixel| pixel.to_le_bytes()).collect();
    let found = decode(&file([7, 1], 16, 0, &[], &rows), 7, 1);
    let white = [255; 3];
    assert_eq!(found, [[0; 3], white, [255, 0, 0], [0, 255, 0], [0, 0, 255], [131, 131, 131], white]);
    let found = decode(&file([7, 1], 16, 3, &[0xf800, 0x07e0, 0x001f], &rows), 7, 1);
    assert_eq!(found[2..5], [[123, 129, 0], [0, 125, 0], [0, 0, 255]]);
    let rows = [0x11, 0x22, 0x33, 0x44];
    assert_eq!(decode(&file([1, 1], 32, 3, &[0xff, 0xff00, 0xff_0000], &rows), 1, 1), [[0x11, 0x22, 0x33]]);
    assert_eq!(decode(&file([1, 1], 32, 3, &[0, 0xff00_0000, u32::MAX], &rows), 1, 1), [[0, 0x44, 0x43]]);
}

#[test]
fn run_lengths_are_expanded() {
    // The lower row has five times 1, then 2 3 4. The upper row has two pixels that are skipped,
    // and a run of 7 that exceeds its end.
    let runs = [5, 1, 0, 3, 2, 3, 4, 0, 0, 0, 0, 2, 2, 0, 200, 7, 0, 1];
    let of = |indices: [usize; 16]| indices.map(|index| PALETTE[index]).to_vec();
    let expected = of([0, 0, 7, 7, 7, 7, 7, 7, 1, 1, 1, 1, 1, 2, 3, 4]);
    assert_eq!(decode(&file([8, 2], 8, 1, &[], &runs), 8, 2), expected);
    let runs = [4, 0x12, 0, 4, 0x34, 0x56, 0, 0, 8, 0x78, 0, 1];
    let expected = of([7, 8, 7, 8, 7, 8, 7, 8, 1, 2, 1, 2, 3, 4, 5, 6]);
    assert_eq!(decode(&file([8, 2], 4, 2, &[], &runs), 8, 2), expected);
    for len in 0..runs.len() - 2 {
        let outcome = Pipeline::bytes(2, 8).unwrap().decode(&file([8, 2], 4, 2, &[], &runs[..len]), &mut [0; 48]);
        assert_eq!(outcome.is_ok(), len == 10, "{len} bytes");
    }
}

#[test]
fn other_kinds_are_errors() {
    let pipeline = Pipeline::bytes(1, 1).unwrap();
    for (bits, compression) in [(2, 0), (0, 0), (24, 1), (8, 2), (24, 4), (32, 6), (65_535, 0)] {
        let error = pipeline.decode(&file([1, 1], bits, compression, &[], &[0; 40]), &mut [0; 3]).unwrap_err();
        assert!(error.to_string().contains("not supported"), "{error}");
    }
    for size in [[0, 1], [1, 0], [-1, 1], [i32::MIN, i32::MIN], [1, i32::MIN], [i32::MAX, i32::MAX]] {
        pipeline.decode(&file(size, 24, 0, &[], &[0; 40]), &mut [0; 3]).unwrap_err();
    }
}
