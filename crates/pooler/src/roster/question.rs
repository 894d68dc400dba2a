//! The question of a check, and its answer.

use super::fact::HostReport;

/// Asks a host for its role, its position, and what it is a copy of. A primary's timeline is in the
/// name of its WAL file: `pg_control_checkpoint` has the old one for minutes after a promotion. A
/// standby's is the greatest that it knows of.
pub const QUESTION: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
    pg_catalog.int8(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) \
    OPERATOR(pg_catalog.*) 1000000), \
    (SELECT system_identifier FROM pg_catalog.pg_control_system()), \
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN GREATEST(\
    (SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver), \
    (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()), \
    (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery())) \
    ELSE ('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(\
    pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int4 END, \
    pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() \
    THEN pg_catalog.pg_last_wal_replay_lsn() \
    ELSE pg_catalog.pg_current_wal_insert_lsn() END, '0/0'), \
    CASE WHEN NOT pg_catalog.pg_is_in_recovery() \
    THEN pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), '0/0') END, \
    pg_catalog.current_setting('default_transaction_read_only')";

/// The part of the question that every user may ask, and that managed services answer, too.
pub const PLAIN_QUESTION: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
    pg_catalog.int8(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) \
    OPERATOR(pg_catalog.*) 1000000), NULL, NULL, NULL, NULL, \
    pg_catalog.current_setting('default_transaction_read_only')";

/// Reads the row that answers a question. `None` if the row is not such an answer. What is NULL or
/// can't be read is unknown, but for the role.
pub fn read_answer(row: &[u8]) -> Option<HostReport> {
    let [
        in_recovery,
        started,
        system,
        timeline,
        lsn,
        flushed,
        read_only,
    ] = columns(row)?;
    fn number<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
        text?.parse().ok()
    }
    Some(HostReport {
        in_recovery: match in_recovery? {
            "t" => true,
            "f" => false,
            _ => return None,
        },
        started: started.map(str::to_owned),
        system: number(system),
        timeline: number(timeline).filter(|timeline| *timeline > 0),
        lsn: number(lsn),
        flushed: number(flushed),
        read_only: read_only == Some("on"),
    })
}

/// The columns of a DataRow, as text. `None` if there are not so many, or one is no text.
pub fn columns<const COLUMNS: usize>(row: &[u8]) -> Option<[Option<&str>; COLUMNS]> {
    let mut columns = [None; COLUMNS];
    for (column, value) in columns.iter_mut().zip(values::<COLUMNS>(row)?) {
        *column = match value {
            Some(value) => Some(std::str::from_utf8(value).ok()?),
            None => None,
        };
    }
    Some(columns)
}

/// The columns of a DataRow. `None` if there are not so many.
pub fn values<const COLUMNS: usize>(row: &[u8]) -> Option<[Option<&[u8]>; COLUMNS]> {
    let mut values = [None; COLUMNS];
    let (count, mut rest) = row.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(*count)) != COLUMNS {
        return None;
    }
    for column in &mut values {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // NULL has the length -1.
        if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
            let (value, after) = rest.split_at_checked(length)?;
            *column = Some(value);
            rest = after;
        }
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<u8> {
        let mut row = (columns.len() as u16).to_be_bytes().to_vec();
        for column in columns {
            let length = column.map_or(-1, |value| value.len() as i32);
            row.extend_from_slice(&length.to_be_bytes());
            row.extend_from_slice(column.unwrap_or_default().as_bytes());
        }
        row
    }

    #[test]
    fn an_answer_is_read() {
        let whole = [
            Some("f"),
            Some("2026-11-27 06:00:00+00"),
            Some("7571234567890123456"),
            Some("3"),
            Some("50331648"),
            Some("50331640"),
            Some("off"),
        ];
        let report = read_answer(&row(&whole)).unwrap();
        assert_eq!((report.in_recovery, report.timeline), (false, Some(3)));
        assert_eq!(report.system, Some(7_571_234_567_890_123_456));
        assert_eq!((report.lsn, report.read_only), (Some(50_331_648), false));
        assert_eq!(report.flushed, Some(50_331_640));
        let hidden = [Some("t"), None, None, None, None, None, Some("on")];
        let report = read_answer(&row(&hidden)).unwrap();
        assert_eq!(
            report,
            HostReport {
                in_recovery: true,
                read_only: true,
                ..HostReport::default()
            }
        );
    }

    #[test]
    fn other_rows_are_no_answer() {
        for columns in [
            &[None; 7][..],
            &[Some("true"), None, None, None, None, None, None],
            &[Some("t"); 6],
            &[Some("t"); 8],
            &[],
        ] {
            assert_eq!(read_answer(&row(columns)), None, "{columns:?}");
        }
        let whole = row(&[Some("t"); 6]);
        for end in 0..whole.len() {
            assert_eq!(read_answer(&whole[..end]), None);
        }
        assert_eq!(read_answer(&[whole, vec![0]].concat()), None);
    }
}
