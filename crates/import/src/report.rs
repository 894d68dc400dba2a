//! The report of an import: what was lost comes first.

use crate::finding::{Finding, Verdict};

/// What became of each key.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pooler whose files were read.
    pub pooler: &'static str,
    /// The files.
    pub files: Vec<String>,
    /// What is said of each key, in the order of the files.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if something was lost that decides who gets in or where writes go.
    pub fn loses_what_decides(&self) -> bool {
        self.findings.iter().any(|finding| finding.decides)
    }

    /// The findings by their headings, what was lost first. No heading is empty.
    pub fn parts(&self) -> Vec<(String, Vec<&Finding>)> {
        let pooler = self.pooler;
        let is = |verdict: Verdict| move |finding: &&Finding| finding.verdict == verdict;
        let all = || self.findings.iter();
        let parts: [(String, Vec<&Finding>); 7] = [
            (
                "Lost, and decides who gets in or where writes go".into(),
                all().filter(|finding| finding.decides).collect(),
            ),
            (
                "Lost".into(),
                all()
                    .filter(is(Verdict::Lost))
                    .filter(|finding| !finding.decides)
                    .collect(),
            ),
            (
                "Please look at".into(),
                all().filter(|finding| finding.is_doubtful).collect(),
            ),
            ("Mapped".into(), all().filter(is(Verdict::Mapped)).collect()),
            ("Same".into(), all().filter(is(Verdict::Same)).collect()),
            (
                format!("Defaults of {pooler} that are not Howdah's, and are stated"),
                all().filter(is(Verdict::Default)).collect(),
            ),
            (
                "Without effect".into(),
                all().filter(is(Verdict::Unused)).collect(),
            ),
        ];
        parts
            .into_iter()
            .filter(|(_, all)| !all.is_empty())
            .collect()
    }

    /// What was imported, and how much of it, in a line.
    pub fn summary(&self) -> String {
        let count = |verdict: Verdict| {
            let of = self
                .findings
                .iter()
                .filter(|finding| finding.verdict == verdict);
            of.count()
        };
        format!(
            "{}, {}: {} lost, {} mapped, {} same, {} without effect, {} defaults stated",
            self.pooler,
            self.files.join(", "),
            count(Verdict::Lost),
            count(Verdict::Mapped),
            count(Verdict::Same),
            count(Verdict::Unused),
            count(Verdict::Default),
        )
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.summary());
        for (heading, findings) in self.parts() {
            out.push_str(&format!("\n{heading}:\n"));
            let width = findings
                .iter()
                .map(|finding| finding.key.chars().count())
                .max();
            let width = width.unwrap_or_default().min(40);
            for finding in findings {
                out.push_str(&format!(
                    "  {:width$}  {}{}\n",
                    finding.key,
                    finding.text,
                    behind(finding)
                ));
            }
        }
        out
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("# Import from {}\n\n{}.\n", self.pooler, self.summary());
        for (heading, findings) in self.parts() {
            out.push_str(&format!(
                "\n## {heading}\n\n| key | place | what became of it |\n|---|---|---|\n"
            ));
            for finding in findings {
                let place = finding.place.as_ref();
                out.push_str(&format!(
                    "| `{}` | {} | {} |\n",
                    cell(&finding.key),
                    cell(&place.map_or(String::new(), |place| place.to_string())),
                    cell(&finding.text)
                ));
            }
        }
        out
    }
}

/// The place behind a finding.
fn behind(finding: &Finding) -> String {
    let place = finding.place.as_ref();
    place.map_or(String::new(), |place| format!("  ({place})"))
}

/// A text in a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('`', "'")
}
