//! Reads lists of elliptic curves (groups of the key exchange) as PgBouncer and OpenSSL do, for either
//! library.

use openssl::ssl::{SslContextBuilder, SslMethod};

/// A list of curves as the library gets it.
pub(super) struct CurvesInForce {
    /// The list for the library; `None` for its default.
    pub(super) list: Option<String>,
    /// Words that the library does not know. If the library knows none of the words, they stay in
    /// the list, and the library refuses it.
    pub(super) unknown: Vec<String>,
}

/// The list in force for a setting's text.
pub(super) fn in_force(written: &str) -> CurvesInForce {
    if matches!(written, "" | "auto" | "none") {
        let (list, unknown) = (None, Vec::new());
        return CurvesInForce { list, unknown };
    }
    let words = written.split([':', ',']).map(str::trim);
    let words = words
        .filter(|word| !word.is_empty())
        .map(|word| match word {
            // The same curve: OpenSSL knows this name, AWS-LC does not.
            "secp256r1" => "P-256",
            word => word,
        });
    let (known, unknown): (Vec<_>, Vec<_>) =
        words.map(str::to_owned).partition(|word| is_known(word));
    if known.is_empty() {
        CurvesInForce {
            list: Some(unknown.join(":")),
            unknown: Vec::new(),
        }
    } else {
        CurvesInForce {
            list: Some(known.join(":")),
            unknown,
        }
    }
}

fn is_known(word: &str) -> bool {
    let builder = SslContextBuilder::new(SslMethod::tls());
    builder.is_ok_and(|mut builder| builder.set_groups_list(word).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_that_the_library_lacks_are_left_out_and_told() {
        let told = |written: &str| {
            let CurvesInForce { list, unknown } = in_force(written);
            (list.unwrap_or_default(), unknown.join(" "))
        };
        let of = |list: &str, unknown: &str| (list.to_owned(), unknown.to_owned());
        for default in ["", "auto", "none"] {
            assert_eq!(told(default), of("", ""), "{default}");
        }
        assert_eq!(told("X25519, secp256r1"), of("X25519:P-256", ""));
        assert_eq!(told("nonsense:P-384"), of("P-384", "nonsense"));
        assert_eq!(told("nonsense"), of("nonsense", ""));
    }
}
