//! The slope of a measure over time, with its error.

use std::fmt;

/// Samples that lie nearer to each other than this say nothing alone.
const MIN_SAMPLES: usize = 10;
/// Parts of the samples whose means are taken for independent: neighbours are alike.
const PARTS: usize = 20;

/// How a measure grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slope {
    /// Units an hour.
    pub(crate) per_hour: f64,
    /// The standard error of that.
    pub(crate) error: f64,
}

impl Slope {
    /// The line of least squares through samples of hours and units; nothing when they are too few.
    pub(crate) fn of(samples: &[(f64, f64)]) -> Option<Self> {
        if samples.len() < MIN_SAMPLES {
            return None;
        }
        let size = samples.len().div_ceil(PARTS);
        let points: Vec<(f64, f64)> = samples.chunks(size).map(mean).collect();
        let count = points.len() as f64;
        let (x, y) = mean(&points);
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let common = points.iter().map(|point| (point.0 - x) * (point.1 - y));
        let per_hour = common.sum::<f64>() / spread;
        let off = |point: &(f64, f64)| point.1 - y - per_hour * (point.0 - x);
        let rest: f64 = points.iter().map(|point| off(point).powi(2)).sum();
        let error = (rest / (count - 2.0) / spread).sqrt();
        (spread > 0.0).then_some(Self { per_hour, error })
    }
}

impl Slope {
    /// Whether its error is small enough to say that it is beyond this bound, or that a growth as
    /// large as the bound would have been seen.
    pub(crate) fn is_conclusive(&self, bound: f64) -> bool {
        2.0 * self.error <= bound || self.per_hour - 2.0 * self.error > bound
    }

    /// Whether its error is small enough to say that it is within this bound. What seems to be beyond
    /// it may still be caches that fill.
    pub(crate) fn is_within(&self, bound: f64) -> bool {
        2.0 * self.error <= bound && self.per_hour - 2.0 * self.error <= bound
    }
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.2} ± {:.2}", self.per_hour, self.error)
    }
}

fn mean(samples: &[(f64, f64)]) -> (f64, f64) {
    let count = samples.len() as f64;
    let sum = samples
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (sum.0 / count, sum.1 / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_and_no_error() {
        let line: Vec<(f64, f64)> = (0..100)
            .map(|at| (f64::from(at) / 100.0, 40.0 + 3.0 * f64::from(at) / 100.0))
            .collect();
        let slope = Slope::of(&line).unwrap();
        assert!((slope.per_hour - 3.0).abs() < 1e-9, "{slope}");
        assert!(slope.error < 1e-9, "{slope}");
    }

    #[test]
    fn what_goes_up_and_down_has_an_error_as_large_as_its_slope() {
        let noise: Vec<(f64, f64)> = (0..100)
            .map(|at| (f64::from(at) / 1_000.0, f64::from(at * 37 % 11)))
            .collect();
        let slope = Slope::of(&noise).unwrap();
        assert!(slope.per_hour.abs() < 3.0 * slope.error, "{slope}");
    }

    #[test]
    fn a_slope_tells_a_bound_when_its_error_is_small_or_it_is_far_beyond() {
        let tells = |per_hour, error| Slope { per_hour, error }.is_conclusive(0.5);
        assert!(tells(0.1, 0.2) && tells(9.0, 3.0));
        assert!(!tells(0.1, 0.3) && !tells(6.0, 3.0));
        let is_within = |per_hour, error| Slope { per_hour, error }.is_within(0.5);
        assert!(is_within(0.1, 0.2) && is_within(-9.0, 0.2));
        assert!(!is_within(9.0, 0.2) && !is_within(0.1, 0.3));
    }

    #[test]
    fn few_samples_have_no_slope() {
        assert_eq!(Slope::of(&[(0.0, 1.0); 9]), None);
        assert_eq!(Slope::of(&[(1.0, 1.0); 90]), None);
    }
}
