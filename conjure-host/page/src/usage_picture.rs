//! Pictures of what was used, as SVG made here: columns a day, and a bar beside each line of a table.

use maud::{Markup, html};

/// A day's column: its words, and the heights of its parts.
pub(crate) struct Column {
    pub(crate) label: String,
    pub(crate) parts: Vec<f64>,
}

/// The size of a picture, in its own units; the page scales it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;
/// Room for the words below.
const FOOT: f64 = 20.0;

/// Columns beside each other, each with its parts on top of one another; `classes` colour the parts.
pub(crate) fn columns(label: &str, columns: &[Column], classes: &[&str]) -> Markup {
    let sum = |column: &Column| column.parts.iter().sum::<f64>();
    let most = columns.iter().map(sum).fold(0.0, f64::max);
    let count = columns.len().max(1) as f64;
    let step = WIDTH / count;
    let wide = (step * 0.8).min(40.0);
    let high = HEIGHT - FOOT;
    // Of many days not each has room for its words.
    let every = (count / 8.0).ceil().max(1.0) as usize;
    html! {
        svg.picture viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
            line.axis x1="0" x2=(WIDTH) y1=(high) y2=(high) {}
            @for (at, column) in columns.iter().enumerate() {
                @let x = at as f64 * step + (step - wide) / 2.0;
                g {
                    title { (column.label) }
                    @for (class, y, height) in stack_parts(column, classes, most, high) {
                        rect class=(class) x=(round(x)) y=(round(y)) width=(round(wide)) height=(round(height)) {}
                    }
                }
                @if at % every == 0 {
                    text x=(round(x + wide / 2.0)) y=(HEIGHT - 5.0) text-anchor="middle" {
                        (column.label.split(':').next().unwrap_or_default().get(5..).unwrap_or_default())
                    }
                }
            }
        }
    }
}

/// The parts of a column from below: class, top and height.
fn stack_parts<'a>(
    column: &Column,
    classes: &[&'a str],
    most: f64,
    high: f64,
) -> Vec<(&'a str, f64, f64)> {
    let mut top = high;
    let parts = column.parts.iter().zip(classes);
    let parts = parts.filter(|(part, _)| **part > 0.0 && most > 0.0);
    let stacked = parts.map(|(part, class)| {
        let height = part / most * (high - 4.0);
        top -= height;
        (*class, top, height)
    });
    stacked.collect()
}

/// How much of the most a line has.
pub(crate) fn bar(part: f64, most: f64) -> Markup {
    let share = if most > 0.0 {
        (part / most).clamp(0.0, 1.0)
    } else {
        0.0
    };
    html! {
        svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.input x="0" y="0" height="8" width=(round(share * 100.0)) {}
        }
    }
}

/// A tenth is as fine as anybody sees.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_on_one_another_and_nothing_is_drawn_for_none() {
        let column = Column {
            label: "2026-11-26: 30".to_owned(),
            parts: vec![10.0, 0.0, 20.0],
        };
        let parts = stack_parts(&column, &["a", "b", "c"], 30.0, 104.0);
        let heights: Vec<(&str, f64)> = parts
            .iter()
            .map(|(class, _, high)| (*class, round(*high)))
            .collect();
        assert_eq!(heights, [("a", 33.3), ("c", 66.7)]);
        let (_, top, _) = parts[1];
        assert_eq!(round(top), 4.0);
        let nothing = columns("No use", &[], &["a"]).into_string();
        assert!(
            !nothing.contains("<rect") && !nothing.contains("NaN"),
            "{nothing}"
        );
    }
}
