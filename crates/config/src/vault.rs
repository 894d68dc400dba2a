//! Where Vault is, and how Howdah logs in there.

use super::Globals;
use super::token::is_fetchable;

/// Where Vault is, and how Howdah logs in there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VaultAccess {
    /// The address, without a slash at its end.
    pub address: String,
    /// The namespace; empty for none.
    pub namespace: String,
    /// How Howdah logs in.
    pub login: VaultLogin,
}

/// How Howdah logs in to Vault. Files are read at each login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VaultLogin {
    /// With the token in a file.
    Token {
        /// The file.
        file: String,
    },
    /// By AppRole.
    AppRole {
        /// Where the login is mounted.
        mount: String,
        /// The role's id.
        role_id: String,
        /// The file with the secret id.
        secret_id_file: String,
    },
    /// By the service account of a pod.
    Kubernetes {
        /// Where the login is mounted.
        mount: String,
        /// The role.
        role: String,
        /// The file with the account's token.
        token_file: String,
    },
}

impl VaultAccess {
    /// What the settings say.
    ///
    /// # Errors
    /// What is missing or wrong, and the remedy.
    pub fn of(globals: &Globals) -> Result<VaultAccess, (String, &'static str)> {
        let address = globals.vault_address.trim_end_matches('/');
        if address.is_empty() {
            return Err((
                "vault_address is not set".into(),
                "write where Vault is: vault_address = https://vault.example.com:8200",
            ));
        }
        if !is_fetchable(address) || address.contains(['?', '#', ' ']) {
            return Err((
                format!("vault_address \"{address}\" is no https address"),
                "write https://HOST:PORT; plain http is spoken with this machine only",
            ));
        }
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        let mount = |or: &str| given(&globals.vault_login_path).unwrap_or_else(|| or.into());
        let token = given(&globals.vault_token_file).map(|file| VaultLogin::Token { file });
        let role_id = given(&globals.vault_role_id).zip(given(&globals.vault_secret_id_file));
        let app = role_id.map(|(role_id, secret_id_file)| VaultLogin::AppRole {
            mount: mount("approle"),
            role_id,
            secret_id_file,
        });
        let pod = given(&globals.vault_kubernetes_role).map(|role| VaultLogin::Kubernetes {
            mount: mount("kubernetes"),
            role,
            token_file: globals.vault_kubernetes_token_file.clone(),
        });
        let mut logins = [token, app, pod].into_iter().flatten();
        let remedy = "write one of vault_token_file, vault_role_id with vault_secret_id_file, or \
                      vault_kubernetes_role";
        match (logins.next(), logins.next()) {
            (Some(login), None) => Ok(VaultAccess {
                address: address.into(),
                namespace: globals.vault_namespace.clone(),
                login,
            }),
            (Some(_), Some(_)) => Err(("there are several logins to Vault".into(), remedy)),
            (None, _) => Err(("there is no login to Vault".into(), remedy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(settings: &[(&str, &str)]) -> Result<VaultAccess, (String, &'static str)> {
        let mut globals = Globals::default();
        for (key, value) in settings {
            globals.assign(key, value).unwrap();
        }
        VaultAccess::of(&globals)
    }

    #[test]
    fn one_login_at_one_address() {
        let at = ("vault_address", "https://v.example:8200/");
        let pod = ("vault_kubernetes_role", "howdah");
        let access_by = access(&[at, pod]).unwrap();
        assert_eq!(access_by.address, "https://v.example:8200");
        let VaultLogin::Kubernetes {
            mount,
            role,
            token_file,
        } = access_by.login
        else {
            panic!()
        };
        assert_eq!((mount.as_str(), role.as_str()), ("kubernetes", "howdah"));
        assert!(token_file.starts_with("/var/run/secrets/"));
        for (wrong, said) in [
            (&[pod][..], "vault_address is not set"),
            (
                &[("vault_address", "http://v.example"), pod],
                "no https address",
            ),
            (&[at], "no login"),
            (&[at, ("vault_role_id", "r")], "no login"),
            (&[at, pod, ("vault_token_file", "/t")], "several logins"),
        ] {
            let (what, remedy) = access(wrong).unwrap_err();
            assert!(what.contains(said) && remedy.contains("write"), "{what}");
        }
        assert!(access(&[("vault_address", "http://127.0.0.1:8200"), pod]).is_ok());
    }
}
