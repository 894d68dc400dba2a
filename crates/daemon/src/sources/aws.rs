//! Credentials of AWS, looked for where AWS's own tools look: the environment, web identity (STS), the
//! endpoints of ECS and EKS, and the metadata service of EC2 (IMDSv2).

use howdah_daemon::driver::socket::clock;
use howdah_pooler::auth::aws::AwsCredentials;
use howdah_pooler::config::FetchedValue;
use howdah_pooler::sources::{Lifetime, SourceAnswer};

use crate::reload::now;

/// Looks for credentials. `trust` is the file of authorities for https.
///
/// # Errors
/// Why there are none.
pub async fn credentials(trust: &str) -> Result<SourceAnswer, String> {
    let id = variable("AWS_ACCESS_KEY_ID");
    if let Some((id, secret)) = id.zip(variable("AWS_SECRET_ACCESS_KEY")) {
        let session = variable("AWS_SESSION_TOKEN");
        return Ok(answer(id, secret, session, None));
    }
    #[cfg(feature = "cloud")]
    return super::aws_endpoints::credentials(trust).await;
    #[cfg(not(feature = "cloud"))]
    {
        let _ = trust;
        Err("no credentials in the environment, and this build asks nobody: build with the Cargo feature \
             cloud"
            .into())
    }
}

/// Credentials with their life in seconds.
pub fn answer(
    id: String,
    secret: String,
    session: Option<String>,
    life: Option<i64>,
) -> SourceAnswer {
    let credentials = AwsCredentials {
        id,
        secret,
        session,
    };
    let value = FetchedValue::Aws {
        credentials,
        region: region(),
        zero: now() - (clock().0 / 1_000_000_000).cast_signed(),
    };
    match life.map(u64::try_from) {
        Some(Err(_) | Ok(0)) => SourceAnswer::Failed("the credentials have ended".into()),
        Some(Ok(life)) => SourceAnswer::Value(value, Lifetime::of_seconds(life)),
        None => SourceAnswer::Value(value, Lifetime::default()),
    }
}

/// The region of the environment.
pub fn region() -> Option<String> {
    variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"))
}

/// A variable of the environment that is not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
