//! A record as tables in Markdown, and as one HTML page with plots.

use std::fmt::Write as _;

use crate::record::{CellRecord, Figures, Record, Spread};

/// A figure that is shown for every cell.
struct Shown {
    title: &'static str,
    /// Whether more or less is better.
    better: &'static str,
    figure: fn(&Figures) -> Option<f64>,
    /// The figure uses the pooler's processor time.
    is_cpu: bool,
    digits: usize,
    most_is_best: bool,
}

const TPS: Shown = Shown {
    title: "Transactions per second",
    better: "more is better",
    figure: |figures| Some(figures.tps),
    digits: 0,
    is_cpu: false,
    most_is_best: true,
};

const CPU: Shown = Shown {
    title: "Pooler's CPU, microseconds per transaction",
    better: "less is better",
    figure: |figures| figures.cpu.or(figures.account),
    digits: 1,
    is_cpu: true,
    most_is_best: false,
};

const CORES: Shown = Shown {
    title: "Pooler's cores in use",
    better: "less is better at the same rate",
    figure: |figures| Some(figures.cpu.or(figures.account)? * figures.tps / 1e6),
    digits: 2,
    is_cpu: true,
    most_is_best: false,
};

const MEDIAN: Shown = Shown {
    title: "Waiting time, median, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[0]),
    digits: 2,
    is_cpu: false,
    most_is_best: false,
};

const TAIL: Shown = Shown {
    title: "Waiting time, 99th percentile, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[2]),
    digits: 2,
    is_cpu: false,
    most_is_best: false,
};

const HIGH: Shown = Shown {
    title: "Waiting time, 95th percentile, milliseconds",
    figure: |figures| Some(figures.waits?[1]),
    ..TAIL
};

const FAR_TAIL: Shown = Shown {
    title: "Waiting time, 99.9th percentile, milliseconds",
    figure: |figures| Some(figures.waits?[3]),
    ..TAIL
};

const LONGEST: Shown = Shown {
    title: "Waiting time, longest, milliseconds",
    better: "less is better",
    figure: |figures| Some(figures.waits?[4]),
    digits: 1,
    is_cpu: false,
    most_is_best: false,
};

const FAIRNESS: Shown = Shown {
    title: "Transactions of the client that was served least, percent of the median client's",
    better: "more is better",
    figure: |figures| Some(figures.fairness? * 100.0),
    digits: 0,
    is_cpu: false,
    most_is_best: true,
};

const RESIDENT: Shown = Shown {
    title: "Pooler's memory with all clients connected, megabytes",
    better: "less is better",
    figure: |figures| Some(figures.resident? as f64 / 1024.0),
    digits: 1,
    is_cpu: false,
    most_is_best: false,
};

/// [`per_client`] computes this from [`RESIDENT`].
const PER_CLIENT: Shown = Shown {
    title: "Pooler's memory beyond that without clients, bytes per client",
    digits: 0,
    ..RESIDENT
};

const MEGABYTES: Shown = Shown {
    title: "Megabytes per second",
    ..TPS
};

const CPU_OF_MEGABYTES: Shown = Shown {
    title: "Pooler's CPU, microseconds per megabyte",
    digits: 0,
    ..CPU
};

/// The figures of a report, in this order.
const ALL: [&Shown; 10] = [
    &TPS, &CPU, &CORES, &MEDIAN, &HIGH, &TAIL, &FAR_TAIL, &LONGEST, &FAIRNESS, &RESIDENT,
];

impl Record {
    /// The figures of this design's report. The first two are plotted.
    fn shown(&self) -> &'static [&'static Shown] {
        match self.design.as_str() {
            "memory" => &[&RESIDENT, &PER_CLIENT],
            "copy" => &[&MEGABYTES, &CPU_OF_MEGABYTES, &CORES, &RESIDENT],
            "pools" => &[&CPU, &RESIDENT, &TPS, &CORES],
            "latency" => &[
                &MEDIAN, &TAIL, &HIGH, &FAR_TAIL, &LONGEST, &TPS, &CPU, &CORES, &FAIRNESS,
                &RESIDENT,
            ],
            _ => &ALL,
        }
    }
}

/// The content of a table cell.
enum Told {
    Nothing,
    Failed(String),
    Figure(Spread),
}

