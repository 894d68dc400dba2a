//! Settings in variables of the environment: `HOWDAH_POOL_MODE` is `pool_mode`, and
//! `HOWDAH_HTTP_TOKEN_FILE` names a file with `http_token`. Without a file, `HOWDAH_DATABASE_URL` has a
//! database, or else the variables of a usual image of PgBouncer have them (`image.rs`).

use std::collections::HashMap;

use super::near::nearest;
use super::resolve::secret_of;
use super::surroundings::Surroundings;
use super::toml_value::seconds;
use super::value::Kind;
use super::written::{Path, WrittenLine};
use super::{Mistake, Place, Scope, Setting, image, table, url};

/// How the names of the variables begin.
const PREFIX: &str = "HOWDAH_";

/// The variables that have databases.
const URLS: [&str; 2] = ["DATABASE_URL", "DATABASE_URLS"];

/// The settings that count without a file, where no variable has them.
const WITHOUT_FILE: [(&str, &str); 3] = [
    ("listen_addr", "*"),
    ("auth_type", "scram-sha-256"),
    ("unix_socket_dir", ""),
];

/// The option of the command line that stands for a file.
pub(super) const OPTION: &str = "--environment";

/// Reads the global settings among the variables.
pub(super) fn settings(
    surroundings: &mut dyn Surroundings,
    has_file: bool,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    let mut given: HashMap<&str, String> = HashMap::new();
    let mut lines = Vec::new();
    for (name, value) in surroundings.variables(PREFIX) {
        let place = Place::variable(&name);
        let rest = &name[PREFIX.len()..];
        if is_of_kubernetes(rest, &value) {
            continue;
        }
        let is_url = URLS.contains(&rest.strip_suffix("_FILE").unwrap_or(rest));
        if is_url {
            if has_file {
                let remedy = format!(
                    "start with {OPTION} instead of a file, or write the database into the file"
                );
                mistakes.push(Mistake::new(
                    Some(&place),
                    "a database beside a file",
                    remedy,
                ));
            }
            continue;
        }
        let Some((setting, in_file)) = setting(rest) else {
            let text = format!("unknown variable {name}");
            mistakes.push(Mistake::new(Some(&place), text, remedy(rest)));
            continue;
        };
        if let Some(other) = given.insert(setting.name, name.clone()) {
            let text = format!("{} is set by {other}, too", setting.name);
            mistakes.push(Mistake::new(Some(&place), text, "take one of the two away"));
            continue;
        }
        match value_of(surroundings, &value, in_file) {
            Ok(value) => lines.push(line(
                &[Scope::Global.section()],
                setting.name,
                native(setting, value),
                place,
            )),
            Err(why) => mistakes.push(unread(&place, &value, &why)),
        }
    }
    lines
}

/// Reads the databases among the variables, with the settings that count without a file.
pub(super) fn databases(
    surroundings: &mut dyn Surroundings,
    mistakes: &mut Vec<Mistake>,
) -> Vec<WrittenLine> {
    if surroundings.variables("HOWDAH_DATABASE_URL").is_empty()
        && let Some(lines) = image::lines(surroundings, mistakes)
    {
        return lines;
    }
    let main: Path = [Scope::Global.section().to_owned()].into();
    let mut lines = vec![WrittenLine::head(main, Place::variable(OPTION))];
    lines.extend(WITHOUT_FILE.map(|(name, value)| {
        line(
            &[Scope::Global.section()],
            name,
            value.into(),
            Place::variable(OPTION),
        )
    }));
    let mut places: HashMap<String, Place> = HashMap::new();
    let mut users = HashMap::new();
    let mut given: HashMap<String, String> = HashMap::new();
    for (name, value) in surroundings.variables(&format!("{PREFIX}DATABASE_URL")) {
        let place = Place::variable(&name);
        let rest = &name[PREFIX.len()..];
        let in_file = rest.ends_with("_FILE");
        let variable = rest.strip_suffix("_FILE").unwrap_or(rest);
        if !URLS.contains(&variable) {
            continue;
        }
        if let Some(other) = given.insert(variable.into(), name.clone()) {
            let text = format!("{other} is set, too");
            mistakes.push(Mistake::new(Some(&place), text, "take one of the two away"));
            continue;
        }
        let urls = match value_of(surroundings, &value, in_file) {
            Ok(urls) => urls,
            Err(why) => {
                mistakes.push(unread(&place, &value, &why));
                continue;
            }
        };
        let urls = if rest.starts_with("DATABASE_URLS") {
            url::several(&urls)
        } else {
            vec![urls.trim()]
        };
        for url in urls {
            match database(url, &place, &mut users) {
                Err(why) => mistakes.push(Mistake::new(Some(&place), "a URL can't be used", why)),
                Ok((name, of)) => match places.insert(name.clone(), place.clone()) {
                    None => lines.extend(of),
                    Some(first) => {
                        let text = format!("two URLs have the database \"{name}\" ({first})");
                        mistakes.push(Mistake::new(Some(&place), text, "leave one of them out"));
                    }
                },
            }
        }
    }
    if places.is_empty() && mistakes.is_empty() {
        let text = "there is no database in the environment";
        let remedy = "set HOWDAH_DATABASE_URL=postgresql://USER:PASSWORD@HOST/DATABASE";
        mistakes.push(Mistake::new(None, text, remedy));
    }
    lines
}

