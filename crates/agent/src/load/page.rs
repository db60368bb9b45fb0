//! What is looked for in a pod's page of metrics, and what that says.

use super::exposition::{self, BadLine, Found};

/// Of Prometheus' client libraries; seconds of processor time.
const CPU: &str = "process_cpu_seconds_total";

/// Which metrics say how busy a pod is.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// A counter of requests that were answered.
    pub served: String,
    /// A gauge that is 1 at the limit. Of several, the largest counts.
    pub utilization: Option<String>,
    /// A gauge of requests under way, and how many there may be.
    pub in_flight: Option<(String, Limit)>,
    /// How many cores a pod may use.
    pub cores: Option<f64>,
}

#[derive(Debug, Clone)]
pub enum Limit {
    Number(f64),
    /// A gauge of the same page.
    Metric(String),
}

/// What a page says. Counters mean something only beside those of an earlier page.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Sample {
    pub(super) served: f64,
    /// Seconds of processor time, and how many cores there are.
    pub(super) cpu: Option<(f64, f64)>,
    pub(super) named: Option<f64>,
    pub(super) in_flight: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageError {
    #[error("line {0} of the page cannot be read")]
    BadLine(usize),
    #[error("the page has no metric {0}")]
    NoSuchMetric(String),
}

impl Metrics {
    /// Then nothing can be measured of what a pod could serve.
    pub fn says_nothing_of_limits(&self) -> bool {
        self.utilization.is_none() && self.in_flight.is_none() && self.cores.is_none()
    }

    pub(super) fn read(&self, page: &[u8]) -> Result<Sample, PageError> {
        let utilization = self.utilization.as_deref();
        let in_flight = self.in_flight.as_ref();
        let limit = in_flight.and_then(|(_, limit)| match limit {
            Limit::Metric(name) => Some(name.as_str()),
            Limit::Number(_) => None,
        });
        let in_flight = in_flight.map(|(name, _)| name.as_str());
        let cpu = self.cores.map(|_| CPU);
        // No metric has an empty name.
        let names = [Some(self.served.as_str()), utilization, in_flight, limit, cpu].map(Option::unwrap_or_default);
        let found = exposition::find(page, &names).map_err(|BadLine(number)| PageError::BadLine(number))?;
        // Before the first request many a counter is not there; a page that has nothing of what is wanted is another one.
        if found.iter().all(|found| found.count == 0) {
            return Err(PageError::NoSuchMetric(self.served.clone()));
        }
        let of = |at: usize| found.get(at).copied().filter(|found: &Found| found.count > 0);
        let limit = match &self.in_flight {
            Some((_, Limit::Number(number))) => Some(*number),
            _ => of(3).map(|found| found.sum),
        };
        let limit = limit.filter(|limit| *limit > 0.0);
        Ok(Sample {
            served: of(0).map_or(0.0, |found| found.sum),
            cpu: of(4).map(|found| found.sum).zip(self.cores),
            named: of(1).map(|found| found.largest),
            in_flight: of(2).zip(limit).map(|(found, limit)| found.sum / limit),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_busy_a_pod_is() {
        let metrics = Metrics {
            served: "served_total".into(),
            utilization: Some("busy".into()),
            in_flight: Some(("open".into(), Limit::Metric("most".into()))),
            cores: Some(2.0),
        };
        let all = b"served_total{a=\"1\"} 5\nserved_total{a=\"2\"} 6\nbusy{w=\"1\"} 0.25\nbusy{w=\"2\"} 0.5\nopen 3\nmost 4\n\
            process_cpu_seconds_total 1.5\n";
        let sample = Sample { served: 11.0, cpu: Some((1.5, 2.0)), named: Some(0.5), in_flight: Some(0.75) };
        assert_eq!(metrics.read(all), Ok(sample));
        let part = Sample { named: Some(0.5), ..Sample::default() };
        assert_eq!(metrics.read(b"busy 0.5\nopen 3\nmost 0\n"), Ok(part), "a limit of nothing is none");
        assert_eq!(metrics.read(b"other 1\n"), Err(PageError::NoSuchMetric("served_total".into())));
        assert_eq!(metrics.read(b"busy 0.5\nserved_total x\n"), Err(PageError::BadLine(2)));
        let fixed = Metrics { in_flight: Some(("open".into(), Limit::Number(6.0))), ..metrics };
        assert_eq!(fixed.read(b"open 3\n").unwrap().in_flight, Some(0.5));
    }
}
