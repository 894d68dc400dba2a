//! Lists of ciphers as PgBouncer and OpenSSL read them, for whichever library is in use.

/// What becomes of a list.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct InForce {
    /// For the library; none for its default.
    pub(super) list: Option<String>,
    /// Words that only OpenSSL knows.
    pub(super) unknown: Vec<String>,
}

/// What AWS-LC knows at the beginning of a list only.
const WHOLE: [&str; 4] = ["ALL", "DEFAULT", "FIPS", "HIGH"];

/// What is in force where this is written.
pub(super) fn in_force(written: &str) -> InForce {
    let list = match written.trim().to_ascii_lowercase().as_str() {
        "" | "default" | "secure" | "fast" | "normal" => None,
        "all" => Some("ALL:!aNULL:!eNULL".to_owned()),
        _ => return translated(written),
    };
    let unknown = Vec::new();
    InForce { list, unknown }
}

#[cfg(not(feature = "aws-lc"))]
fn translated(written: &str) -> InForce {
    let _ = rearranged;
    InForce {
        list: Some(written.to_owned()),
        unknown: Vec::new(),
    }
}

#[cfg(feature = "aws-lc")]
fn translated(written: &str) -> InForce {
    rearranged(written)
}

/// AWS-LC has no levels of security and no profiles of the system, and knows words for many ciphers at
/// once at the beginning only.
fn rearranged(written: &str) -> InForce {
    let (mut words, mut unknown) = (Vec::new(), Vec::new());
    for word in written.split([':', ',', ' ', ';']) {
        let (word, level) = match word.find("@SECLEVEL=") {
            Some(at) => word.split_at(at),
            None => (word, ""),
        };
        if !level.is_empty() {
            unknown.push(level.to_owned());
        }
        if word.starts_with("PROFILE=") {
            unknown.push(word.to_owned());
        } else if !word.is_empty() {
            words.push(word);
        }
    }
    if let Some(at) = words.iter().position(|word| WHOLE.contains(word)) {
        words[..=at].rotate_right(1);
    } else if words
        .iter()
        .all(|word| word.starts_with(['!', '-', '+', '@']))
        && !words.is_empty()
    {
        words.insert(0, "DEFAULT");
    }
    let list = (!words.is_empty()).then(|| words.join(":"));
    InForce { list, unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(written: &str) -> (String, String) {
        let InForce { list, unknown } = rearranged(written);
        (list.unwrap_or_default(), unknown.join(" "))
    }

    #[test]
    fn pgbouncers_words_are_in_any_case() {
        for word in ["Secure", "normal", "FAST", "default", ""] {
            let InForce { list, unknown } = in_force(word);
            assert_eq!((list, unknown.len()), (None, 0), "{word}");
        }
        let list = in_force("All").list;
        assert_eq!(list.as_deref(), Some("ALL:!aNULL:!eNULL"));
    }

    #[test]
    fn what_only_openssl_knows_is_left_out_and_told() {
        let of = |list: &str, unknown: &str| (list.to_owned(), unknown.to_owned());
        assert_eq!(told("DEFAULT@SECLEVEL=1"), of("DEFAULT", "@SECLEVEL=1"));
        assert_eq!(
            told("HIGH:!aNULL:@SECLEVEL=2"),
            of("HIGH:!aNULL", "@SECLEVEL=2")
        );
        assert_eq!(told("PROFILE=SYSTEM"), of("", "PROFILE=SYSTEM"));
        assert_eq!(told("!aNULL:HIGH:!MD5"), of("HIGH:!aNULL:!MD5", ""));
        assert_eq!(
            told("!aNULL:PROFILE=SYSTEM"),
            of("DEFAULT:!aNULL", "PROFILE=SYSTEM")
        );
        assert_eq!(
            told("ECDHE-RSA-AES256-GCM-SHA384"),
            of("ECDHE-RSA-AES256-GCM-SHA384", "")
        );
    }
}
