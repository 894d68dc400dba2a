//! A record as tables in Markdown, and as one HTML page with plots.

use std::fmt::Write as _;

use crate::figure::{
    Clocks, Ratios, Shown, Told, best, is_in, marked, ratios, remark, told, wobble,
};
use crate::plot::plot;
use crate::record::{CellRecord, Record};

/// The reasons of all failures, each once.
fn failures(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in &record.cells {
        for run in &cell.runs {
            let Err(cause) = &run.outcome else { continue };
            let line = format!("{}, {}, {}: {cause}", run.contender, cell.group, cell.row);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// What the marks of all tables mean.
fn legend(record: &Record) -> &'static str {
    match rounds(record) {
        0 | 1 => {
            "There is one round, so there is no spread. Bold is the best pooler of a row; small \
             leads may be chance."
        }
        _ => {
            "Figures are medians over the rounds. \u{b1} is the spread: half the way from the least \
             round to the most, in percent of the median. Bold is the best pooler of a row, and each \
             pooler whose rounds overlap with those of the best."
        }
    }
}

fn rounds(record: &Record) -> usize {
    let runs = record.cells.iter().flat_map(|cell| &cell.runs);
    runs.map(|run| run.round + 1).max().unwrap_or(0)
}

/// Notes about all tables.
fn notes(record: &Record) -> Vec<String> {
    let runs = record.cells.iter().flat_map(|cell| &cell.runs);
    let figures = || runs.clone().filter_map(|run| run.outcome.as_ref().ok());
    let mut notes = Vec::new();
    let seconds = record.stamp.get("seconds of a run");
    let each = seconds.map_or(String::new(), |seconds| format!(" of {seconds} s"));
    notes.push(match rounds(record) {
        1 => format!("length: one round{each}"),
        rounds => format!("length: {rounds} rounds{each}"),
    });
    // Lengths, cores and the machine are already in the report.
    let told = ["machine", "cores", "seconds of a run"];
    let builds = record.stamp.iter();
    let builds = builds.filter(|(name, _)| !told.contains(&name.as_str()));
    notes.extend(builds.map(|(name, value)| match name.as_str() {
        "scale" => format!("scale of pgbench's tables: {value}"),
        _ => format!("build of {name}: {value}"),
    }));
    notes.extend(Clocks::of(record).name().map(|clock| {
        format!(
            "CPU is of the pooler's whole process tree from the end of logins, by {clock}; where \
             each transaction has a login, that is part of it"
        )
    }));
    notes.extend(record.capacity.map(|capacity| {
        format!("100 % of capacity is {capacity:.0} transactions per second, for all poolers")
    }));
    if figures().any(|figures| figures.logins.is_some()) {
        notes.push(
            "beside a storm no CPU is told: the pooler's work for the logins of the storm is part of it"
                .to_owned(),
        );
    }
    let sampled = figures().filter_map(|figures| figures.sampled);
    notes.extend(sampled.reduce(f64::min).map(|part| {
        if part >= 1.0 {
            "waiting times and fairness are of all transactions".to_owned()
        } else {
            format!(
                "waiting times are of a sample of {:.0} % of all transactions, also the longest",
                part * 100.0
            )
        }
    }));
    if figures().any(|figures| figures.mean.is_some()) && record.design != "memory" {
        notes.push(
            "waiting times are without a transaction's login, but for the mean, which pgbench takes \
             from its count of transactions"
                .to_owned(),
        );
    }
    notes.push(checked(&record.design).to_owned());
    notes
}

/// How answers were checked.
fn checked(design: &str) -> &'static str {
    match design {
        "copy" => {
            "before each run FROM STDIN, the lines that had arrived were counted and measured; in the \
             run, each COPY's command tag was compared, and of TO STDOUT the number of bytes"
        }
        "pools" => {
            "every answer of the runs was compared; an error or a lost client fails the cell"
        }
        _ => {
            "answers were compared before and after each run, in its own shape; in between, errors and \
             clients that were lost fail the cell"
        }
    }
}

/// The title of the table of ratios.
const RATIOS: &str = "Transactions per second, as a fraction of PgBouncer's (of the medians)";

/// The record as Markdown.
pub fn markdown(record: &Record) -> String {
    let mut text = format!(
        "# {}\n\n{}.\n\n{}\n\n",
        record.design,
        record.about,
        legend(record)
    );
    for (name, value) in &record.facts {
        let _ = writeln!(text, "- {name}: {value}");
    }
    for note in notes(record) {
        let _ = writeln!(text, "- {note}");
    }
    text.push('\n');
    if let Some(Ratios { names, rows }) = ratios(record) {
        let _ = writeln!(text, "## {RATIOS}\n\n| clients | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(names.len()));
        for (title, ratios) in rows {
            let _ = writeln!(text, "| {title} | {} |", ratios.join(" | "));
        }
        text.push('\n');
    }
    let is_anywhere = |shown: &Shown| {
        let mut groups = record.groups().into_iter();
        groups.any(|group| is_in(record, group, shown))
    };
    for shown in record.shown().iter().filter(|shown| is_anywhere(shown)) {
        let remark = remark(record, shown);
        let _ = writeln!(text, "## {} ({}{remark})\n", shown.title, shown.better);
        let groups = record.groups().into_iter();
        for group in groups.filter(|group| is_in(record, group, shown)) {
            let _ = writeln!(text, "**{group}**\n");
            let _ = writeln!(text, "| clients | {} |", record.contenders.join(" | "));
            let _ = writeln!(text, "|---|{}", "---:|".repeat(record.contenders.len()));
            for cell in record.cells_of(group) {
                let best = best(record, cell, shown);
                let line = record.contenders.iter().map(|name| {
                    let is_best = best.contains(&name.as_str());
                    in_markdown(record, cell, name, shown, is_best)
                });
                let line: Vec<_> = line.collect();
                let _ = writeln!(text, "| {} | {} |", cell.title(), line.join(" | "));
            }
            text.push('\n');
        }
    }
    let failures = failures(record);
    if !failures.is_empty() {
        text.push_str("## Not measured\n\n");
        for line in failures {
            let _ = writeln!(text, "- {line}");
        }
    }
    text
}

/// A table cell in Markdown.
fn in_markdown(
    record: &Record,
    cell: &CellRecord,
    name: &str,
    shown: &Shown,
    is_best: bool,
) -> String {
    let spread = match told(record, cell, name, shown) {
        Told::Nothing => return String::new(),
        Told::Failed(_) => return "-".to_owned(),
        Told::Figure(spread) => spread,
    };
    let bold = if is_best { "**" } else { "" };
    let text = format!("{bold}{}{bold}", marked(cell, name, shown, spread));
    match spread.rounds {
        1 => text,
        _ => format!("{text} \u{b1}{:.0}%", wobble(spread) / 2.0),
    }
}

/// The colours, of pages and pictures.
pub const STYLE: &str = include_str!("page.css");

/// The record as one self-contained HTML page.
pub fn html(record: &Record) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{design}</title>\n<style>{STYLE}</style>\n<h1>{design}</h1>\n\
         <p>{about}.</p>\n<p>{legend}</p>\n",
        design = escaped(&record.design),
        about = escaped(&record.about),
        legend = legend(record),
    );
    page.push_str("<ul class=facts>");
    for (name, value) in &record.facts {
        let _ = write!(page, "<li><b>{}</b> {}</li>", escaped(name), escaped(value));
    }
    for note in notes(record) {
        let _ = write!(page, "<li>{}</li>", escaped(&note));
    }
    page.push_str("</ul>");
    page.push_str("<p class=legend>");
    for (index, name) in record.contenders.iter().enumerate() {
        let _ = write!(page, "<span><i class=c{index}></i>{}</span>", escaped(name));
    }
    page.push_str("</p>\n");
    if let Some(Ratios { names, rows }) = ratios(record) {
        let head: String = names
            .iter()
            .map(|name| format!("<th>{}", escaped(name)))
            .collect();
        let _ = write!(page, "<h2>{RATIOS}</h2><table><tr><th>clients{head}");
        for (title, ratios) in rows {
            let _ = write!(
                page,
                "<tr><th>{}<td>{}",
                escaped(&title),
                ratios.join("<td>")
            );
        }
        page.push_str("</table>\n");
    }
    for group in record.groups() {
        let _ = write!(page, "<section><h2>{}</h2><div class=pair>", escaped(group));
        for shown in record.shown().iter().take(2) {
            page.push_str(&plot(record, group, shown));
        }
        page.push_str("</div>");
        let shown = record.shown().iter();
        for shown in shown.filter(|shown| is_in(record, group, shown)) {
            page.push_str(&table(record, group, shown));
        }
        page.push_str("</section>\n");
    }
    let failures = failures(record);
    if !failures.is_empty() {
        page.push_str("<h2>Not measured</h2><ul>");
        for line in failures {
            let _ = write!(page, "<li>{}</li>", escaped(&line));
        }
        page.push_str("</ul>");
    }
    page.push_str("<h2>Configs</h2>");
    for (name, text) in &record.configs {
        let _ = write!(
            page,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escaped(name),
            escaped(text)
        );
    }
    page.push_str("</html>\n");
    page
}

