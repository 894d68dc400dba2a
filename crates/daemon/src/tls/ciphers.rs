//! Reads lists of ciphers as PgBouncer and OpenSSL do, for either library.

use openssl::ssl::{SslContextBuilder, SslMethod};

/// A cipher list as the library gets it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct CiphersInForce {
    /// The list for the library; `None` for its default.
    pub(super) list: Option<String>,
    /// Words that the library does not know.
    pub(super) unknown: Vec<String>,
}

/// Words that AWS-LC accepts only at the beginning of a list.
#[cfg(any(test, feature = "aws-lc"))]
const WHOLE: [&str; 4] = ["ALL", "DEFAULT", "FIPS", "HIGH"];

/// The list in force for a setting's text.
pub(super) fn in_force(written: &str) -> CiphersInForce {
    let list = match written.trim().to_ascii_lowercase().as_str() {
        "" | "default" | "secure" | "fast" | "normal" => None,
        "all" => Some("ALL:!aNULL:!eNULL".to_owned()),
        _ => return translated(written),
    };
    let unknown = Vec::new();
    CiphersInForce { list, unknown }
}

/// OpenSSL ignores words that it does not know. AWS-LC ignores more words, and misreads some.
fn translated(written: &str) -> CiphersInForce {
    #[cfg(feature = "aws-lc")]
    let given = rearranged(written);
    #[cfg(not(feature = "aws-lc"))]
    let given = CiphersInForce {
        list: Some(written.to_owned()),
        unknown: Vec::new(),
    };
    without_empty(given, names_some)
}

/// True if a word names at least one cipher of the library.
fn names_some(word: &str) -> bool {
    let builder = SslContextBuilder::new(SslMethod::tls());
    builder.is_ok_and(|mut builder| builder.set_cipher_list(word).is_ok())
}

/// Moves words without a cipher to `unknown`. If no other word is left, the list stays, and the
/// library refuses it.
fn without_empty(given: CiphersInForce, names_some: impl Fn(&str) -> bool) -> CiphersInForce {
    let CiphersInForce { list, mut unknown } = given;
    let Some(list) = list else {
        return CiphersInForce { list, unknown };
    };
    let words = list.split([':', ',', ' ', ';']);
    let adds = |word: &&str| !word.is_empty() && !word.starts_with(['!', '-', '+', '@']);
    let empty: Vec<_> = words
        .clone()
        .filter(adds)
        .filter(|word| !names_some(word.split('@').next().unwrap_or(word)))
        .collect();
    if empty.is_empty() || words.clone().filter(adds).count() == empty.len() {
        let list = Some(list);
        return CiphersInForce { list, unknown };
    }
    unknown.extend(empty.iter().map(|&word| word.to_owned()));
    let left: Vec<_> = words.filter(|word| !empty.contains(word)).collect();
    let list = Some(left.join(":"));
    CiphersInForce { list, unknown }
}

/// AWS-LC has no security levels and no system profiles. It accepts words for all ciphers only at
/// the beginning and on their own: it would read `HIGH+ECDHE` as `HIGH` and `+ECDHE`.
#[cfg(any(test, feature = "aws-lc"))]
fn rearranged(written: &str) -> CiphersInForce {
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
            words.push(narrowed(word));
        }
    }
    if let Some(at) = words.iter().position(|word| WHOLE.contains(&word.as_str())) {
        words[..=at].rotate_right(1);
    } else if words
        .iter()
        .all(|word| word.starts_with(['!', '-', '+', '@']))
        && !words.is_empty()
    {
        words.insert(0, "DEFAULT".into());
    }
    let list = (!words.is_empty()).then(|| words.join(":"));
    CiphersInForce { list, unknown }
}

/// `HIGH+ECDHE` becomes `ECDHE`: all ciphers of AWS-LC are HIGH, so only the other property counts.
#[cfg(any(test, feature = "aws-lc"))]
fn narrowed(word: &str) -> String {
    let at = word.find(|c| !"!-+@".contains(c)).unwrap_or(0);
    let (sign, parts) = word.split_at(at);
    let all = parts.split('+');
    let narrow: Vec<_> = all.filter(|part| !WHOLE.contains(part)).collect();
    if narrow.is_empty() {
        format!("{sign}{}", parts.split('+').next().unwrap_or(parts))
    } else {
        format!("{sign}{}", narrow.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(written: &str) -> (String, String) {
        let CiphersInForce { list, unknown } = rearranged(written);
        (list.unwrap_or_default(), unknown.join(" "))
    }

    #[test]
    fn pgbouncers_words_are_in_any_case() {
        for word in ["Secure", "normal", "FAST", "default", ""] {
            let CiphersInForce { list, unknown } = in_force(word);
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
        assert_eq!(told("HIGH+ECDHE:!MD5"), of("ECDHE:!MD5", ""));
        assert_eq!(told("ECDHE+HIGH:ALL+HIGH"), of("ALL:ECDHE", ""));
    }

    #[test]
    fn words_that_name_no_cipher_are_left_out_and_told() {
        let known = |word: &str| word.starts_with("ECDHE");
        let told = |list: &str| {
            let (list, unknown) = (Some(list.to_owned()), Vec::new());
            let CiphersInForce { list, unknown } =
                without_empty(CiphersInForce { list, unknown }, known);
            (list.unwrap_or_default(), unknown.join(" "))
        };
        let of = |list: &str, unknown: &str| (list.to_owned(), unknown.to_owned());
        assert_eq!(told("ECDHE:!CAMELLIA"), of("ECDHE:!CAMELLIA", ""));
        assert_eq!(
            told("ECDHE-X:EDH+AESGCM:MEDIUM:!MD5"),
            of("ECDHE-X:!MD5", "EDH+AESGCM MEDIUM")
        );
        assert_eq!(told("NONSENSE:!MD5"), of("NONSENSE:!MD5", ""));
        assert!(names_some("ECDHE-RSA-AES256-GCM-SHA384") && !names_some("NONSENSE"));
    }
}
