//! Metrics by their labels, and how a scraper reads them: as OpenMetrics text, Prometheus' plain text, or protobuf.
//!
//! A family is a table of labels and values. Its encoders see it through `Families`, so that each knows its format and
//! nothing of what is counted.

mod histogram;
mod protobuf;
mod text;

use std::collections::BTreeMap;

pub use histogram::Histogram;

/// The labels of one series, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// What a family is called, without the prefix `flatwater_`, and what it is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub name: &'static str,
    pub help: &'static str,
    /// Becomes the end of the name.
    pub unit: Option<&'static str>,
}

impl About {
    fn full_name(&self) -> String {
        match self.unit {
            Some(unit) => format!("flatwater_{}_{unit}", self.name),
            None => format!("flatwater_{}", self.name),
        }
    }
}

/// One series as an encoder sees it.
#[derive(Clone, Copy, Debug)]
pub enum Sample<'a> {
    Count(u64),
    /// With the labels of its exemplar, whose value is 1.
    CountWithExemplar(u64, Option<&'a Labels>),
    /// Of a counter.
    Sum(f64),
    Level(f64),
    Histogram(&'a Histogram),
}

/// A value that a family holds.
pub trait Metric: Default {
    const KIND: Kind;
    fn sample(&self) -> Sample<'_>;
}

/// Things that happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count(u64);

impl Count {
    pub fn add(&mut self, more: u64) {
        self.0 = self.0.saturating_add(more);
    }
}

impl Metric for Count {
    const KIND: Kind = Kind::Counter;

    fn sample(&self) -> Sample<'_> {
        Sample::Count(self.0)
    }
}

/// Things that happened, with the labels of the last.
#[derive(Clone, Debug, Default)]
pub struct CountWithExemplar {
    count: u64,
    last: Option<Labels>,
}

impl CountWithExemplar {
    pub fn add(&mut self, exemplar: Labels) {
        self.count = self.count.saturating_add(1);
        self.last = Some(exemplar);
    }
}

impl Metric for CountWithExemplar {
    const KIND: Kind = Kind::Counter;

    fn sample(&self) -> Sample<'_> {
        Sample::CountWithExemplar(self.count, self.last.as_ref())
    }
}

/// A sum that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(f64);

impl Sum {
    pub fn add(&mut self, more: f64) {
        self.0 += more;
    }
}

impl Metric for Sum {
    const KIND: Kind = Kind::Counter;

    fn sample(&self) -> Sample<'_> {
        Sample::Sum(self.0)
    }
}

/// A value that rises and falls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level(f64);

impl Level {
    pub fn set(&mut self, level: f64) {
        self.0 = level;
    }
}

impl Metric for Level {
    const KIND: Kind = Kind::Gauge;

    fn sample(&self) -> Sample<'_> {
        Sample::Level(self.0)
    }
}

impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn sample(&self) -> Sample<'_> {
        Sample::Histogram(self)
    }
}

/// Series of one name.
#[derive(Clone, Debug)]
pub struct Family<M> {
    about: About,
    series: BTreeMap<Labels, M>,
}

impl<M: Metric> Family<M> {
    /// A family without series.
    #[must_use]
    pub fn new(about: About) -> Family<M> {
        Family { about, series: BTreeMap::new() }
    }

    /// A family of one series without labels.
    #[must_use]
    pub fn single(about: About) -> Family<M> {
        Family { about, series: BTreeMap::from([(Labels::new(), M::default())]) }
    }

    /// The series of these labels, new if it was not there.
    pub fn of(&mut self, labels: Labels) -> &mut M {
        self.series.entry(labels).or_default()
    }

    /// The series without labels.
    pub fn only(&mut self) -> &mut M {
        self.of(Labels::new())
    }
}

/// A family, whatever its values are.
pub trait Encodable {
    fn about(&self) -> About;
    fn kind(&self) -> Kind;
    fn each(&self, take: &mut dyn FnMut(&Labels, Sample<'_>));
}

impl<M: Metric> Encodable for Family<M> {
    fn about(&self) -> About {
        self.about
    }

    fn kind(&self) -> Kind {
        M::KIND
    }

    fn each(&self, take: &mut dyn FnMut(&Labels, Sample<'_>)) {
        self.series.iter().for_each(|(labels, metric)| take(labels, metric.sample()));
    }
}

/// All families that are exposed, in order.
pub type Families<'a> = [&'a dyn Encodable];

#[cfg(test)]
pub use protobuf::decoded;
pub use protobuf::encode as protobuf;
pub use text::{openmetrics, plain};