/// The entry of a URL's database. Its user is the login of clients, and of servers, and nobody else may
/// use the database.
fn database(
    text: &str,
    place: &Place,
    users: &mut HashMap<String, bool>,
) -> Result<(String, Vec<WrittenLine>), String> {
    let mut pairs = url::parse(text)?;
    let mut take = |key: &str| {
        let at = pairs.iter().position(|(name, _)| name == key)?;
        Some(pairs.remove(at).1)
    };
    let user =
        take("user").ok_or("it has no user: write postgresql://USER:PASSWORD@HOST/DATABASE")?;
    let password = take("password");
    let is_first = !users.contains_key(&user);
    // The user of a URL without a password would prove itself with the one of another URL.
    let has_password = *users.entry(user.clone()).or_insert(password.is_some());
    if has_password != password.is_some() {
        return Err("its user has a password in one URL, and none in another".into());
    }
    let name = take("dbname").unwrap_or_else(|| user.clone());
    let section = Scope::Database.section();
    let head = [section.to_owned(), name.clone()];
    let mut lines = vec![WrittenLine {
        is_native: true,
        ..WrittenLine::head(head.into(), place.clone())
    }];
    pairs.push(("users_only".into(), "1".into()));
    for (key, value) in pairs {
        lines.push(WrittenLine {
            is_hidden: true,
            ..line(&[section, &name], &key, value, place.clone())
        });
    }
    let path = [section, &name, "users", &user];
    let head = path.map(String::from);
    lines.push(WrittenLine {
        is_native: true,
        ..WrittenLine::head(head.into(), place.clone())
    });
    if let Some(password) = password {
        // The user may log in to the console, too: with the password of the first URL.
        let of_user = [Scope::User.section(), &user];
        if is_first {
            lines.push(line(&of_user, "password", password.clone(), place.clone()));
        }
        lines.push(line(&path, "password", password, place.clone()));
    }
    Ok((name, lines))
}

fn line(path: &[&str], key: &str, text: String, place: Place) -> WrittenLine {
    let path = path.iter().map(|part| part.to_string()).collect();
    WrittenLine {
        key: Some(key.into()),
        text,
        is_native: true,
        ..WrittenLine::head(path, place)
    }
}

/// The setting that a variable names, and whether the variable names a file with the value.
fn setting(rest: &str) -> Option<(&'static Setting, bool)> {
    let name = rest.to_ascii_lowercase();
    if name.to_ascii_uppercase() != rest {
        return None;
    }
    let own = table::find(Scope::Global, &name).map(|setting| (setting, false));
    own.or_else(|| {
        let setting = table::find(Scope::Global, name.strip_suffix("_file")?)?;
        Some((setting, true))
    })
}

