//! A picture in memory: 8 bits of red, green and blue per pixel.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Encoder, Transformations};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    /// Row after row, three bytes a pixel.
    pixels: Vec<u8>,
}

impl Picture {
    /// A picture of these pixels, three bytes each.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), width as usize * height as usize * 3, "a picture of {width} x {height}");
        Self { width, height, pixels }
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    /// Reads a PNG of any colour type; transparency is dropped. The size is checked before any pixel is read.
    pub fn decode(bytes: &[u8], pixels_max: u64) -> Result<Self, String> {
        let mut decoder = Decoder::new(Cursor::new(bytes));
        decoder.set_transformations(Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(|error| format!("not a PNG ({error})"))?;
        let (width, height) = (reader.info().width, reader.info().height);
        let count = u64::from(width) * u64::from(height);
        if count > pixels_max {
            return Err(format!("the picture has {count} pixels, and {pixels_max} are allowed"));
        }
        let mut raw = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
        let frame = reader.next_frame(&mut raw).map_err(|error| format!("a broken PNG ({error})"))?;
        raw.truncate(frame.buffer_size());
        let pixels = match frame.color_type {
            ColorType::Rgb => raw,
            ColorType::Rgba => raw.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
            ColorType::Grayscale => raw.iter().flat_map(|grey| [*grey; 3]).collect(),
            ColorType::GrayscaleAlpha => raw.chunks_exact(2).flat_map(|pixel| [pixel[0]; 3]).collect(),
            ColorType::Indexed => return Err("a palette that could not be expanded".to_owned()),
        };
        Ok(Self::new(width, height, pixels))
    }

    /// The picture as a PNG.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
        writer.write_image_data(&self.pixels).map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// A smaller picture: each of its pixels is the average of the box of pixels that it stands for.
    pub fn shrunk(&self, width: u32, height: u32) -> Self {
        let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
        for y in 0..height {
            let rows = span(y, height, self.height);
            for x in 0..width {
                pixels.extend(self.average(span(x, width, self.width), rows.clone()));
            }
        }
        Self { width, height, pixels }
    }

    fn average(&self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> [u8; 3] {
        let count = (columns.len() * rows.len()) as u64;
        let mut sums = [0_u64; 3];
        for row in rows {
            let start = row * self.width as usize;
            for pixel in self.pixels[(start + columns.start) * 3..(start + columns.end) * 3].chunks_exact(3) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += u64::from(*value);
                }
            }
        }
        // An average of bytes is a byte.
        sums.map(|sum| ((sum + count / 2) / count) as u8)
    }

    /// A picture of the Mandelbrot set, in integers only: the same bytes on every machine.
    pub fn drawn(width: u32, height: u32) -> Self {
        let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
        for y in 0..height {
            for x in 0..width {
                let re = -2 * ONE + i64::from(x) * 3 * ONE / i64::from(width);
                let im = -ONE + i64::from(y) * 2 * ONE / i64::from(height);
                let escape = escape(re, im);
                pixels.extend([escape.wrapping_mul(5), escape.wrapping_mul(3), escape.wrapping_mul(11)]);
            }
        }
        Self { width, height, pixels }
    }
}

/// The pixels of a side of `from` that pixel `index` of a side of `to` stands for.
fn span(index: u32, to: u32, from: u32) -> std::ops::Range<usize> {
    let edge = |index: u32| (u64::from(index) * u64::from(from) / u64::from(to)) as usize;
    edge(index)..edge(index + 1).max(edge(index) + 1)
}

/// Numbers are fixed-point, with 24 bits after the point.
const ONE: i64 = 1 << 24;

/// After how many steps the point leaves the circle of radius two; 0 for one that stays.
fn escape(re: i64, im: i64) -> u8 {
    const STEPS_MAX: u8 = 96;
    let (mut x, mut y) = (0_i64, 0_i64);
    for step in 1..=STEPS_MAX {
        let (xx, yy) = (x * x / ONE, y * y / ONE);
        if xx + yy > 4 * ONE {
            return step;
        }
        y = 2 * x * y / ONE + im;
        x = xx - yy + re;
    }
    0
}