/// Fills a table cell. For memory per client, `record` has the row without clients, too.
fn told(record: &Record, cell: &CellRecord, contender: &str, shown: &Shown) -> Told {
    if shown.is_cpu && clocks(cell, contender).is_none() {
        return Told::Failed("rounds by two clocks, which do not go together".to_owned());
    }
    let spread = cell.spread(contender, shown.figure);
    let spread = match shown.title == PER_CLIENT.title {
        true => spread.map(|spread| per_client(record, cell, contender, spread?)),
        false => spread,
    };
    match spread {
        Ok(Some(spread)) => Told::Figure(spread),
        Ok(None) => Told::Nothing,
        Err(cause) => Told::Failed(cause),
    }
}

/// Bytes per client, from megabytes less the same pooler's memory without clients. With few clients
/// the figure would mean nothing.
fn per_client(
    record: &Record,
    cell: &CellRecord,
    contender: &str,
    spread: Spread,
) -> Option<Spread> {
    let clients: f64 = cell.row.parse().ok().filter(|clients| *clients >= 100.0)?;
    let mut bare = record.cells_of(&cell.group).filter(|cell| cell.row == "0");
    let bare = bare
        .next()?
        .spread(contender, RESIDENT.figure)
        .ok()??
        .middle;
    let each = |megabytes: f64| (megabytes - bare) * 1024.0 * 1024.0 / clients;
    Some(Spread {
        middle: each(spread.middle),
        least: each(spread.least),
        most: each(spread.most),
        rounds: spread.rounds,
    })
}

/// True if a contender's processor time in a cell is by the scheduler's account. None if some
/// rounds used the account and some the task clock.
fn clocks(cell: &CellRecord, contender: &str) -> Option<bool> {
    let runs = cell.runs.iter().filter(|run| run.contender == contender);
    let figures = runs.filter_map(|run| run.outcome.as_ref().ok());
    let mut accounts = figures.filter_map(|figures| match (figures.cpu, figures.account) {
        (Some(_), _) => Some(false),
        (None, Some(_)) => Some(true),
        (None, None) => None,
    });
    let first = accounts.next().unwrap_or(false);
    accounts.all(|account| account == first).then_some(first)
}

/// The mark of figures by the scheduler's account.
const BY_ACCOUNT: &str = "\u{2020}";

/// A figure with its mark, if any.
fn marked(cell: &CellRecord, contender: &str, shown: &Shown, spread: Spread) -> String {
    let by_account = shown.is_cpu && clocks(cell, contender) == Some(true);
    let mark = if by_account { BY_ACCOUNT } else { "" };
    format!("{}{mark}", number(spread.middle, shown.digits))
}

/// A remark in a table's title.
fn remark(record: &Record, shown: &Shown) -> &'static str {
    let names = || record.contenders.iter();
    let by_account = |cell: &CellRecord| names().any(|name| clocks(cell, name) == Some(true));
    match shown.is_cpu && record.cells.iter().any(by_account) {
        true => {
            "; \u{2020} by the scheduler's account, which is not exact: the kernel refused the task clock"
        }
        false => "",
    }
}

/// The contender with the best figure of a row, except PostgreSQL itself.
fn best<'a>(record: &'a Record, cell: &CellRecord, shown: &Shown) -> Option<&'a str> {
    let poolers = record.contenders.iter().skip(1);
    let figures = poolers.filter_map(|name| match told(record, cell, name, shown) {
        Told::Figure(spread) => Some((name.as_str(), spread.middle)),
        _ => None,
    });
    let order = |a: &(&str, f64), b: &(&str, f64)| a.1.total_cmp(&b.1);
    let best = match shown.most_is_best {
        true => figures.max_by(order),
        false => figures.min_by(order),
    };
    best.map(|(name, _)| name)
}

fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if digits > 0 {
        return text;
    }
    let mut grouped = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The spread over the rounds, in percent of the median.
fn wobble(spread: Spread) -> f64 {
    if spread.middle == 0.0 {
        return 0.0;
    }
    (spread.most - spread.least) / spread.middle * 100.0
}

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

