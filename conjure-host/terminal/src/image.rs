//! An image where the terminal can show one, and a line that tells it everywhere.
//!
//! Two protocols are written: kitty's, which takes a PNG as it is, and iTerm2's inline images, which
//! take any file. Nothing is decoded: the size stands at the beginning of the file. Which one a
//! terminal has is what it says in its environment; it is not asked, since an answer could be taken
//! for keys.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_config::fs;

use crate::text::{Drawing, Line, Style};

/// The most bytes of an image that are drawn.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most pixels on a side of an image that is drawn.
const MAX_PIXELS: u32 = 20_000;
/// As much of a file as says how large its image is.
const HEAD: u64 = 256 * 1024;
/// The most columns and rows that an image takes.
const MAX_CELLS: (usize, usize) = (80, 20);
/// Lines that stay free below an image.
const MARGIN_BELOW: usize = 4;
/// A cell's pixels where the terminal does not say them.
const CELL: (usize, usize) = (10, 20);
/// The most characters of a piece that kitty takes at once.
const MAX_CHUNK: usize = 4096;

/// How a terminal is given an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageProtocol {
    /// Kitty's graphics, of PNG files.
    Kitty,
    /// The inline images of iTerm2.
    ITerm2,
}

impl ImageProtocol {
    /// What the terminal has, by variables of the environment; nothing in a terminal in another one,
    /// which would not pass it on. `CONJURE_IMAGES` says otherwise: `kitty`, `iterm2` or `off`.
    pub fn of_terminal(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let of = |name: &str| variable(name).unwrap_or_default().to_lowercase();
        let is_set = |name: &str| !of(name).is_empty();
        let term = of("TERM");
        let is_inside = ["TMUX", "STY", "ZELLIJ"].into_iter().any(is_set)
            || ["tmux", "screen", "dumb"]
                .into_iter()
                .any(|inside| term.starts_with(inside));
        if is_inside {
            return None;
        }
        match of("CONJURE_IMAGES").as_str() {
            "kitty" => return Some(Self::Kitty),
            "iterm2" => return Some(Self::ITerm2),
            "off" => return None,
            _ => {}
        }
        let program = of("TERM_PROGRAM");
        if is_set("KITTY_WINDOW_ID")
            || matches!(term.as_str(), "xterm-kitty" | "xterm-ghostty")
            || program == "ghostty"
        {
            return Some(Self::Kitty);
        }
        let is_iterm2 = matches!(program.as_str(), "iterm.app" | "wezterm" | "mintty")
            || of("LC_TERMINAL") == "iterm2";
        is_iterm2.then_some(Self::ITerm2)
    }

    /// What draws a file in so many columns and rows, from the cursor on; nothing where it cannot.
    fn draws(self, bytes: &[u8], size: ImageSize, columns: usize, rows: usize) -> Option<String> {
        let data = STANDARD.encode(bytes);
        let mut out = String::with_capacity(data.len() + data.len() / 64 + 128);
        match self {
            Self::Kitty if size.format != "png" => return None,
            Self::Kitty => {
                let mut head = format!("a=T,f=100,C=1,c={columns},r={rows},");
                let mut rest = data.as_str();
                loop {
                    // Base64 is of one byte a letter.
                    let (piece, more) = rest.split_at(rest.len().min(MAX_CHUNK));
                    let goes_on = u8::from(!more.is_empty());
                    let _ = write!(out, "\u{1b}_G{head}q=2,m={goes_on};{piece}\u{1b}\\");
                    if more.is_empty() {
                        break;
                    }
                    rest = more;
                    head.clear();
                }
            }
            Self::ITerm2 => {
                let _ = write!(
                    out,
                    "\u{1b}]1337;File=inline=1;size={};width={columns};height={rows};\
                     preserveAspectRatio=1;doNotMoveCursor=1:{data}\u{7}",
                    bytes.len()
                );
            }
        }
        Some(out)
    }
}