/// The text of a value: true, false and units of times are read as in TOML.
fn native(setting: &Setting, value: String) -> String {
    match (setting.kind, value.as_str()) {
        (Kind::Flag, "true") => "1".into(),
        (Kind::Flag, "false") => "0".into(),
        (Kind::Seconds, text) => seconds(text).unwrap_or(value),
        _ => value,
    }
}

fn value_of(
    surroundings: &mut dyn Surroundings,
    value: &str,
    in_file: bool,
) -> Result<String, String> {
    if !in_file {
        return Ok(value.into());
    }
    secret_of(&surroundings.secret(value)?)
}

pub(super) fn unread(place: &Place, path: &str, why: &str) -> Mistake {
    // The value may be the secret itself.
    let begins = ["/", "./", "../"]
        .iter()
        .any(|begin| path.starts_with(begin));
    let is_path = begins && !path.ends_with('=');
    let shown = if is_path {
        format!("\"{path}\"")
    } else {
        "what it names".into()
    };
    let text = format!("could not read {shown}: {why}");
    Mistake::new(
        Some(place),
        text,
        "name a file that has the value, and that Howdah may read",
    )
}

fn remedy(rest: &str) -> String {
    let names = table::in_scope(Scope::Global).map(|setting| setting.name.to_ascii_uppercase());
    let names: Vec<String> = names.chain(URLS.map(String::from)).collect();
    let near = nearest(rest, names.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |name| {
        format!("; did you mean {PREFIX}{name}?")
    });
    format!("there is no such setting{near}")
}

/// Whether Kubernetes has made a variable, for a Service called howdah or howdah-something.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let is_service = |name: &str| {
        let ends = ["SERVICE_HOST", "SERVICE_PORT"];
        ends.iter()
            .any(|end| name == *end || name.ends_with(&format!("_{end}")))
    };
    let named_port = rest.split("SERVICE_PORT_").count() == 2 && {
        let before = rest.split("SERVICE_PORT_").next().unwrap_or_default();
        before.is_empty() || before.ends_with('_')
    };
    let of_port = || {
        // ..._PORT_6432_TCP, with _PROTO, _PORT or _ADDR behind it.
        let end = ["_PROTO", "_PORT", "_ADDR"]
            .iter()
            .find_map(|end| rest.strip_suffix(end));
        let name = end.unwrap_or(rest);
        let name = name
            .strip_suffix("_TCP")
            .or_else(|| name.strip_suffix("_UDP"));
        let (before, digits) = name.and_then(|name| name.rsplit_once('_'))?;
        let is_port = before == "PORT" || before.ends_with("_PORT");
        (is_port && digits.bytes().all(|b| b.is_ascii_digit())).then_some(())
    };
    let is_port = rest == "PORT" || rest.ends_with("_PORT");
    let is_link = is_port && (value.starts_with("tcp://") || value.starts_with("udp://"));
    is_service(rest) || named_port || is_link || of_port().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_makes() {
        for (rest, value, is_its) in [
            ("SERVICE_HOST", "10.0.0.1", true),
            ("SERVICE_PORT", "6432", true),
            ("SERVICE_PORT_PGSQL", "6432", true),
            ("PORT", "tcp://10.0.0.1:6432", true),
            ("PORT_6432_TCP", "tcp://10.0.0.1:6432", true),
            ("PORT_6432_TCP_ADDR", "10.0.0.1", true),
            ("PORT_6432_TCP_PORT", "6432", true),
            ("PORT_6432_TCP_PROTO", "tcp", true),
            ("READ_ONLY_SERVICE_HOST", "10.0.0.1", true),
            ("LISTEN_PORT", "tcp://10.0.0.1:6432", true),
            ("LISTEN_PORT", "6432", false),
            ("LISTEN_PORT_6432_TCP_ADDR", "10.0.0.1", true),
            ("PORT", "6432", false),
            ("HTTP_LISTEN_PORT", "9127", false),
            ("POOL_MODE", "session", false),
            ("MYSERVICE_HOST", "x", false),
        ] {
            assert_eq!(is_of_kubernetes(rest, value), is_its, "{rest}={value}");
        }
    }
}
