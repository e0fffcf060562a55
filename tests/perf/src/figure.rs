//! A figure: a name, a value, what it should be, and how it came about.
//!
//! The form that people and programs read. Nothing is measured here.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::noise::{self, Noise};
use crate::samples::Samples;

/// The unit of figures that compare two measurements of one run.
pub(crate) const TIMES: &str = "times";

/// A value that does not depend on how quick the machine is just now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    value: f64,
    unit: &'static str,
}

/// What a benchmark says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// The median.
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// What the value may be at the most, or must be at the least; nothing when it is only told.
    pub(crate) target: Option<f64>,
    /// Whether the target is the least that the value must be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
    /// Method of measuring, in a sentence.
    pub(crate) method: String,
    /// The 5th percentile.
    pub(crate) low: f64,
    /// The 95th percentile.
    pub(crate) high: f64,
    pub(crate) samples: usize,
    /// What else came out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// What the machine did beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) noise: Option<Noise>,
}

impl Figure {
    /// The median of samples, and what the machine did while they were taken: made when they are
    /// there.
    pub(crate) fn new(name: &str, unit: &str, samples: &Samples, method: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: samples.median(),
            unit: unit.to_owned(),
            target: None,
            at_least: false,
            method: method.to_owned(),
            low: samples.percentile(5),
            high: samples.percentile(95),
            samples: samples.len(),
            note: String::new(),
            noise: noise::take_noise(),
        }
    }

    /// One value.
    pub(crate) fn single(name: &str, unit: &str, value: f64, method: &str) -> Self {
        Self::new(name, unit, &[value].into_iter().collect(), method)
    }

    /// What the value may be at the most.
    pub(crate) fn at_most(mut self, target: f64) -> Self {
        self.target = Some(target);
        self
    }

    /// What the value must be at the least.
    pub(crate) fn at_least(mut self, target: f64) -> Self {
        self.target = Some(target);
        self.at_least = true;
        self
    }

    /// What else came out.
    pub(crate) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// What compares between days: a ratio as it is, and what depends on time in the fixed loop.
    pub(crate) fn ratio(&self) -> Option<Ratio> {
        if self.is_ratio() {
            return Some(Ratio {
                value: self.value,
                unit: TIMES,
            });
        }
        let loop_ms = self.noise.as_ref()?.loop_ms;
        let milliseconds = match self.unit.as_str() {
            "ns" => self.value / 1e6,
            "µs" => self.value / 1e3,
            "ms" => self.value,
            "s" => self.value * 1e3,
            "M events/s" => {
                return Some(Ratio {
                    value: self.value * 1e3 * loop_ms,
                    unit: "events/loop",
                });
            }
            _ => return None,
        };
        let loops = milliseconds / loop_ms;
        Some(if loops < 0.1 {
            Ratio {
                value: loops * noise::STEPS as f64,
                unit: "steps",
            }
        } else {
            Ratio {
                value: loops,
                unit: "loops",
            }
        })
    }

    /// Whether it compares two measurements of the same run.
    pub(crate) fn is_ratio(&self) -> bool {
        self.unit == TIMES
    }

    /// Whether the value is what it should be.
    fn pass(&self) -> Option<bool> {
        self.target.map(|target| {
            if self.at_least {
                self.value >= target
            } else {
                self.value <= target
            }
        })
    }

    /// Whether the verdict says something: a busy machine passes and misses by chance, which two
    /// measurements of one run do less, but do.
    fn is_meaningful(&self) -> bool {
        let noise = self.noise.as_ref();
        noise.is_none_or(|noise| noise.noise_reason().is_none())
    }

    /// Adds where the figure was measured and whether it passes.
    pub(crate) fn on<'a>(&'a self, machine: &'a Machine) -> FigureReport<'a> {
        FigureReport {
            figure: self,
            ratio: self.ratio(),
            pass: self.pass(),
            meaningful: self.pass().map(|_| self.is_meaningful()),
            machine,
        }
    }
}

