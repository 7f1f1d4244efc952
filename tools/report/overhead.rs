// SPDX-License-Identifier: GPL-2.0

//! What work costs: ratios of runs that took turns, with an interval for their median.
//!
//! The runs of one round stand next to each other in time, so whatever slows the machine down for
//! longer than a round slows both sides of a ratio. The interval is a bootstrap over the rounds: the
//! medians of as many rounds drawn with replacement, many times; 95% of those medians lie in it.

use crate::table::{short, Table};
use crate::words::{named, number, pairs};
use eraid_tools::rng::Rng;
use std::collections::BTreeMap;

/// How often the bootstrap draws.
const DRAWS: usize = 10_000;

/// Percent of the medians that lie below the interval, and above it.
const TAIL: f64 = 2.5;

/// What is held to a load's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The median of the ratios.
    Median,
    /// The lower end of its interval.
    Bound,
}

/// One load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// What the table calls it.
    pub label: String,
    /// Whether its speed is told in MB/s, not in requests.
    pub megabytes: bool,
    /// What `eRAID : md` is to be.
    pub at_least: f64,
    /// Which number of it.
    pub of: Of,
}

/// Keys that the guest looks at.
const GUEST_KEYS: [&str; 4] = ["rw", "iodepth", "degraded", "bs"];

/// Reads the table of loads: each with its line.
pub fn parse_loads(text: &str) -> Result<Vec<(String, Load)>, String> {
    let mut loads = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let load = parse_load(line).map_err(|what| format!("line {}: {what}", index + 1))?;
        // The guest gets all lines in one word.
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        loads.push((line, load));
    }
    Ok(loads)
}

fn parse_load(line: &str) -> Result<Load, String> {
    let (name, rest) = line.split_once(char::is_whitespace).ok_or("no words")?;
    let (mut label, mut at_least, mut of, mut megabytes) = (None, None, None, false);
    for word in pairs(rest) {
        let (key, value) = word?;
        megabytes |= key == "bs" && value != "4k";
        match key {
            "label" => label = Some(value.replace('_', " ")),
            "at_least" => at_least = Some(number(key, value)?),
            "of" => {
                of = Some(named(
                    key,
                    value,
                    &[("median", Of::Median), ("bound", Of::Bound)],
                )?)
            }
            _ if GUEST_KEYS.contains(&key) => (),
            _ => return Err(format!("unknown key '{key}'")),
        }
    }
    Ok(Load {
        name: name.into(),
        label: label.ok_or("no label=")?,
        megabytes,
        at_least: at_least.ok_or("no at_least=")?,
        of: of.ok_or("no of=")?,
    })
}

/// What one run did in a second.
#[derive(Clone, Copy, Debug)]
struct Speed {
    requests: f64,
    kilobytes: f64,
}

/// All runs: speeds by load, array and round.
#[derive(Debug, Default)]
pub struct Runs {
    speeds: BTreeMap<(String, String, u32), Speed>,
    /// The guest, in words.
    pub guest: String,
}

impl Runs {
    /// Reads the guest's output.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut runs = Runs::default();
        for line in text.lines() {
            if line.starts_with("kernel=") {
                runs.guest = line.into();
            }
            let Some(words) = line.strip_prefix("run ") else {
                continue;
            };
            let words: BTreeMap<_, _> = pairs(words).collect::<Result<_, _>>()?;
            let get = |key: &str| {
                words
                    .get(key)
                    .ok_or_else(|| format!("no {key}= in '{line}'"))
            };
            let speed = Speed {
                requests: number("iops", get("iops")?)?,
                kilobytes: number("kBps", get("kBps")?)?,
            };
            let round = number("round", get("round")?)?;
            let key = (get("load")?.to_string(), get("array")?.to_string(), round);
            runs.speeds.insert(key, speed);
        }
        Ok(runs)
    }

    /// A load's requests per second on an array, round by round.
    fn rates(&self, load: &Load, array: &str) -> BTreeMap<u32, f64> {
        let of = self
            .speeds
            .iter()
            .filter(|((name, on, _), _)| *name == load.name && on == array);
        of.map(|((_, _, round), speed)| (*round, speed.requests))
            .collect()
    }

    /// The median speed in words; nothing where nothing ran.
    fn speed(&self, load: &Load, array: &str) -> String {
        let on = |((name, on, _), speed): (&(String, String, u32), &Speed)| {
            let speed = match load.megabytes {
                true => speed.kilobytes * 1024.0 / 1e6,
                false => speed.requests,
            };
            (*name == load.name && on == array).then_some(speed)
        };
        let median = median(self.speeds.iter().filter_map(on).collect());
        let unit = if load.megabytes { "MB/s" } else { "/s" };
        median.map_or("-".into(), |speed| format!("{} {unit}", short(speed)))
    }

    /// `eRAID : md`, and whether that is enough; nothing where not both ran.
    fn ratio(&self, load: &Load, md: &str, seed: u64) -> Option<Ratio> {
        let (md, eraid) = (self.rates(load, md), self.rates(load, "eraid"));
        let both = md
            .iter()
            .filter_map(|(round, md)| Some(eraid.get(round)? / md));
        Ratio::of(both.collect(), seed)
    }
}

