//! `fleetgate explain`: where a connection, a query or a request would go, and why.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::Value;

use crate::admin::encode;
use crate::arguments::{ExplainFormat, ExplainOptions};
use crate::paint::Paint;
use crate::table;

pub(crate) fn run(options: &ExplainOptions, paint: Paint) -> anyhow::Result<ExitCode> {
    let answer = options.running.ask(&path(options))?;
    table::write(&match options.output {
        ExplainFormat::Json => format!("{answer:#}\n"),
        ExplainFormat::Yaml => serde_saphyr::to_string(&answer).context("writing YAML")?,
        ExplainFormat::Text => tell(&answer, paint),
    });
    Ok(ExitCode::SUCCESS)
}

fn path(options: &ExplainOptions) -> String {
    let from = options.from.map(|from| from.to_string());
    let proof = options.proof.then(|| "true".to_owned());
    let is_url = options.name.as_ref().is_some_and(|name| name.contains("://"));
    let asked = if is_url { "url" } else { "name" };
    let fields = [
        (asked, &options.name),
        ("tlv", &options.tlv),
        ("serverName", &options.server_name),
        ("from", &from),
        ("proof", &proof),
    ];
    let fields = fields.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", encode(value.as_ref()?))));
    format!("/v1/explain?{}", fields.collect::<Vec<_>>().join("&"))
}

/// The words bold; the verdict and who is refused in the colour of how it ends.
fn tell(answer: &Value, paint: Paint) -> String {
    let topics = api::told::topics(answer);
    let verdict =
        if answer["asked"]["url"].is_null() { &answer["connection"]["verdict"] } else { &answer["verdict"]["kind"] };
    let is_doubtful = verdict == "Doubtful" || answer["verdict"]["blame"].is_string();
    let ends = |line: &str| match verdict.as_str() {
        Some("Refused") => paint.red(line),
        _ if is_doubtful => paint.yellow(line),
        _ => paint.green(line),
    };
    let told = topics.iter().flat_map(|(word, lines)| {
        lines.iter().enumerate().map(move |(number, line)| {
            let label = if number == 0 { word } else { "" };
            let line = match *word {
                "verdict" if number == 0 => ends(line),
                "refused" => paint.red(line),
                _ => line.clone(),
            };
            let room = " ".repeat(12_usize.saturating_sub(label.len()));
            format!("{}{room}{line}\n", paint.bold(label))
        })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_has_the_colour_of_how_it_ends() {
        let paint = Paint { is_on: true };
        for (verdict, colour) in [("Established", "\x1b[32m"), ("Doubtful", "\x1b[33m"), ("Refused", "\x1b[31m")] {
            let answer = serde_json::json!({ "asked": { "name": "a.test" }, "connection": { "verdict": verdict, "code": "Code" } });
            let told = tell(&answer, paint);
            let line = told.lines().find(|line| line.contains("verdict")).unwrap();
            assert!(line.contains(colour), "{told:?}");
            let answer = serde_json::json!({ "asked": { "url": "http://a.test" }, "verdict": { "kind": verdict } });
            assert!(tell(&answer, paint).contains(colour), "{verdict}");
        }
    }
}
