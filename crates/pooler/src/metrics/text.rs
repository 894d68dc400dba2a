//! All metrics as text for Prometheus.

use std::fmt::Write;

use super::sight::{Levels, PoolSight, Sight};
use super::table::MetricKind::Counter;
use super::table::MetricSource::{Host, HostBy, Pool, PoolBy, Process, ProcessBy, Worker};
use super::table::{METRICS, Metric, MetricSource};
use crate::console::host_sight::HostSight;
use crate::times::{BOUNDS, Histogram};

/// The format of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that an Accept header asks for.
    pub fn accepted(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    /// The Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics as text.
pub fn text(sight: &Sight, format: Format) -> String {
    let labels: Vec<String> = sight.pools.iter().map(pool_labels).collect();
    let mut page = Page {
        text: String::with_capacity(16_384 + sight.pools.len() * 16_384),
    };
    for metric in METRICS {
        page.metric(metric, sight, &labels, format);
    }
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn host_label(host: &HostSight) -> String {
    format!("host=\"{}\"", escaped(&host.host.to_string()))
}

fn pool_labels(pool: &PoolSight) -> String {
    format!(
        "database=\"{}\",user=\"{}\"",
        escaped(&pool.key.database),
        escaped(&pool.key.user)
    )
}

/// Escapes a label's value: any client can choose such names.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Page {
    text: String,
}

impl Page {
    fn metric(&mut self, metric: &Metric, sight: &Sight, labels: &[String], format: Format) {
        let Metric { name, help, .. } = metric;
        // OpenMetrics names a counter's family without the suffix.
        let family = match format {
            Format::OpenMetrics if metric.kind == Counter => name.trim_end_matches("_total"),
            _ => name,
        };
        let kind = metric.kind.word();
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        let pools = sight.pools.iter().zip(labels);
        match &metric.source {
            Process(value) => self.value(name, "", value(sight)),
            ProcessBy(label, values) => {
                for (word, value) in values(sight) {
                    self.value(name, &format!("{label}=\"{word}\""), value);
                }
            }
            Worker(value) => {
                for worker in &sight.workers {
                    let label = format!("worker=\"{}\"", worker.worker);
                    self.value(name, &label, value(worker));
                }
            }
            Host(value) => {
                for host in &sight.hosts {
                    if let Some(value) = value(host) {
                        self.value(name, &host_label(host), value);
                    }
                }
            }
            HostBy(label, values) => {
                for host in &sight.hosts {
                    for (word, value) in values(host) {
                        let labels = format!("{},{label}=\"{word}\"", host_label(host));
                        self.value(name, &labels, value);
                    }
                }
            }
            MetricSource::UsableHosts => {
                for (database, hosts) in &sight.usable_hosts {
                    let label = format!("database=\"{}\"", escaped(database));
                    self.value(name, &label, f64::from(*hosts));
                }
            }
            MetricSource::Sharded(values) => {
                for sight in &sight.sharded {
                    for (word, value) in values(sight) {
                        let database = escaped(&sight.database);
                        let labels = format!("database=\"{database}\",reason=\"{word}\"");
                        self.value(name, &labels, value);
                    }
                }
            }
            MetricSource::Shard(value) => {
                for of in &sight.sharded {
                    for (shard, figures) in &of.shards {
                        let (database, shard) = (escaped(&of.database), escaped(shard));
                        let labels = format!("database=\"{database}\",shard=\"{shard}\"");
                        if let Some(value) = value(figures) {
                            self.value(name, &labels, value);
                        }
                    }
                }
            }
            Pool(value) => pools.for_each(|(pool, labels)| self.value(name, labels, value(pool))),
            PoolBy(label, values) => {
                for (pool, labels) in pools {
                    for (word, value) in values(pool) {
                        self.value(name, &format!("{labels},{label}=\"{word}\""), value);
                    }
                }
            }
            MetricSource::Errors(errors) => {
                for (pool, labels) in pools {
                    for (source, class, count) in errors(pool).rows() {
                        let labels = format!("{labels},source=\"{source}\",class=\"{class}\"");
                        self.value(name, &labels, count as f64);
                    }
                }
            }
            MetricSource::Times(times) => {
                for (pool, labels) in pools {
                    let (histogram, sum_ns) = times(pool);
                    let bounds = (0..BOUNDS).map(|at| Histogram::bound(at) as f64 / 1e9);
                    self.histogram(
                        name,
                        labels,
                        histogram.counts(),
                        bounds,
                        sum_ns as f64 / 1e9,
                    );
                }
            }
            MetricSource::Levels(levels) => {
                for (pool, labels) in pools {
                    let levels = levels(pool);
                    let bounds = Levels::BOUNDS.iter().map(|bound| *bound as f64);
                    self.histogram(name, labels, levels.counts(), bounds, levels.sum() as f64);
                }
            }
        }
    }

    fn value(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        counts: &[u64],
        bounds: impl Iterator<Item = f64>,
        sum: f64,
    ) {
        let mut total = 0;
        for (bound, count) in bounds.zip(counts) {
            total += count;
            let _ = writeln!(
                self.text,
                "{name}_bucket{{{labels},le=\"{bound:?}\"}} {total}"
            );
        }
        let total: u64 = counts.iter().sum();
        let _ = writeln!(
            self.text,
            "{name}_bucket{{{labels},le=\"+Inf\"}} {total}\n\
             {name}_sum{{{labels}}} {sum}\n\
             {name}_count{{{labels}}} {total}"
        );
    }
}
