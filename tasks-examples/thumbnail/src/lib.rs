//! A thumbnail of a PNG: decoding, a box filter and encoding, all of it work for the processor.

mod picture;

use compline_sdk::{Context, TaskError};
use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use picture::Picture;

/// A picture of more pixels would not fit the memory that a run has by default.
const PIXELS_MAX: u64 = 8_000_000;

/// A run's output has a limit, 64 KiB by default, and base64 adds a third.
const PNG_BYTES_MAX: usize = 47 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Params {
    /// The picture, a PNG in base64. Without it one is drawn, 640 by 480.
    png_base64: Option<String>,
    /// The thumbnail is at most this wide and this high; the picture's proportions stay.
    #[schemars(range(min = 1, max = 1024))]
    fit: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self { png_base64: None, fit: 128 }
    }
}

#[derive(Debug, Serialize)]
struct Thumbnail {
    source_width: u32,
    source_height: u32,
    width: u32,
    height: u32,
    png_bytes: usize,
    png_base64: String,
}

#[compline_sdk::task]
fn thumbnail(ctx: &Context, params: Params) -> Result<Thumbnail, TaskError> {
    if !(1..=1024).contains(&params.fit) {
        return Err(TaskError::permanent("`fit` lies between 1 and 1024"));
    }
    let source = match &params.png_base64 {
        Some(text) => {
            let bytes = BASE64.decode(text.trim().as_bytes());
            let bytes =
                bytes.map_err(|error| TaskError::permanent(format_args!("`png_base64` is not base64: {error}")))?;
            Picture::decode(&bytes, PIXELS_MAX)
                .map_err(|error| TaskError::permanent(format_args!("`png_base64`: {error}")))?
        }
        None => Picture::drawn(640, 480),
    };
    let (width, height) = fitted(source.width(), source.height(), params.fit);
    ctx.info(format_args!("{} x {} -> {width} x {height}", source.width(), source.height()));
    let png = source.shrunk(width, height).encode().map_err(TaskError::permanent)?;
    if png.len() > PNG_BYTES_MAX {
        let size = png.len();
        return Err(TaskError::permanent(format_args!(
            "`fit`: the thumbnail has {size} bytes, and {PNG_BYTES_MAX} are allowed: make it smaller"
        )));
    }
    Ok(Thumbnail {
        source_width: source.width(),
        source_height: source.height(),
        width,
        height,
        png_bytes: png.len(),
        png_base64: BASE64.encode(&png),
    })
}

/// The largest size of the same proportions inside `fit` by `fit`. A picture that already fits keeps its size.
fn fitted(width: u32, height: u32, fit: u32) -> (u32, u32) {
    let longest = width.max(height);
    if longest <= fit {
        return (width, height);
    }
    let scaled = |side: u32| u32::try_from(u64::from(side) * u64::from(fit) / u64::from(longest)).unwrap_or(fit).max(1);
    (scaled(width), scaled(height))
}

#[cfg(test)]
mod tests {
    use compline_sdk::ErrorKind;

    use super::*;

    fn decoded(thumbnail: &Thumbnail) -> Picture {
        Picture::decode(&BASE64.decode(thumbnail.png_base64.as_bytes()).unwrap(), PIXELS_MAX).unwrap()
    }

    #[test]
    fn the_drawn_picture_shrinks_in_proportion() {
        let made = thumbnail(&Context::for_test(), Params::default()).unwrap();
        assert_eq!((made.source_width, made.source_height, made.width, made.height), (640, 480, 128, 96));
        let picture = decoded(&made);
        assert_eq!((picture.width(), picture.height()), (128, 96));
        assert_eq!(BASE64.decode(made.png_base64.as_bytes()).unwrap().len(), made.png_bytes);
    }

    #[test]
    fn a_given_picture_is_read_and_averaged() {
        // Black and white columns: a box of two of them is grey.
        let pixels = [[0_u8; 3], [255; 3]].concat().repeat(8);
        let stripes = Picture::new(4, 4, pixels).encode().unwrap();
        let params = Params { png_base64: Some(BASE64.encode(&stripes)), fit: 2 };
        let grey = decoded(&thumbnail(&Context::for_test(), params).unwrap());
        assert_eq!(grey, Picture::new(2, 2, vec![128; 12]));
    }

    #[test]
    fn a_thumbnail_too_large_for_an_output_is_refused_with_what_to_do() {
        let params = Params { png_base64: None, fit: 640 };
        let error = thumbnail(&Context::for_test(), params).unwrap_err();
        assert!(error.message().starts_with("`fit`: the thumbnail has "), "{error}");
    }

    #[test]
    fn proportions_stay_and_no_side_vanishes() {
        assert_eq!(fitted(4000, 1, 100), (100, 1));
        assert_eq!(fitted(30, 40, 100), (30, 40));
        assert_eq!(fitted(u32::MAX, u32::MAX / 2, 1024), (1024, 511));
    }

    #[test]
    fn what_is_no_picture_is_refused_for_good_with_its_field() {
        for (text, said) in [("%%", "`png_base64` is not base64"), ("aGVsbG8=", "`png_base64`: not a PNG")] {
            let params = Params { png_base64: Some(text.into()), ..Params::default() };
            let error = thumbnail(&Context::for_test(), params).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permanent);
            assert!(error.message().starts_with(said), "{error}");
        }
        let error = thumbnail(&Context::for_test(), Params { png_base64: None, fit: 0 }).unwrap_err();
        assert_eq!(error.message(), "`fit` lies between 1 and 1024");
    }

    #[test]
    fn a_picture_too_large_for_a_run_is_refused_before_it_is_read() {
        let large = Picture::new(64, 64, vec![0; 64 * 64 * 3]).encode().unwrap();
        let error = Picture::decode(&large, 64 * 64 - 1).unwrap_err();
        assert_eq!(error, "the picture has 4096 pixels, and 4095 are allowed");
        assert!(Picture::decode(&large, 64 * 64).is_ok());
    }
}