/// Notes about all tables.
fn notes(record: &Record) -> Vec<String> {
    let runs = || record.cells.iter().flat_map(|cell| &cell.runs);
    let mut notes = Vec::new();
    let rounds = runs().map(|run| run.round + 1).max().unwrap_or(0);
    let seconds = record.stamp.get("seconds of a run");
    let each = seconds.map_or(String::new(), |seconds| format!(" of {seconds} s"));
    notes.push(match rounds {
        1 => format!("length: one round{each}, so there is no spread"),
        _ => format!(
            "length: {rounds} rounds{each}; \u{b1} is half the way from the least round to the most, in \
             percent of the median"
        ),
    });
    // Lengths and the machine are already in the report.
    let builds = record.stamp.iter();
    let builds =
        builds.filter(|(name, _)| !["machine", "seconds of a run"].contains(&name.as_str()));
    notes.extend(builds.map(|(name, value)| match name.as_str() {
        "scale" => format!("scale of pgbench's tables: {value}"),
        _ => format!("build of {name}: {value}"),
    }));
    notes.push(
        "CPU is the task clock of the pooler's whole process tree from the end of logins; where each \
         transaction has a login, that is part of it"
            .to_owned(),
    );
    let figures = runs().filter_map(|run| run.outcome.as_ref().ok());
    let sampled = figures
        .filter_map(|figures| figures.sampled)
        .reduce(f64::min);
    notes.extend(sampled.map(|part| match part >= 1.0 {
        true => "waiting times and fairness are of all transactions".to_owned(),
        false => format!(
            "waiting times are of a sample of {:.0} % of all transactions, also the longest",
            part * 100.0
        ),
    }));
    notes.push(
        "answers were compared before and after each run, in its own shape; in between, errors and \
         clients that were lost fail the cell"
            .to_owned(),
    );
    notes
}

