//! Where AWS tells credentials: STS, the endpoints of ECS and EKS, and the metadata service of EC2.

use std::fs::File;
use std::io::Read;

use howdah_pooler::auth::aws::percent;
use howdah_pooler::auth::secret::{SecretBytes, wipe};
use howdah_pooler::sources::SourceAnswer;

use super::aws::{answer, region, variable};
use super::file::LONGEST;
use crate::https::{HttpsRequest, fetch};
use crate::reload::now;

/// The version of STS's interface.
const STS_VERSION: &str = "2011-06-15";
/// How long a session with the metadata service lasts, in seconds.
const IMDS_SECONDS: &str = "300";

/// Looks for credentials where they are asked for. `trust` is the file of authorities for https.
///
/// # Errors
/// Why there are none.
pub async fn credentials(trust: &str) -> Result<SourceAnswer, String> {
    if let Some(file) = variable("AWS_WEB_IDENTITY_TOKEN_FILE") {
        let role = variable("AWS_ROLE_ARN").ok_or("AWS_ROLE_ARN is not set")?;
        return by_web_identity(&file, &role, trust).await;
    }
    if let Some(address) = container() {
        return by_container(&address, trust).await;
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|word| word == "true") {
        return Err("no credentials: the environment has none, and names no role".into());
    }
    by_machine(trust).await
}

/// The role of a pod, by a token of its cluster.
async fn by_web_identity(file: &str, role: &str, trust: &str) -> Result<SourceAnswer, String> {
    let mut token = read(file).await?;
    let region = region().ok_or("AWS_REGION is not set, which names STS")?;
    let endpoint = variable("AWS_ENDPOINT_URL_STS").or_else(|| variable("AWS_ENDPOINT_URL"));
    let end = if region.starts_with("cn-") { ".cn" } else { "" };
    let endpoint = endpoint.unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com{end}"));
    let name = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "howdah".into());
    let body = format!(
        "Action=AssumeRoleWithWebIdentity&Version={STS_VERSION}&RoleArn={}&RoleSessionName={}&\
         WebIdentityToken={}",
        percent(role),
        percent(&name),
        percent(&token)
    );
    wipe(&mut token);
    let address = format!("{}/", endpoint.trim_end_matches('/'));
    let request = HttpsRequest {
        method: hyper::Method::POST,
        headers: vec![("content-type", "application/x-www-form-urlencoded".into())],
        body,
        ..HttpsRequest::get(&address)
    };
    let text = fetch(request, trust).await?;
    of_xml(&String::from_utf8_lossy(&text), now())
        .ok_or_else(|| "STS answers without credentials".into())
}

/// The credentials in an answer of STS.
fn of_xml(text: &str, now: i64) -> Option<SourceAnswer> {
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(value.to_owned())
    };
    let end: jiff::Timestamp = value("Expiration")?.parse().ok()?;
    let session = value("SessionToken");
    let (id, secret) = (value("AccessKeyId")?, value("SecretAccessKey")?);
    Some(answer(id, secret, session, Some(end.as_second() - now)))
}

/// Where the credentials of a container are.
fn container() -> Option<String> {
    let own = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    own.map(|path| format!("http://169.254.170.2{path}"))
        .or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
}

async fn by_container(address: &str, trust: &str) -> Result<SourceAnswer, String> {
    let mut request = HttpsRequest::get(address);
    let token = match variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(file) => Some(read(&file).await?),
        None => variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    request
        .headers
        .extend(token.map(|token| ("authorization", token)));
    of_json(&fetch(request, trust).await?, now())
}

/// The role of the machine.
async fn by_machine(trust: &str) -> Result<SourceAnswer, String> {
    let endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let endpoint = endpoint.unwrap_or_else(|| "http://169.254.169.254".into());
    let endpoint = endpoint.trim_end_matches('/');
    let address = format!("{endpoint}/latest/api/token");
    let request = HttpsRequest {
        method: hyper::Method::PUT,
        headers: vec![("x-aws-ec2-metadata-token-ttl-seconds", IMDS_SECONDS.into())],
        ..HttpsRequest::get(&address)
    };
    let text = |bytes: SecretBytes| String::from_utf8_lossy(&bytes).trim().to_owned();
    let token = text(fetch(request, trust).await?);
    let roles = format!("{endpoint}/latest/meta-data/iam/security-credentials/");
    let asked = |address| HttpsRequest {
        headers: vec![("x-aws-ec2-metadata-token", token.clone())],
        ..HttpsRequest::get(address)
    };
    let role = text(fetch(asked(&roles), trust).await?);
    let role = role.lines().next().unwrap_or_default();
    if role.is_empty() {
        return Err("the machine has no role".into());
    }
    let address = format!("{roles}{}", percent(role));
    of_json(&fetch(asked(&address), trust).await?, now())
}

/// The credentials in an answer of a metadata service.
fn of_json(text: &[u8], now: i64) -> Result<SourceAnswer, String> {
    const WRONG: &str = "the metadata service answers without credentials";
    let all: serde_json::Value = serde_json::from_slice(text).map_err(|_| WRONG)?;
    let value = |name: &str| all.get(name)?.as_str().map(String::from);
    let end = value("Expiration").and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let id = value("AccessKeyId").zip(value("SecretAccessKey"));
    let (id, secret) = id.ok_or(WRONG)?;
    let life = end.map(|end| end.as_second() - now);
    Ok(answer(id, secret, value("Token"), life))
}

/// The text of a small file.
///
/// # Errors
/// It can't be read.
pub(super) async fn read(path: &str) -> Result<String, String> {
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = SecretBytes(Vec::new());
        let mut file = File::open(file)?.take(LONGEST + 1);
        file.read_to_end(&mut text.0).map(|_| text)
    });
    let text = read.await.map_err(|why| why.to_string())?;
    let text = text.map_err(|why| format!("{path}: {}", crate::log::text(&why)))?;
    if text.len() as u64 > LONGEST {
        return Err(format!("{path}: it is longer than 64 KB"));
    }
    let text = std::str::from_utf8(&text).map_err(|_| format!("{path}: it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use howdah_pooler::config::FetchedValue;

    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let why = runtime.block_on(read("/dev/zero")).unwrap_err();
        assert!(why.contains("longer than 64 KB"), "{why}");
    }

    fn life(answer: SourceAnswer) -> Option<u64> {
        match answer {
            SourceAnswer::Value(FetchedValue::Aws { credentials, .. }, life) => {
                assert_eq!(
                    (credentials.id.as_str(), credentials.secret.as_str()),
                    ("ASIA1", "s/1+")
                );
                assert_eq!(credentials.session.as_deref(), Some("t=="));
                life.ends.map(|life| life / 1_000_000_000)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers() {
        let json = br#"{"Code": "Success", "AccessKeyId": "ASIA1", "SecretAccessKey": "s/1+",
            "Token": "t==", "Expiration": "1970-01-01T01:00:00Z"}"#;
        assert_eq!(life(of_json(json, 600).unwrap()), Some(3000));
        assert!(matches!(of_json(json, 3600), Ok(SourceAnswer::Failed(_))));
        assert!(of_json(b"{\"Code\": \"Failed\"}", 0).is_err());
        let xml = "<A><B><Credentials><AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s/1+\
            </SecretAccessKey><SessionToken>t==</SessionToken><Expiration>1970-01-01T01:00:00Z\
            </Expiration></Credentials></B></A>";
        assert_eq!(life(of_xml(xml, 0).unwrap()), Some(3600));
        assert!(of_xml("<Error/>", 0).is_none());
    }
}