/// A figure as programs read it.
#[derive(Serialize)]
pub(crate) struct FigureReport<'a> {
    #[serde(flatten)]
    figure: &'a Figure,
    ratio: Option<Ratio>,
    pass: Option<bool>,
    /// Whether it means something that it passes or not: the machine was quiet.
    meaningful: Option<bool>,
    machine: &'a Machine,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.pass(), self.is_meaningful()) {
            (Some(true), true) => "pass",
            (Some(false), true) => "MISS",
            (Some(true), false) => "pass?",
            (Some(false), false) => "MISS?",
            (None, _) => "",
        };
        let bound = if self.at_least { "at least" } else { "at most" };
        let target = match self.target {
            Some(target) => format!("{bound} {} {}", short(target), self.unit),
            None => "told only".to_owned(),
        };
        let ratio = match self.ratio() {
            Some(ratio) => format!("{} {}", short(ratio.value), ratio.unit),
            None => "-".to_owned(),
        };
        let value = match self.is_ratio() {
            true => "-".to_owned(),
            false => format!("{} {}", short(self.value), self.unit),
        };
        write!(
            f,
            "{verdict:<5} {:<22} {ratio:>16} {value:>12}   {target}",
            self.name
        )?;
        if self.samples > 1 {
            let (low, high) = (short(self.low), short(self.high));
            write!(f, "   (p5 {low}, p95 {high}, n {})", self.samples)?;
        }
        write!(f, "\n      {}", self.method)?;
        if !self.note.is_empty() {
            write!(f, "\n      {}", self.note)?;
        }
        if let Some(noise) = &self.noise {
            write!(f, "\n      {noise}")?;
        }
        Ok(())
    }
}

/// A number with about three digits that count.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Machine of the measurement, and how busy it was when that began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    /// Programs that wanted to run, over the last minute.
    load: String,
}

impl Machine {
    pub(crate) fn detect() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "machine: {} cores, {}, load {} when it began",
            self.cores, self.cpu, self.load
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_passes_when_its_value_is_at_most_the_target() {
        let figure = |value| Figure::single("x", "ms", value, "so").at_most(5.0);
        assert_eq!(figure(5.0).pass(), Some(true));
        assert_eq!(figure(5.1).pass(), Some(false));
        assert_eq!(figure(f64::NAN).pass(), Some(false));
        assert_eq!(Figure::single("x", "ms", 1.0, "so").pass(), None);
    }

    #[test]
    fn a_figure_that_must_be_large_passes_from_the_target_on() {
        let figure = |value| Figure::single("x", "M/s", value, "so").at_least(1.0);
        assert_eq!(figure(1.0).pass(), Some(true));
        assert_eq!(figure(0.9).pass(), Some(false));
        assert_eq!(figure(f64::NAN).pass(), Some(false));
        assert!(figure(2.0).to_string().contains("at least 1.00 M/s"));
    }

    #[test]
    fn a_line_says_verdict_name_value_target_and_method() {
        let figure = Figure::single("load", "ms", 6.25, "As a host loads.").at_most(5.0);
        assert_eq!(
            figure.to_string(),
            "MISS  load                                  -      6.25 ms   at most 5.00 ms\n      As a host loads."
        );
    }

    #[test]
    fn a_verdict_of_a_noisy_machine_is_marked() {
        let figure = |noise| {
            let figure = Figure::single("x", "ms", 6.0, "so").at_most(5.0);
            let noise = Some(noise);
            Figure { noise, ..figure }
        };
        let machine = Machine::detect();
        let is_meaningful = |figure: &Figure| figure.on(&machine).meaningful;
        let quiet = figure(Noise::of_a_loop(2.0));
        assert!(quiet.to_string().starts_with("MISS  x"), "{quiet}");
        assert_eq!(is_meaningful(&quiet), Some(true));
        let noisy = figure(Noise::of_a_loop(2.0).stolen(50.0));
        assert!(noisy.to_string().starts_with("MISS? x"), "{noisy}");
        assert_eq!(is_meaningful(&noisy), Some(false));
        assert_eq!(is_meaningful(&Figure::single("x", "ms", 1.0, "so")), None);
    }

    #[test]
    fn a_time_is_told_in_runs_of_the_loop_and_a_ratio_as_it_is() {
        let noise = Noise::of_a_loop(2.0);
        let figure = |unit| Figure {
            noise: Some(noise.clone()),
            ..Figure::single("x", unit, 8.0, "so")
        };
        for (unit, ratio) in [
            ("ns", Some("4.00 steps")),
            ("µs", Some("4000 steps")),
            ("ms", Some("4.00 loops")),
            ("s", Some("4000 loops")),
            ("M events/s", Some("16000 events/loop")),
            ("times", Some("8.00 times")),
            ("MiB", None),
        ] {
            let told = figure(unit).ratio();
            let told = told.map(|it| format!("{} {}", short(it.value), it.unit));
            assert_eq!(told.as_deref(), ratio, "{unit}");
        }
        let line = figure("ms").to_string();
        assert!(line.contains("4.00 loops      8.00 ms"), "{line}");
        assert!(line.ends_with(&format!("\n      {noise}")), "{line}");
        let line = figure("times").to_string();
        assert!(line.contains("8.00 times            -"), "{line}");
    }
}