/// The median of some ratios with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    /// Of these ratios; none of none.
    fn of(ratios: Vec<f64>, seed: u64) -> Option<Self> {
        let mut rng = Rng::new(&[seed]);
        let count = ratios.len() as u64;
        let mut medians: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                let drawn = (0..count).map(|_| ratios[rng.below(count) as usize]);
                median(drawn.collect())
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |percent: f64| {
            let index = (medians.len() as f64 * percent / 100.0) as usize;
            medians
                .get(index.min(medians.len().saturating_sub(1)))
                .copied()
        };
        Some(Ratio {
            low: at(TAIL)?,
            high: at(100.0 - TAIL)?,
            median: median(ratios)?,
        })
    }

    fn is_enough(&self, load: &Load) -> bool {
        let held = match load.of {
            Of::Median => self.median,
            Of::Bound => self.low,
        };
        held >= load.at_least
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let above = *numbers.get(numbers.len() / 2)?;
    let below = *numbers.get((numbers.len() - 1) / 2)?;
    Some((above + below) / 2.0)
}

/// The arrays that eRAID is compared with.
const AGAINST: [&str; 2] = ["md", "md-tuned"];

/// The table.
pub fn table(loads: &[Load], runs: &Runs, seed: u64) -> Table {
    let mut table = Table::new(&[
        "load, under way",
        "md",
        "md tuned",
        "eRAID",
        "wanted",
        "eRAID : md [95%]",
        "eRAID : md tuned [95%]",
    ]);
    for load in loads {
        let mut line = vec![load.label.clone()];
        line.extend(["md", "md-tuned", "eraid"].map(|array| runs.speed(load, array)));
        line.push(match load.of {
            Of::Median => format!("{:.2}", load.at_least),
            Of::Bound => format!("low end {:.2}", load.at_least),
        });
        line.extend(AGAINST.map(|md| match runs.ratio(load, md, seed) {
            Some(ratio) => {
                let Ratio { median, low, high } = ratio;
                let mark = if ratio.is_enough(load) { "" } else { " BELOW" };
                format!("{median:.3} [{low:.3}, {high:.3}]{mark}")
            }
            None => "-".into(),
        }));
        table.0.push(line);
    }
    table
}

/// The report as a document.
pub fn document(table: &str, runs: &Runs, seed: u64) -> String {
    let rounds = runs.speeds.keys().map(|(_, _, round)| *round).max();
    format!(
        "<!-- SPDX-License-Identifier: GPL-2.0 -->\n\n# Benchmark: overhead\n\n\
         Written by `scripts/lab bench overhead`; [README.md](README.md) says how it is measured and \
         what the columns mean. All runs are in [overhead.csv](overhead.csv).\n\n\
         {} rounds; speeds are medians; ratios are medians of the rounds' ratios, with a 95% \
         bootstrap interval (seed {seed}). {}\n\n{table}",
        rounds.unwrap_or(0),
        runs.guest
    )
}