fn table(record: &Record, group: &str, shown: &Shown) -> String {
    let head: String = record
        .contenders
        .iter()
        .map(|name| format!("<th>{}", escaped(name)))
        .collect();
    let mut text = format!(
        "<details{}><summary>{} <small>({}{})</small></summary><table><tr><th>clients{head}",
        if std::ptr::eq(shown, record.shown()[0]) {
            " open"
        } else {
            ""
        },
        shown.title,
        shown.better,
        escaped(&remark(record, shown))
    );
    for cell in record.cells_of(group) {
        let best = best(record, cell, shown);
        let _ = write!(text, "<tr><th>{}", escaped(&cell.title()));
        for name in &record.contenders {
            let class = if best.contains(&name.as_str()) {
                " class=best"
            } else {
                ""
            };
            let _ = match told(record, cell, name, shown) {
                Told::Nothing => write!(text, "<td>"),
                Told::Failed(cause) => write!(text, "<td title=\"{}\">-", escaped(&cause)),
                Told::Figure(spread) if spread.rounds == 1 => {
                    write!(text, "<td{class}>{}", marked(cell, name, shown, spread))
                }
                Told::Figure(spread) => write!(
                    text,
                    "<td{class}>{} <small>&plusmn;{:.0}%</small>",
                    marked(cell, name, shown, spread),
                    wobble(spread) / 2.0
                ),
            };
        }
    }
    text.push_str("</table></details>");
    text
}

