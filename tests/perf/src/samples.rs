//! Samples and what is said of them.
//!
//! Medians and percentiles, because other programs use the machine too: a mean says how busy it
//! was. Decides nothing about what is measured.

use std::time::{Duration, Instant};

/// Values of one kind, in one unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// One more.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// All of another one.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// The one that this percentage of them does not exceed; `NaN` when there are none.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted
            .get(last * percent / 100)
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// Converts the samples to another unit.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        self.0.iter().map(|value| value * factor).collect()
    }

    /// Ratios of samples that were taken in turn.
    pub(crate) fn ratios_to(&self, floor: &Self) -> Self {
        let pairs = self.0.iter().zip(&floor.0);
        Self(pairs.map(|(value, floor)| value / floor).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// Nanoseconds of one run of `work`, from batches: a clock reading costs as much as some of them.
/// Ends early when `work` says that it could not be done; that batch does not count.
pub(crate) fn nanoseconds(batches: usize, batch: u32, mut work: impl FnMut() -> bool) -> Samples {
    let mut once = || {
        let begun = Instant::now();
        let done = (0..batch).all(|_| work());
        let took = begun.elapsed().as_nanos() as f64;
        done.then_some(took / f64::from(batch))
    };
    let warm = (0..batches / 10).all(|_| once().is_some());
    let wanted = if warm { batches } else { 0 };
    (0..wanted).map_while(|_| once()).collect()
}

/// How long something takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed())
}

/// Milliseconds of a duration.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Microseconds of a duration.
pub(crate) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        let samples: Samples = [9.0, 1.0, 5.0].into_iter().collect();
        assert_eq!(
            (
                samples.percentile(0),
                samples.median(),
                samples.percentile(100)
            ),
            (1.0, 5.0, 9.0)
        );
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn a_batch_that_could_not_be_done_ends_it_and_does_not_count() {
        let mut left = 35;
        let samples = nanoseconds(10, 10, || {
            left -= 1;
            left >= 0
        });
        assert_eq!(samples.len(), 2, "one batch was for warming up");
    }

    #[test]
    fn ratios_are_of_samples_that_belong_together() {
        let value: Samples = [2.0, 9.0].into_iter().collect();
        let floor: Samples = [1.0, 3.0].into_iter().collect();
        assert_eq!(value.ratios_to(&floor).0, [2.0, 3.0]);
    }
}