/// All runs, one a line.
pub fn csv(runs: &Runs) -> String {
    let mut text = String::from("load,array,round,iops,kBps\n");
    for ((load, array, round), speed) in &runs.speeds {
        let Speed {
            requests,
            kilobytes,
        } = speed;
        text += &format!("{load},{array},{round},{requests},{kilobytes}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: &str =
        "# first\nr label=random_read,_1 rw=randread bs=4k iodepth=1 at_least=0.93 of=bound\n\
                         w  label=write rw=write bs=1m iodepth=4 at_least=1.0 of=median\n";

    fn loads() -> Vec<Load> {
        let loads = parse_loads(LOADS).unwrap();
        loads.into_iter().map(|(_, load)| load).collect()
    }

    fn run(load: &str, array: &str, round: u32, iops: f64) -> String {
        format!("run load={load} array={array} round={round} iops={iops} kBps=1000\n")
    }

    #[test]
    fn loads_are_read_and_bad_ones_named() {
        let loads = loads();
        assert_eq!(
            (loads[0].label.as_str(), loads[0].of),
            ("random read, 1", Of::Bound)
        );
        assert_eq!((loads[0].megabytes, loads[1].megabytes), (false, true));
        for (line, words) in [
            ("a label=x at_least=1", "no of="),
            ("a label=x at_least=1 of=mean", "no of 'mean'"),
            ("a label=x colour=red", "unknown key 'colour'"),
            ("a", "no words"),
        ] {
            assert!(parse_loads(line).unwrap_err().contains(words), "{line}");
        }
    }

    #[test]
    fn the_loads_in_use_are_right() {
        let text = include_str!("../../scripts/bench/overhead.loads");
        let loads = parse_loads(text).unwrap();
        assert_eq!(loads.len(), 7);
        assert!(loads
            .iter()
            .all(|(line, _)| !line.contains("  ") && !line.contains(';')));
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_interval_holds_the_median_and_follows_the_spread() {
        assert_eq!(Ratio::of(vec![], 1), None);
        let same = Ratio::of(vec![1.5; 15], 1).unwrap();
        assert_eq!((same.low, same.median, same.high), (1.5, 1.5, 1.5));
        let spread = |by: f64| Ratio::of((0..15).map(|n| 1.0 + by * f64::from(n - 7)).collect(), 1);
        let (narrow, wide) = (spread(0.001).unwrap(), spread(0.01).unwrap());
        assert!((narrow.median - 1.0).abs() < 1e-9 && narrow.low < 1.0 && narrow.high > 1.0);
        // Of 15 values the interval of the median is about the 4th to the 12th.
        assert!((0.955..=0.975).contains(&wide.low), "{wide:?}");
        assert!((1.025..=1.045).contains(&wide.high), "{wide:?}");
        assert_eq!(spread(0.01), spread(0.01));
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut text = String::from("kernel=7 processors=2\n# a note\n");
        // The machine is four times slower in the second round, for both.
        for (round, speed) in [(1, 4000.0), (2, 1000.0), (3, 4000.0)] {
            text += &run("r", "md", round, speed);
            text += &run("r", "eraid", round, speed * 0.9);
            text += &run("w", "md", round, speed);
            text += &run("w", "eraid", round, speed * 1.1);
        }
        let runs = Runs::parse(&text).unwrap();
        let table = table(&loads(), &runs, 1).text();
        let lines: Vec<Vec<_>> = table
            .lines()
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(
            lines[2][1..8],
            [
                "random read, 1",
                "4000 /s",
                "-",
                "3600 /s",
                "low end 0.93",
                "0.900 [0.900, 0.900] BELOW",
                "-"
            ]
        );
        assert_eq!(
            lines[3][2..7],
            ["1.0 MB/s", "-", "1.0 MB/s", "1.00", "1.100 [1.100, 1.100]"]
        );
        assert_eq!(csv(&runs).lines().count(), 13);
        assert!(document("", &runs, 1).contains("3 rounds"));
        assert!(Runs::parse("run load=r array=md round=1 iops=fast kBps=1\n").is_err());
        assert!(Runs::parse("run load=r array=md iops=1 kBps=1\n").is_err());
    }
}
