//! A record's figures as bars.

use std::fmt::Write as _;

use crate::figure::{Shown, Told, number, remark, told};
use crate::page::{STYLE, escaped};
use crate::record::{CellRecord, Record};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;
const FLOOR: f64 = 210.0;

/// A plot of a group: its cells, named by row.
pub fn plot(record: &Record, group: &str, shown: &Shown) -> String {
    let titles: Vec<_> = record.cells_of(group).map(CellRecord::title).collect();
    let titles = titles.iter().map(|title| title.as_str());
    let cells = titles.zip(record.cells_of(group));
    format!(
        "<figure><figcaption>{} <small>({}{})</small></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">{}</svg></figure>",
        shown.title,
        shown.better,
        escaped(&remark(record, shown)),
        bars(record, &cells.collect::<Vec<_>>(), shown)
    )
}

/// Bars by cell and contender, each with a line from its smallest to its largest round. Each cell
/// has a name; the part after a comma or colon goes on a second line.
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
        for (line, part) in title.split([',', ':']).enumerate() {
            let _ = write!(
                drawn,
                "<text class=\"row\" x=\"{:.1}\" y=\"{}\">{}</text>",
                left + room * 0.43,
                226 + 13 * line,
                escaped(part.trim())
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
             ({}{})</text>{}</g>",
            (WIDTH + 40.0) * at as f64,
            shown.title,
            escaped(clients),
            shown.better,
            escaped(&remark(record, shown)),
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
#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::sample;

    #[test]
    fn a_picture_shows_those_who_keep_their_connections() {
        let picture = overview(&sample(&[1000.0]), "1").unwrap();
        assert!(picture.contains("Transactions per second") && picture.contains(">howdah</text>"));
        assert!(overview(&sample(&[1000.0]), "40").is_none());
    }

    #[test]
    fn grid_lines_are_at_round_numbers() {
        assert_eq!(tick(100.0), 50.0);
        assert_eq!(tick(3.0), 1.0);
    }
}
