//! What a process says on `/metrics`.

use anyhow::{Context, Result, bail};

/// One scrape.
pub struct Metrics {
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    pub async fn scrape(admin_url: &str) -> Result<Self> {
        let response = reqwest::get(format!("{admin_url}/metrics")).await?.error_for_status()?;
        Self::parse(&response.text().await?)
    }

    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|line| sample(line).with_context(|| format!("sample {line}")));
        Ok(Self { samples: samples.collect::<Result<_>>()? })
    }

    /// The sum of all samples of this name that have these labels (and maybe others); `None` when
    /// there is no such sample.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.samples.iter().filter(|s| s.name == name && s.has(labels)).peekable();
        found.peek()?;
        Some(found.map(|sample| sample.value).sum())
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels
            .iter()
            .all(|wanted| self.labels.iter().any(|(k, v)| (k.as_str(), v.as_str()) == *wanted))
    }
}

fn sample(line: &str) -> Result<Sample> {
    let (series, value) = line.rsplit_once(' ').context("no value")?;
    let value = value.parse().context("the value is no number")?;
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => (name, self::labels(rest)?),
    };
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// `a="1",b="2"}`. Our label values come from enums, so none holds a quote.
fn labels(text: &str) -> Result<Vec<(String, String)>> {
    let inner = text.strip_suffix('}').context("labels do not end")?;
    let mut labels = Vec::new();
    for pair in inner.split("\",").filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once("=\"") else { bail!("label {pair}") };
        labels.push((name.to_owned(), value.trim_end_matches('"').to_owned()));
    }
    Ok(labels)
}