/// Text as HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    #[test]
    fn the_best_is_marked_and_failures_have_their_reason() {
        let text = markdown(&sample(&[1000.0, 1200.0]));
        assert!(
            text.contains("| 1 |  | **1,100** \u{b1}9% | 900 | - |"),
            "{text}"
        );
        assert!(text.contains("- odyssey, simple, 1: it <died>"), "{text}");
        assert!(text.contains("| simple, 1 | 1.22 | - |"), "{text}");
    }

    #[test]
    fn a_page_has_plots_and_nothing_unescaped() {
        let page = html(&sample(&[1000.0]));
        assert!(page.contains("<svg") && page.contains("it &lt;died&gt;"));
        assert!(!page.contains("<died>"));
    }

    #[test]
    fn marks_are_explained_once_and_the_clock_at_each_table() {
        let record = sample(&[1000.0, 1200.0]);
        for text in [markdown(&record), html(&record)] {
            assert_eq!(text.matches("\u{b1} is the spread").count(), 1, "{text}");
            assert!(
                text.contains("less is better; by the task clock)"),
                "{text}"
            );
        }
        assert!(markdown(&sample(&[1000.0])).contains("There is one round"));
    }

    #[test]
    fn each_design_tells_how_its_answers_were_checked() {
        let of = |design: &str| {
            let record = Record {
                design: design.into(),
                ..sample(&[1000.0])
            };
            markdown(&record).contains("compared before and after each run")
        };
        assert!(of("matrix") && !of("copy") && !of("pools"));
    }
}