/// What the beginning of an image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageSize {
    pub(crate) format: &'static str,
    width: u32,
    height: u32,
}

impl ImageSize {
    /// Reads it; nothing where it is no image that is known.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (format, (width, height)) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            (bytes.get(12..16)? == b"IHDR").then_some(())?;
            let side = |at| number::<4>(bytes, at, Endianness::Big);
            ("png", (side(16)?, side(20)?))
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            let side = |at| number::<2>(bytes, at, Endianness::Little);
            ("gif", (side(6)?, side(8)?))
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            ("jpeg", jpeg(bytes)?)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
            ("webp", webp(bytes)?)
        } else {
            return None;
        };
        (width > 0 && height > 0).then_some(Self {
            format,
            width,
            height,
        })
    }

    /// How many columns and rows it takes, where a cell has so many pixels.
    fn cells(self, cell: (usize, usize), most: (usize, usize)) -> Option<(usize, usize)> {
        if self.width > MAX_PIXELS || self.height > MAX_PIXELS || most.0 == 0 || most.1 == 0 {
            return None;
        }
        let side = |pixels: u32, cell: usize| Some(usize::try_from(pixels).ok()?.div_ceil(cell));
        let (mut columns, mut rows) = (side(self.width, cell.0)?, side(self.height, cell.1)?);
        if columns > most.0 {
            rows = (rows * most.0 / columns).max(1);
            columns = most.0;
        }
        if rows > most.1 {
            columns = (columns * most.1 / rows).max(1);
            rows = most.1;
        }
        Some((columns, rows))
    }
}

#[derive(Clone, Copy)]
enum Endianness {
    Big,
    Little,
}

fn number<const BYTES: usize>(bytes: &[u8], at: usize, order: Endianness) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(BYTES)?)?;
    let add = |sum: u32, byte: &u8| (sum << 8) | u32::from(*byte);
    Some(match order {
        Endianness::Big => bytes.iter().fold(0, add),
        Endianness::Little => bytes.iter().rev().fold(0, add),
    })
}

/// The sides that stand in a JPEG's frame header.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            // Filling.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let side = |at| number::<2>(bytes, at, Endianness::Big);
                return Some((side(at + 7)?, side(at + 5)?));
            }
            _ => {
                let length = number::<2>(bytes, at + 2, Endianness::Big)?;
                at += 2 + usize::try_from(length).ok()?.max(2);
            }
        }
    }
}

/// The sides in the first chunk of a WebP.
fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let short = |at| number::<2>(bytes, at, Endianness::Little);
    Some(match bytes.get(12..16)? {
        b"VP8 " => (short(26)? & 0x3fff, short(28)? & 0x3fff),
        b"VP8L" => {
            let packed = number::<4>(bytes, 21, Endianness::Little)?;
            ((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1)
        }
        b"VP8X" => {
            let side = |at| number::<3>(bytes, at, Endianness::Little);
            (side(24)? + 1, side(27)? + 1)
        }
        _ => return None,
    })
}

/// An image of a file in a terminal of so many columns and rows: a line that tells it, and the image
/// where the terminal can show it. Nothing where the file is no image that is known.
pub(crate) fn lines(
    name: &str,
    path: &Path,
    protocol: Option<ImageProtocol>,
    (columns, rows): (usize, usize),
) -> Vec<Line> {
    // A device or a pipe is not read.
    if !matches!(fs::is_file(path), Ok(true)) {
        return Vec::new();
    }
    let (Ok(bytes), Ok(head)) = (fs::size(path), fs::read_range(path, 0, HEAD)) else {
        return Vec::new();
    };
    let Some(size) = ImageSize::of(&head) else {
        return Vec::new();
    };
    let told = format!(
        "[image {name} {}×{} {} {}]",
        size.width,
        size.height,
        size.format,
        length(bytes)
    );
    let line = Line::of("  ", Style::PLAIN)
        .with(told, Style::PLAIN)
        .with(format!("  {}", path.display()), Style::DIM);
    let indent = Line::of("  ", Style::PLAIN);
    let mut lines = line.chunks(columns, &Line::new(), &indent);
    let most = (
        columns.min(MAX_CELLS.0),
        rows.saturating_sub(MARGIN_BELOW).min(MAX_CELLS.1),
    );
    let drawn = protocol
        .filter(|_| bytes <= MAX_BYTES)
        .and_then(|protocol| {
            let (columns, rows) = size.cells(cell(), most)?;
            let bytes = fs::read_range(path, 0, MAX_BYTES).ok()?;
            // It may be another file by now.
            (ImageSize::of(&bytes)? == size).then_some(())?;
            Some(Drawing {
                sequence: protocol.draws(&bytes, size, columns, rows)?.into(),
                rows,
            })
        });
    lines.extend(drawn.map(Line::drawn));
    lines
}