/// The record as Markdown.
pub fn markdown(record: &Record) -> String {
    let mut text = format!("# {}\n\n{}.\n\n", record.design, record.about);
    for (name, value) in &record.facts {
        let _ = writeln!(text, "- {name}: {value}");
    }
    for note in notes(record) {
        let _ = writeln!(text, "- {note}");
    }
    text.push('\n');
    for shown in record.shown() {
        let remark = remark(record, shown);
        let _ = writeln!(text, "## {} ({}{remark})\n", shown.title, shown.better);
        for group in record.groups() {
            let _ = writeln!(text, "**{group}**\n");
            let _ = writeln!(text, "| clients | {} |", record.contenders.join(" | "));
            let _ = writeln!(text, "|---|{}", "---:|".repeat(record.contenders.len()));
            for cell in record.cells_of(group) {
                let best = best(record, cell, shown);
                let line = record.contenders.iter().map(|name| {
                    let is_best = best == Some(name);
                    in_markdown(record, cell, name, shown, is_best)
                });
                let line: Vec<_> = line.collect();
                let _ = writeln!(text, "| {} | {} |", cell.row, line.join(" | "));
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

const STYLE: &str = include_str!("page.css");

/// The record as one self-contained HTML page.
pub fn html(record: &Record) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{design}</title>\n<style>{STYLE}</style>\n<h1>{design}</h1>\n<p>{about}.</p>\n",
        design = escaped(&record.design),
        about = escaped(&record.about),
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
    for group in record.groups() {
        let _ = write!(page, "<section><h2>{}</h2><div class=pair>", escaped(group));
        for shown in record.shown().iter().take(2) {
            page.push_str(&plot(record, group, shown));
        }
        page.push_str("</div>");
        for shown in record.shown() {
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
        escaped(remark(record, shown))
    );
    for cell in record.cells_of(group) {
        let best = best(record, cell, shown);
        let _ = write!(text, "<tr><th>{}", escaped(&cell.row));
        for name in &record.contenders {
            let class = if best == Some(name) {
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

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;
const FLOOR: f64 = 210.0;

/// A plot of a group: its cells, named by row.
fn plot(record: &Record, group: &str, shown: &Shown) -> String {
    let cells = record.cells_of(group).map(|cell| (cell.row.as_str(), cell));
    format!(
        "<figure><figcaption>{} <small>({})</small></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">{}</svg></figure>",
        shown.title,
        shown.better,
        bars(record, &cells.collect::<Vec<_>>(), shown)
    )
}

/// Bars by cell and contender, each with a line from its smallest to its largest round. Each cell
/// has a name; the part after a comma goes on a second line.
fn bars(record: &Record, cells: &[(&str, &CellRecord)], shown: &Shown) -> String {
    let spread = |cell, name| match told(record, cell, name, shown) {
        Told::Figure(spread) => Some(spread),
        _ => None,
    };
    let names = || record.contenders.iter();
    let all = cells
        .iter()
        .flat_map(|(_, cell)| names().filter_map(|name| spread(cell, name)));
    let top = all.map(|spread| spread.most).fold(0.0, f64::max);
    let mut drawn = String::new();
    if top <= 0.0 {
        return drawn;
    }
    let step = tick(top);
    let height = |value: f64| value / top * (FLOOR - 15.0);
    let mut at = 0.0;
    while at <= top {
        let y = FLOOR - height(at);
        let _ = write!(
            drawn,
            "<path class=\"grid\" d=\"M46 {y:.1}H{WIDTH}\"/>\
             <text x=\"42\" y=\"{:.1}\" class=\"axis\">{}</text>",
            y + 4.0,
            number(at, if step < 1.0 { 1 } else { 0 })
        );
        at += step;
    }
    let room = (WIDTH - 50.0) / cells.len() as f64;
    let bar = room * 0.85 / record.contenders.len() as f64;
    for (row, (title, cell)) in cells.iter().enumerate() {
        let left = 50.0 + room * row as f64 + room * 0.07;
        for (index, name) in names().enumerate() {
            let Some(spread) = spread(cell, name) else {
                continue;
            };
            let x = left + bar * index as f64;
            let tall = height(spread.middle);
            let _ = write!(
                drawn,
                "<rect class=\"c{index}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{tall:.1}\"><title>{}, {}: {}</title></rect>\
                 <path class=\"spread\" d=\"M{:.1} {:.1}V{:.1}\"/>",
                FLOOR - tall,
                bar * 0.9,
                escaped(name),
                escaped(title),
                number(spread.middle, shown.digits),
                x + bar * 0.45,
                FLOOR - height(spread.least),
                FLOOR - height(spread.most),
            );
        }
        for (line, part) in title.split(", ").enumerate() {
            let _ = write!(
                drawn,
                "<text class=\"row\" x=\"{:.1}\" y=\"{}\">{}</text>",
                left + room * 0.43,
                226 + 13 * line,
                escaped(part)
            );
        }
    }
    drawn
}

/// One picture for another page: the design's first two figures, for each group without
/// reconnecting, with this many clients. None if there is no such cell.
pub fn overview(record: &Record, clients: &str) -> Option<String> {
    let wanted = |cell: &&CellRecord| cell.row == clients && !cell.group.contains("reconnecting");
    let cells = record.cells.iter().filter(wanted);
    let cells: Vec<_> = cells.map(|cell| (cell.group.as_str(), cell)).collect();
    if cells.is_empty() {
        return None;
    }
    let wide = 2.0 * WIDTH + 40.0;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {:.0}\" role=\"img\">\n\
         <style>svg {{ font: 13px system-ui, sans-serif; }} {STYLE}\
         .paper {{ fill: var(--paper); }}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        HEIGHT + 75.0
    );
    for (index, name) in record.contenders.iter().enumerate() {
        let x = 50 + index * 130;
        let _ = write!(
            picture,
            "<rect class=\"c{index}\" x=\"{x}\" y=\"10\" width=\"12\" height=\"12\"/>\
             <text x=\"{}\" y=\"20\">{}</text>",
            x + 18,
            escaped(name)
        );
    }
    for (at, shown) in record.shown().iter().take(2).enumerate() {
        let _ = write!(
            picture,
            "\n<g transform=\"translate({:.0} 60)\"><text x=\"50\" y=\"-10\">{}, {} clients \
             ({})</text>{}</g>",
            (WIDTH + 40.0) * at as f64,
            shown.title,
            escaped(clients),
            shown.better,
            bars(record, &cells, shown)
        );
    }
    picture.push_str("\n</svg>\n");
    Some(picture)
}

/// A round distance between grid lines.
fn tick(top: f64) -> f64 {
    let rough = top / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter();
    let mut round = round.map(|factor| factor * power);
    round.find(|step| *step >= rough).unwrap_or(rough)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// How a figure differs between two records.
enum Change {
    /// By more than the spread of both.
    Moved,
    /// Different, but with a single round on either side: perhaps by chance.
    Apart,
    /// The figure failed before.
    Mended,
    /// The figure fails now.
    Broke,
}

/// The figures that differ between two records by more than the spread of both, as Markdown.
pub fn against(now: &Record, before: &Record) -> String {
    let mut tables = String::new();
    let (mut moved, mut apart, mut mended, mut broke) = (0, 0, 0, 0);
    for cell in &now.cells {
        let Some(earlier) = before.cell(&cell.key) else {
            continue;
        };
        for name in &now.contenders {
            for shown in now.shown().iter().take(2) {
                let old = told(before, earlier, name, shown);
                let new = told(now, cell, name, shown);
                let Some((change, line)) = changed(&old, &new, shown.digits) else {
                    continue;
                };
                *match change {
                    Change::Moved => &mut moved,
                    Change::Apart => &mut apart,
                    Change::Mended => &mut mended,
                    Change::Broke => &mut broke,
                } += 1;
                let _ = writeln!(
                    tables,
                    "| {}, {} | {name} | {} | {line} |",
                    cell.group, cell.row, shown.title
                );
            }
        }
    }
    if tables.is_empty() {
        return "nothing moved beyond the spread".to_owned();
    }
    let mut text = format!(
        "| cell | contender | figure | before | now | change |\n|---|---|---|---:|---:|---:|\n\
         {tables}\n{moved} figures moved beyond the spread"
    );
    for (count, what) in [
        (broke, "fail now and did not before"),
        (mended, "do not fail now and did before"),
        (
            apart,
            "are apart, but of a single round, which has no spread: this may be chance",
        ),
    ] {
        if count > 0 {
            let _ = write!(text, "\n{count} {what}");
        }
    }
    text
}

/// The change, and the last three columns of its line. None without a change.
fn changed(old: &Told, new: &Told, digits: usize) -> Option<(Change, String)> {
    match (old, new) {
        (Told::Figure(old), Told::Failed(cause)) => {
            let cause = cause.replace('|', "/");
            let line = format!("{} | failed | {cause}", number(old.middle, digits));
            Some((Change::Broke, line))
        }
        (Told::Failed(cause), Told::Figure(new)) => {
            let cause = cause.replace('|', "/");
            let line = format!("failed | {} | was: {cause}", number(new.middle, digits));
            Some((Change::Mended, line))
        }
        (Told::Figure(old), Told::Figure(new)) => {
            // Figures differ if their ranges over the rounds do not overlap.
            if new.least <= old.most && old.least <= new.most {
                return None;
            }
            let by = (new.middle / old.middle - 1.0) * 100.0;
            let line = format!(
                "{} | {} | {by:+.0} %",
                number(old.middle, digits),
                number(new.middle, digits)
            );
            match old.rounds.min(new.rounds) {
                1 => Some((Change::Apart, format!("{line}, single rounds"))),
                _ => Some((Change::Moved, line)),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;

    fn record(tps: &[f64]) -> Record {
        let run = |name: &str, round, tps| Run {
            contender: name.into(),
            round,
            outcome: Ok(Figures {
                tps,
                cpu: Some(20.0),
                ..Figures::default()
            }),
        };
        let mut runs: Vec<_> = tps
            .iter()
            .enumerate()
            .map(|(round, tps)| run("howdah", round, *tps))
            .collect();
        runs.push(run("pgbouncer", 0, 900.0));
        runs.push(Run {
            contender: "odyssey".into(),
            round: 0,
            outcome: Err("it <died>".into()),
        });
        Record {
            design: "matrix".into(),
            contenders: ["postgresql", "howdah", "pgbouncer", "odyssey"]
                .map(String::from)
                .into(),
            cells: vec![CellRecord {
                key: "simple/c1".into(),
                group: "simple".into(),
                row: "1".into(),
                runs,
            }],
            ..Record::default()
        }
    }

    #[test]
    fn the_best_is_marked_and_failures_have_their_reason() {
        let text = markdown(&record(&[1000.0, 1200.0]));
        assert!(
            text.contains("| 1 |  | **1,100** \u{b1}9% | 900 | - |"),
            "{text}"
        );
        assert!(text.contains("- odyssey, simple, 1: it <died>"), "{text}");
    }

    #[test]
    fn a_page_has_plots_and_nothing_unescaped() {
        let page = html(&record(&[1000.0]));
        assert!(page.contains("<svg") && page.contains("it &lt;died&gt;"));
        assert!(!page.contains("<died>"));
    }

    #[test]
    fn a_picture_shows_those_who_keep_their_connections() {
        let picture = overview(&record(&[1000.0]), "1").unwrap();
        assert!(picture.contains("Transactions per second") && picture.contains(">howdah</text>"));
        assert!(overview(&record(&[1000.0]), "40").is_none());
    }

    #[test]
    fn only_what_is_beyond_the_spread_has_moved() {
        let text = against(&record(&[1000.0, 1200.0]), &record(&[1100.0]));
        assert_eq!(text, "nothing moved beyond the spread");
        let text = against(&record(&[1000.0, 1200.0]), &record(&[2000.0, 2200.0]));
        assert!(text.contains("1 figures moved"), "{text}");
        assert!(text.contains("-48 %"), "{text}");
    }

    #[test]
    fn single_rounds_never_move_beyond_the_spread() {
        let text = against(&record(&[1000.0]), &record(&[2000.0, 2200.0]));
        assert!(text.contains("0 figures moved beyond"), "{text}");
        assert!(
            text.contains("1 are apart, but of a single round"),
            "{text}"
        );
    }

    #[test]
    fn what_fails_now_is_told() {
        let (fine, mut broken) = (record(&[1000.0, 1100.0]), record(&[1000.0, 1100.0]));
        broken.cells[0].runs[0].outcome = Err("it hangs".into());
        let text = against(&broken, &fine);
        assert!(text.contains("| 1,050 | failed | it hangs |"), "{text}");
        assert!(text.contains("2 fail now"), "{text}");
        let text = against(&fine, &broken);
        assert!(
            text.contains("| failed | 1,050 | was: it hangs |"),
            "{text}"
        );
    }

    #[test]
    fn a_median_is_never_of_two_clocks() {
        let mut record = record(&[1000.0, 1100.0]);
        assert!(!markdown(&record).contains(BY_ACCOUNT));
        let account = |figures: &mut Figures| {
            figures.account = figures.cpu.take();
        };
        let runs = &mut record.cells[0].runs;
        account(runs[0].outcome.as_mut().unwrap());
        let cell = &record.cells[0];
        assert!(matches!(
            told(&record, cell, "howdah", &CPU),
            Told::Failed(_)
        ));
        assert!(matches!(
            told(&record, cell, "howdah", &TPS),
            Told::Figure(_)
        ));
        account(record.cells[0].runs[1].outcome.as_mut().unwrap());
        let text = markdown(&record);
        assert!(text.contains("20.0\u{2020}"), "{text}");
        assert!(
            text.contains("less is better; \u{2020} by the scheduler's"),
            "{text}"
        );
        assert!(!text.contains("more is better; \u{2020}"), "{text}");
    }

    #[test]
    fn memory_per_client_is_beyond_that_without_clients() {
        let cell = |row: &str, resident| CellRecord {
            key: row.into(),
            group: "idle".into(),
            row: row.into(),
            runs: vec![Run {
                contender: "howdah".into(),
                round: 0,
                outcome: Ok(Figures {
                    resident: Some(resident),
                    ..Figures::default()
                }),
            }],
        };
        let record = Record {
            design: "memory".into(),
            contenders: vec!["howdah".into()],
            cells: vec![cell("0", 1000), cell("1", 1010), cell("1000", 3000)],
            ..Record::default()
        };
        let told = |cell| told(&record, cell, "howdah", &PER_CLIENT);
        assert!(
            matches!(told(&record.cells[2]), Told::Figure(each) if each.middle.round() == 2048.0)
        );
        assert!(matches!(told(&record.cells[1]), Told::Nothing));
    }

    #[test]
    fn numbers_are_read_by_people() {
        assert_eq!(number(1_234_567.4, 0), "1,234,567");
        assert_eq!(number(12.34, 1), "12.3");
        assert_eq!(tick(100.0), 50.0);
        assert_eq!(tick(3.0), 1.0);
    }
}
