//! Tokens of Microsoft Entra ID and of Google, which are passwords for their managed databases.

use howdah_pooler::auth::Secret;
use howdah_pooler::auth::aws::percent;
use howdah_pooler::auth::secret::wipe;
use howdah_pooler::config::FetchedValue;
use howdah_pooler::sources::{Lifetime, SourceAnswer};

use super::aws::variable;
use super::aws_endpoints::read;
use crate::https::{HttpsRequest, fetch};

/// What tokens of Entra are for: Azure Database for PostgreSQL.
const AZURE_DATABASE: &str = "https://ossrdbms-aad.database.windows.net";
/// The version of the interface of Azure's metadata service.
const AZURE_VERSION: &str = "2018-02-01";
/// Where metadata services are.
const METADATA: &str = "http://169.254.169.254";
/// How a pod's token stands for a secret.
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A token of Entra: by workload identity if the environment names its file, else by the managed identity of
/// the machine. `id` is the client id of the identity.
///
/// # Errors
/// Why there is none.
pub async fn azure(id: Option<&str>, trust: &str) -> Result<SourceAnswer, String> {
    let id = id.map(String::from).or_else(|| variable("AZURE_CLIENT_ID"));
    let Some(file) = variable("AZURE_FEDERATED_TOKEN_FILE") else {
        return azure_machine(id.as_deref(), trust).await;
    };
    let id = id.ok_or("AZURE_CLIENT_ID is not set, and there is no client_id")?;
    let tenant = variable("AZURE_TENANT_ID").ok_or("AZURE_TENANT_ID is not set")?;
    let authority = variable("AZURE_AUTHORITY_HOST");
    let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".into());
    let mut assertion = read(&file).await?;
    let body = format!(
        "grant_type=client_credentials&client_id={}&scope={}&client_assertion_type={}&client_assertion={}",
        percent(&id),
        percent(&format!("{AZURE_DATABASE}/.default")),
        percent(ASSERTION),
        percent(&assertion)
    );
    wipe(&mut assertion);
    let authority = authority.trim_end_matches('/');
    let address = format!("{authority}/{}/oauth2/v2.0/token", percent(&tenant));
    let request = HttpsRequest {
        method: hyper::Method::POST,
        headers: vec![("content-type", "application/x-www-form-urlencoded".into())],
        body,
        ..HttpsRequest::get(&address)
    };
    token(&fetch(request, trust).await?)
}

async fn azure_machine(id: Option<&str>, trust: &str) -> Result<SourceAnswer, String> {
    // The name by which Azure's own libraries are told of another place.
    let service = variable("AZURE_POD_IDENTITY_AUTHORITY_HOST");
    let service = service.unwrap_or_else(|| METADATA.into());
    let mut address = format!(
        "{}/metadata/identity/oauth2/token?api-version={AZURE_VERSION}&resource={}",
        service.trim_end_matches('/'),
        percent(AZURE_DATABASE)
    );
    if let Some(id) = id {
        address.push_str(&format!("&client_id={}", percent(id)));
    }
    let request = HttpsRequest {
        headers: vec![("metadata", "true".into())],
        ..HttpsRequest::get(&address)
    };
    token(&fetch(request, trust).await?)
}

/// A token of the service account that Google's machine or pod has.
///
/// # Errors
/// Why there is none.
pub async fn google(trust: &str) -> Result<SourceAnswer, String> {
    let host = variable("GCE_METADATA_HOST");
    let service = host.map_or_else(|| METADATA.into(), |host| format!("http://{host}"));
    let address = format!("{service}/computeMetadata/v1/instance/service-accounts/default/token");
    let request = HttpsRequest {
        headers: vec![("metadata-flavor", "Google".into())],
        ..HttpsRequest::get(&address)
    };
    token(&fetch(request, trust).await?)
}

/// The token in an answer. Azure's metadata service writes numbers as texts.
fn token(text: &[u8]) -> Result<SourceAnswer, String> {
    const WRONG: &str = "the answer has no token and life";
    let all: serde_json::Value = serde_json::from_slice(text).map_err(|_| WRONG)?;
    let token = all.get("access_token").and_then(|token| token.as_str());
    let life = all.get("expires_in");
    let life = life.and_then(|life| life.as_u64().or_else(|| life.as_str()?.parse().ok()));
    match (token, life) {
        (Some(token), Some(life @ 1..)) if !token.is_empty() && !token.contains('\0') => {
            let value = FetchedValue::password(Secret::Plain(token.to_owned()));
            Ok(SourceAnswer::Value(value, Lifetime::of_seconds(life)))
        }
        _ => Err(WRONG.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        for good in [
            r#"{"access_token": "t", "expires_in": 3599, "token_type": "Bearer"}"#,
            r#"{"access_token": "t", "expires_in": "3599", "expires_on": "1600000000"}"#,
        ] {
            let SourceAnswer::Value(value, life) = token(good.as_bytes()).unwrap() else {
                panic!()
            };
            assert!(value == FetchedValue::password(Secret::Plain("t".into())));
            assert_eq!(life, Lifetime::of_seconds(3599));
        }
        for bad in [
            "",
            "{}",
            r#"{"access_token": "t"}"#,
            r#"{"access_token": "", "expires_in": 5}"#,
            r#"{"access_token": "t", "expires_in": 0}"#,
        ] {
            assert!(token(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
