//! Stores metrics by label and encodes them: OpenMetrics text, Prometheus' plain text, or protobuf.
//!
//! A [`Family`] is a table of labels and values. Encoders read it through [`Families`], so an encoder knows its format
//! and nothing about what is counted.

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

/// The name of a family, without the prefix `flatwater_`, and its description.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub name: &'static str,
    pub help: &'static str,
    /// Appended to the name.
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

/// The value of one series, for an encoder.
#[derive(Clone, Copy, Debug)]
pub enum Sample<'a> {
    Count(u64),
    /// With the exemplar's labels; the exemplar's value is 1.
    CountWithExemplar(u64, Option<&'a Labels>),
    /// The value of a counter that is not whole.
    Sum(f64),
    Level(f64),
    Histogram(&'a Histogram),
}

/// A value of a family.
pub trait Metric: Default {
    const KIND: Kind;
    fn sample(&self) -> Sample<'_>;
}

/// A counter of events.
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

/// A counter of events, with labels of the latest event.
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

/// A gauge.
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

/// The series of one name.
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

    /// A family with one series, without labels.
    #[must_use]
    pub fn single(about: About) -> Family<M> {
        Family { about, series: BTreeMap::from([(Labels::new(), M::default())]) }
    }

    /// The series with these labels; added if it does not exist.
    pub fn of(&mut self, labels: Labels) -> &mut M {
        self.series.entry(labels).or_default()
    }

    /// Drops each series with this value of the label.
    pub fn drop_series(&mut self, label: &str, value: &str) {
        self.series.retain(|labels, _| !labels.iter().any(|(name, its)| *name == label && its == value));
    }

    /// The series without labels.
    pub fn only(&mut self) -> &mut M {
        self.of(Labels::new())
    }
}

/// A family of any type of value.
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

/// All exposed families, in order.
pub type Families<'a> = [&'a dyn Encodable];

#[cfg(test)]
pub use protobuf::decoded;
pub use protobuf::encode as protobuf;
pub use text::{openmetrics, plain};
