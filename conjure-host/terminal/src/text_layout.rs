//! Where what is being typed stands on the screen: its rows, and the columns in them.
//!
//! What is drawn and where Up and Down lead is told by the same layout, so that a row is what a person
//! sees as one.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// A character of the text, as it is shown.
#[derive(Debug)]
pub(crate) struct PlacedCharacter {
    /// Byte position of the character in the text.
    at: usize,
    pub(crate) row: usize,
    /// The columns before it in its row.
    column: usize,
    /// Text that is shown for the character: nothing for the end of a line.
    pub(crate) display: String,
    /// Whether it stands for a paste.
    pub(crate) is_paste: bool,
}

/// A text in rows.
#[derive(Debug)]
pub(crate) struct TextLayout {
    characters: Vec<PlacedCharacter>,
    /// The byte position behind the text.
    end: usize,
    /// The row and the column there.
    end_cell: (usize, usize),
}

impl TextLayout {
    /// A text in rows of so many columns. `paste_of` is the paste that a character stands for.
    pub(crate) fn of<'a>(
        text: &str,
        columns: usize,
        paste_of: impl Fn(char) -> Option<&'a str>,
    ) -> Self {
        let mut characters = Vec::new();
        let (mut row, mut column) = (0, 0);
        for (at, character) in text.grapheme_indices(true) {
            let paste = character.chars().next().and_then(&paste_of);
            let shown = match (character, paste) {
                ("\n", _) => String::new(),
                (_, Some(paste)) => {
                    format!("[{} pasted]", crate::numerals::lines(paste.lines().count()))
                }
                (character, None) => character.replace('\t', "    "),
            };
            let width = shown.width();
            if column + width > columns && column > 0 {
                (row, column) = (row + 1, 0);
            }
            characters.push(PlacedCharacter {
                at,
                row,
                column,
                display: shown,
                is_paste: paste.is_some(),
            });
            column += width;
            if character == "\n" {
                (row, column) = (row + 1, 0);
            }
        }
        Self {
            characters,
            end: text.len(),
            end_cell: (row, column),
        }
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.end_cell.0 + 1
    }

    /// The characters, in their order.
    pub(crate) fn characters(&self) -> &[PlacedCharacter] {
        &self.characters
    }

    /// The row and the column of a byte position.
    pub(crate) fn cell_at(&self, position: usize) -> (usize, usize) {
        let mut characters = self.characters.iter();
        let character = characters.find(|character| character.at == position);
        character.map_or(self.end_cell, |character| (character.row, character.column))
    }

    /// The byte position in a row at a column, or the nearest one before that; nothing where there is no
    /// such row.
    pub(crate) fn position(&self, row: usize, column: usize) -> Option<usize> {
        if self.end_cell.0 == row && self.end_cell.1 <= column {
            return Some(self.end);
        }
        let in_row = self
            .characters
            .iter()
            .filter(|character| character.row == row);
        let before = in_row.take_while(|character| character.column <= column);
        before.last().map(|character| character.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_place_on_the_screen_and_no_number_of_bytes() {
        // Rows of 6 columns: `世界abc` goes on in a second one, `def` and an empty line are below.
        let text = "世界abc\ndef\n";
        let layout = TextLayout::of(text, 6, |_| None);
        assert_eq!(layout.rows(), 4);
        let c = text.find('c').unwrap();
        let d = text.find('d').unwrap();
        assert_eq!(layout.cell_at(c), (1, 0));
        assert_eq!(layout.cell_at(text.len()), (3, 0));
        assert_eq!(layout.position(0, 0), Some(0));
        assert_eq!(layout.position(0, 3), text.find('界'), "within it");
        assert_eq!(layout.position(0, 9), text.find('b'));
        assert_eq!(layout.position(1, 9), Some(c + 1), "at the end of its line");
        assert_eq!(layout.position(2, 1), Some(d + 1));
        assert_eq!(layout.position(3, 4), Some(text.len()));
        assert_eq!(layout.position(4, 0), None);
    }
}
