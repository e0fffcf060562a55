//! What the machine did beside a benchmark: how quick a fixed loop ran before and after it, how much
//! time the hypervisor and the quota of a container took, and how many programs wanted to run.
//!
//! Looked at beside each figure: what ends the watch of one begins that of the next.
//! Absolute times of two days differ by what else a machine does. The loop gives a measure of the same
//! minute, in which a time can be told. Nothing here judges a figure.

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::figure::short;
use crate::samples::Samples;

/// Steps of the fixed loop, each about a nanosecond where it is optimised.
pub(crate) const STEPS: u64 = 1_000_000;
/// How often the loop runs before and after a benchmark.
const RUNS: usize = 50;
/// How much slower the slow runs of the loop may be than the quick ones on a quiet machine.
const QUIET_SPREAD: f64 = 1.25;
/// How much slower or quicker the loop may be after a benchmark than before it.
const QUIET_DRIFT: f64 = 1.1;
/// Percent of its time that a quiet machine may lose to others of its hypervisor.
const QUIET_STEAL: f64 = 1.0;

/// Percent of its time that a quiet machine may keep this program from running by a quota.
const QUIET_THROTTLE: f64 = 1.0;
/// Figures that are made within this time come out of one measurement, and share its noise.
const SAME_MEASUREMENT: Duration = Duration::from_millis(20);

/// What the machine did while a figure was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noise {
    /// The median of the fixed loop, in milliseconds.
    pub(crate) loop_ms: f64,
    /// The 95th percentile of the loop divided by the 5th.
    spread: f64,
    /// The loop after the benchmark divided by the loop before it.
    drift: f64,
    /// Percent of all processor time that the hypervisor gave to others; nothing where the system
    /// does not tell.
    steal_percent: Option<f64>,
    /// Percent of the time in which the quota of a control group kept this program from running;
    /// nothing where the system does not tell.
    #[serde(default)]
    throttled_percent: Option<f64>,
    /// Programs that wanted to run over the last minute, when the benchmark ended.
    load: Option<f64>,
}

/// The watch of this process, while it measures.
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

/// Looks at the machine before the first figure.
pub(crate) fn begin() {
    *WATCH.lock().unwrap_or_else(PoisonError::into_inner) = Some(Watch::begin());
}

/// What the machine did since the figure before; nothing where nobody looks.
pub(crate) fn take_noise() -> Option<Noise> {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.as_mut().map(Watch::turn)
}

/// A measurement that runs.
struct Watch {
    before: Samples,
    start_ticks: Option<Processors>,
    throttled: Option<Duration>,
    started_at: Instant,
    /// What the machine did before.
    previous: Option<Noise>,
}

impl Watch {
    fn begin() -> Self {
        Self::start(loops(), None)
    }

    fn start(before: Samples, last: Option<Noise>) -> Self {
        Self {
            before,
            start_ticks: Processors::now(),
            throttled: throttled(),
            started_at: Instant::now(),
            previous: last,
        }
    }

    /// Ends a figure's measurement and begins that of the next one.
    fn turn(&mut self) -> Noise {
        if let Some(last) = self
            .previous
            .clone()
            .filter(|_| self.started_at.elapsed() < SAME_MEASUREMENT)
        {
            self.started_at = Instant::now();
            return last;
        }
        let time = self.started_at.elapsed();
        let (ended, throttled) = (Processors::now(), throttled());
        let after = loops();
        let next = Self::start(after.clone(), None);
        let before = std::mem::replace(self, next);
        let noise = before.end(ended, throttled, time, &after);
        self.previous = Some(noise.clone());
        noise
    }

    fn end(
        self,
        ended: Option<Processors>,
        throttled: Option<Duration>,
        time: Duration,
        after: &Samples,
    ) -> Noise {
        let drift = after.median() / self.before.median();
        let mut both = self.before;
        both.extend(after);
        let kept = self.throttled.zip(throttled);
        let kept = kept.map(|(begun, ended)| ended.saturating_sub(begun));
        Noise {
            loop_ms: both.median(),
            spread: both.percentile(95) / both.percentile(5),
            drift,
            steal_percent: self
                .start_ticks
                .zip(ended)
                .and_then(|(begun, ended)| ended.steal_percent_since(&begun)),
            throttled_percent: kept.map(|kept| kept.as_secs_f64() * 100.0 / time.as_secs_f64()),
            load: load(),
        }
    }
}

impl Noise {
    /// A quiet machine on which the loop takes this many milliseconds.
    #[cfg(test)]
    pub(crate) fn of_a_loop(loop_ms: f64) -> Self {
        Self {
            loop_ms,
            spread: 1.0,
            drift: 1.0,
            steal_percent: None,
            throttled_percent: None,
            load: None,
        }
    }

    /// Sets the share of time stolen.
    #[cfg(test)]
    pub(crate) fn stolen(self, percent: f64) -> Self {
        Self {
            steal_percent: Some(percent),
            ..self
        }
    }

