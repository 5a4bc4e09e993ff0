//! The fields of Prometheus' metrics.proto (io.prometheus.client) that the daemon writes, declared by hand: compiling
//! the whole file would require a build script and a protobuf compiler.

use std::time::UNIX_EPOCH;

use prost::Message;

use super::{Families, Histogram, Kind, Labels, Sample, histogram};

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    pub kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    pub unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<GaugeValue>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<CounterValue>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GaugeValue {
    #[prost(double, tag = "1")]
    pub value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterValue {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(message, optional, tag = "2")]
    pub exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    pub value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramValue {
    #[prost(uint64, tag = "1")]
    pub sample_count: u64,
    #[prost(double, tag = "2")]
    pub sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    pub schema: i32,
    #[prost(double, tag = "6")]
    pub zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    pub zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub positive_delta: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    pub start_timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub upper_bound: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Encodes `MetricFamily` messages, each preceded by its length.
#[must_use]
pub fn encode(families: &Families<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families {
        let about = family.about();
        let (end, kind) = match family.kind() {
            Kind::Counter => ("_total", MetricType::Counter),
            Kind::Gauge => ("", MetricType::Gauge),
            Kind::Histogram => ("", MetricType::Histogram),
        };
        let mut message = MetricFamily {
            name: about.full_name() + end,
            help: format!("{}.", about.help),
            kind: kind.into(),
            metric: Vec::new(),
            unit: about.unit.unwrap_or_default().to_owned(),
        };
        family.each(&mut |labels, sample| message.metric.push(metric(labels, sample)));
        out.extend(message.encode_length_delimited_to_vec());
    }
    out
}

fn metric(labels: &Labels, sample: Sample<'_>) -> Metric {
    let counter = |value, exemplar| Some(CounterValue { value, exemplar });
    let mut metric = Metric { label: pairs(labels), ..Metric::default() };
    match sample {
        Sample::Count(count) => metric.counter = counter(count as f64, None),
        Sample::CountWithExemplar(count, exemplar) => {
            let exemplar = exemplar.map(|labels| Exemplar { label: pairs(labels), value: 1.0 });
            metric.counter = counter(count as f64, exemplar);
        }
        Sample::Sum(sum) => metric.counter = counter(sum, None),
        Sample::Level(value) => metric.gauge = Some(GaugeValue { value }),
        Sample::Histogram(histogram) => metric.histogram = Some(histogram_value(histogram)),
    }
    metric
}

fn pairs(labels: &Labels) -> Vec<LabelPair> {
    let pair = |(name, value): &(&'static str, String)| LabelPair { name: (*name).to_owned(), value: value.clone() };
    labels.iter().map(pair).collect()
}

fn histogram_value(of: &Histogram) -> HistogramValue {
    let native = of.spans();
    let since = of.created.duration_since(UNIX_EPOCH).unwrap_or_default();
    let bucket = |(upper_bound, cumulative_count)| Bucket { cumulative_count, upper_bound };
    HistogramValue {
        sample_count: of.count,
        sample_sum: of.sum,
        bucket: of.cumulative().map(bucket).collect(),
        schema: of.schema,
        zero_threshold: histogram::ZERO_THRESHOLD,
        zero_count: of.zero_count,
        positive_span: native
            .spans
            .iter()
            .map(|(offset, length)| BucketSpan { offset: *offset, length: *length })
            .collect(),
        positive_delta: native.deltas,
        start_timestamp: Some(Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
        }),
    }
}

/// The decoded messages as text, with series ordered by their labels; without the start times of histograms and without
/// series that prometheus-client did not write.
#[cfg(test)]
pub fn decoded(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let mut family = MetricFamily::decode_length_delimited(&mut bytes).expect("a family");
        for metric in &mut family.metric {
            if let Some(histogram) = &mut metric.histogram {
                assert!(histogram.start_timestamp.take().is_some_and(|time| time.seconds > 0));
            }
        }
        // Added after the fixtures were written.
        family.metric.retain(|metric| metric.label.iter().all(|label| label.value != "answers"));
        family.metric.sort_by_key(|metric| format!("{:?}", metric.label));
        all.push(format!("{family:#?}"));
    }
    all
}
