//! Credentials of AWS, in the order of AWS's own tools.

use howdah_pooler::auth::aws::AwsCredentials;
use howdah_pooler::config::FetchedValue;
use howdah_pooler::sources::SourceAnswer;

/// How long credentials of the environment are taken for good, in nanoseconds: they have no end there.
pub async fn credentials() -> Result<SourceAnswer, String> {
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let id = variable("AWS_ACCESS_KEY_ID");
    if let Some((id, secret)) = id.zip(variable("AWS_SECRET_ACCESS_KEY")) {
        let session = variable("AWS_SESSION_TOKEN");
        let credentials = AwsCredentials {
            id,
            secret,
            session,
        };
        let value = FetchedValue::Aws {
            credentials,
            region,
        };
        return Ok(SourceAnswer::Value(value, None));
    }
    Err("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