    /// Why absolute values are not to be relied on, if they are not.
    pub(crate) fn noise_reason(&self) -> Option<String> {
        let mut reasons = Vec::new();
        if self.spread > QUIET_SPREAD {
            reasons.push(format!("the loop's spread is {}", short(self.spread)));
        }
        if self.drift.max(1.0 / self.drift) > QUIET_DRIFT {
            reasons.push(format!("it drifted by {}", short(self.drift)));
        }
        if let Some(steal) = self.steal_percent.filter(|steal| *steal > QUIET_STEAL) {
            reasons.push(format!("{} % were stolen", short(steal)));
        }
        let throttled = self.throttled_percent;
        if let Some(throttled) = throttled.filter(|throttled| *throttled > QUIET_THROTTLE) {
            reasons.push(format!("a quota took {} %", short(throttled)));
        }
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), short);
        write!(
            f,
            "loop {} ms, spread {}, drift {}, steal {} %, throttled {} %, load {}",
            short(self.loop_ms),
            short(self.spread),
            short(self.drift),
            told(self.steal_percent),
            told(self.throttled_percent),
            told(self.load)
        )?;
        match self.noise_reason() {
            Some(why) => write!(f, "; NOISY: {why}"),
            None => Ok(()),
        }
    }
}

/// Times of the fixed loop, in milliseconds.
fn loops() -> Samples {
    let one = |_| {
        let begun = Instant::now();
        let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
        for _ in 0..STEPS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        black_box(state);
        begun.elapsed().as_secs_f64() * 1e3
    };
    (0..RUNS).map(one).collect()
}

/// Ticks of all processors since the system began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Processors {
    total: u64,
    stolen: u64,
}

impl Processors {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads `cpu  user nice system idle iowait irq softirq steal …` (proc_stat(5)). What follows is
    /// part of user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = ticks.split_whitespace().map(str::parse);
        let ticks: Vec<u64> = ticks.take(8).collect::<Result<_, _>>().ok()?;
        Some(Self {
            total: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    fn steal_percent_since(self, begun: &Self) -> Option<f64> {
        let all = self.total.checked_sub(begun.total).filter(|all| *all > 0)?;
        let stolen = self.stolen.checked_sub(begun.stolen)?;
        Some(stolen as f64 * 100.0 / all as f64)
    }
}

/// For how long the quotas of this program's control groups kept it from running so far: its own and
/// those that are around it (cgroups(7), version 2).
fn throttled() -> Option<Duration> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = Path::new("/sys/fs/cgroup").join(own);
    let groups = own
        .ancestors()
        .take_while(|group| group.starts_with("/sys/fs/cgroup"));
    let told =
        groups.filter_map(|group| throttled_of(&fs::read_to_string(group.join("cpu.stat")).ok()?));
    told.reduce(|all, one| all + one)
}

fn throttled_of(stat: &str) -> Option<Duration> {
    let micros = stat
        .lines()
        .find_map(|line| line.strip_prefix("throttled_usec "))?;
    micros.trim().parse().ok().map(Duration::from_micros)
}

fn load() -> Option<f64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Noise = Noise {
        loop_ms: 1.0,
        spread: 1.1,
        drift: 1.02,
        steal_percent: Some(0.25),
        throttled_percent: Some(0.0),
        load: Some(0.5),
    };

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let begun = Processors::parse("cpu  10 0 10 80 0 0 0 0 7 7\ncpu0 1 2\n").unwrap();
        let ended = Processors::parse("cpu  60 0 20 100 0 0 0 20 9 9\n").unwrap();
        assert_eq!(ended.steal_percent_since(&begun), Some(20.0));
        assert_eq!(begun.steal_percent_since(&begun), None);
        assert_eq!(Processors::parse("cpu  1 2 3\n"), None);
        assert_eq!(Processors::parse(""), None);
    }

    #[test]
    fn a_quiet_machine_has_no_complaint_and_each_kind_of_noise_one() {
        assert_eq!(
            QUIET.to_string(),
            "loop 1.00 ms, spread 1.10, drift 1.02, steal 0.250 %, throttled 0.000 %, load 0.500"
        );
        for (noise, why) in [
            (
                Noise {
                    spread: 1.5,
                    ..QUIET
                },
                "the loop's spread is 1.50",
            ),
            (
                Noise {
                    drift: 0.5,
                    ..QUIET
                },
                "it drifted by 0.500",
            ),
            (
                Noise {
                    steal_percent: Some(12.0),
                    ..QUIET
                },
                "12.0 % were stolen",
            ),
            (
                Noise {
                    throttled_percent: Some(30.0),
                    ..QUIET
                },
                "a quota took 30.0 %",
            ),
        ] {
            assert_eq!(noise.noise_reason().as_deref(), Some(why));
        }
    }

    #[test]
    fn a_machine_is_looked_at_before_and_after() {
        let mut watch = Watch::begin();
        let noise = watch.turn();
        assert!(noise.loop_ms > 0.0 && noise.spread >= 1.0, "{noise}");
        // A second figure of the same measurement has the same noise, one of a later one its own.
        assert_eq!(watch.turn(), noise);
        watch.started_at -= SAME_MEASUREMENT;
        assert_ne!(watch.turn(), noise);
    }

    #[test]
    fn what_a_quota_took_is_told_by_the_system() {
        let stat = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(throttled_of(stat), Some(Duration::from_micros(1500)));
        assert_eq!(throttled_of("usage_usec 5\n"), None);
    }
}