/// A cell's pixels.
fn cell() -> (usize, usize) {
    let Ok(size) = crossterm::terminal::window_size() else {
        return CELL;
    };
    let side = |pixels: u16, cells: u16| usize::from(pixels.checked_div(cells).unwrap_or_default());
    match (side(size.width, size.columns), side(size.height, size.rows)) {
        (0, _) | (_, 0) => CELL,
        cell => cell,
    }
}

fn length(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} KB", (bytes + 500) / 1000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a PNG, and something behind it.
    fn png(width: u32, height: u32, more: usize) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend(vec![0; more]);
        bytes
    }

    fn protocol(variables: &[(&str, &str)]) -> Option<ImageProtocol> {
        ImageProtocol::of_terminal(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_terminal_is_known_by_what_it_says_and_none_in_another_one() {
        use ImageProtocol::{ITerm2, Kitty};
        assert_eq!(protocol(&[("TERM", "xterm-kitty")]), Some(Kitty));
        assert_eq!(protocol(&[("TERM_PROGRAM", "ghostty")]), Some(Kitty));
        assert_eq!(protocol(&[("TERM_PROGRAM", "iTerm.app")]), Some(ITerm2));
        assert_eq!(protocol(&[("TERM_PROGRAM", "WezTerm")]), Some(ITerm2));
        assert_eq!(protocol(&[("LC_TERMINAL", "iTerm2")]), Some(ITerm2));
        assert_eq!(protocol(&[("TERM", "xterm-256color")]), None);
        assert_eq!(protocol(&[]), None);
        let kitty = ("KITTY_WINDOW_ID", "1");
        assert_eq!(protocol(&[kitty, ("CONJURE_IMAGES", "off")]), None);
        assert_eq!(protocol(&[("CONJURE_IMAGES", "iterm2")]), Some(ITerm2));
        for inside in [
            ("TMUX", "/tmp/x,1,0"),
            ("TERM", "screen-256color"),
            ("STY", "1.x"),
        ] {
            assert_eq!(protocol(&[kitty, inside]), None, "{inside:?}");
            let said = ("CONJURE_IMAGES", "kitty");
            assert_eq!(protocol(&[said, inside]), None, "{inside:?}");
        }
    }

    #[test]
    fn sizes_stand_at_the_beginning_of_a_file() {
        let of =
            |bytes: &[u8]| ImageSize::of(bytes).map(|size| (size.format, size.width, size.height));
        assert_eq!(of(&png(640, 480, 0)), Some(("png", 640, 480)));
        assert_eq!(of(b"GIF89a\x0a\x00\x14\x00"), Some(("gif", 10, 20)));
        let jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x0b\x08\x01\x00\x02\x00";
        assert_eq!(of(jpeg), Some(("jpeg", 512, 256)));
        let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x09\xc0\x04\x00";
        assert_eq!(of(lossless), Some(("webp", 10, 20)));
        let extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x09\0\0\x13\0\0";
        assert_eq!(of(extended), Some(("webp", 10, 20)));
        // Each beginning of them is no image, and ends.
        for whole in [&png(1, 1, 0)[..], &jpeg[..], &lossless[..], &extended[..]] {
            for end in 0..whole.len() {
                assert_eq!(of(&whole[..end]), None, "{end} of {whole:?}");
            }
        }
        assert_eq!(of(&png(0, 480, 0)), None);
        assert_eq!(of(b"\xff\xd8\xff\xe0\x00\x00\xff\xd9"), None);
    }

    #[test]
    fn an_image_takes_no_more_cells_than_there_are() {
        let size = |width, height| ImageSize {
            format: "png",
            width,
            height,
        };
        let most = (80, 20);
        assert_eq!(size(100, 100).cells((10, 20), most), Some((10, 5)));
        assert_eq!(size(1600, 400).cells((10, 20), most), Some((80, 10)));
        assert_eq!(size(400, 8000).cells((10, 20), most), Some((2, 20)));
        assert_eq!(size(1, 1).cells((10, 20), most), Some((1, 1)));
        assert_eq!(size(MAX_PIXELS + 1, 1).cells((10, 20), most), None);
        assert_eq!(size(1, 1).cells((10, 20), (80, 0)), None);
    }

    #[test]
    fn kitty_gets_a_png_in_pieces_and_iterm2_any_file_whole() {
        let bytes = png(10, 20, 4000);
        let size = ImageSize::of(&bytes).unwrap();
        let kitty = ImageProtocol::Kitty.draws(&bytes, size, 3, 2).unwrap();
        let pieces: Vec<&str> = kitty.split_terminator("\u{1b}\\").collect();
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].starts_with("\u{1b}_Ga=T,f=100,C=1,c=3,r=2,q=2,m=1;iVBORw0KGgo"));
        assert!(pieces[1].starts_with("\u{1b}_Gq=2,m=0;"));
        let data: String = pieces
            .iter()
            .map(|piece| piece.split_once(';').unwrap().1)
            .collect();
        assert_eq!(STANDARD.decode(data).unwrap(), bytes);
        let iterm2 = ImageProtocol::ITerm2.draws(&bytes, size, 3, 2).unwrap();
        let (head, data) = iterm2.split_once(':').unwrap();
        assert_eq!(
            head,
            format!(
                "\u{1b}]1337;File=inline=1;size={};width=3;height=2;preserveAspectRatio=1;\
                 doNotMoveCursor=1",
                bytes.len()
            )
        );
        let data = data.strip_suffix('\u{7}').unwrap();
        assert_eq!(STANDARD.decode(data).unwrap(), bytes);
        let gif = ImageSize::of(b"GIF89a\x0a\x00\x14\x00").unwrap();
        assert_eq!(ImageProtocol::Kitty.draws(b"GIF89a", gif, 1, 1), None);
    }

    #[test]
    fn a_line_tells_an_image_and_nothing_of_its_name_steers_the_terminal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a\u{1b}]0;x\u{7}.png");
        std::fs::write(&path, png(640, 480, 22_600)).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let told = lines(name, &path, None, (200, 24));
        let [line] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(
            line.plain()
                .starts_with("  [image a]0;x.png 640×480 png 23 KB]  /")
        );
        assert!(!line.to_terminal(true).contains("\u{1b}]"));
        let drawn = lines(name, &path, Some(ImageProtocol::Kitty), (200, 24));
        assert_eq!(drawn.len(), 2);
        assert_eq!(drawn[1].drawing().unwrap().rows, 20);
        // Where there is no room, and what is no image.
        assert_eq!(
            lines(name, &path, Some(ImageProtocol::Kitty), (200, 4)).len(),
            1
        );
        std::fs::write(&path, "<svg/>").unwrap();
        assert_eq!(
            lines(name, &path, Some(ImageProtocol::Kitty), (200, 24)),
            []
        );
        assert_eq!(lines("x", Path::new("/dev/zero"), None, (200, 24)), []);
    }
}
