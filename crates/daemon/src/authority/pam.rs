//! One PAM login. It may block for as long as PAM's modules like.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};

use howdah_pooler::event::Address;
use nonstick::items::ItemsMut;
use nonstick::{
    AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Result, Transaction, TransactionBuilder,
};

/// Answers every prompt for a secret with the password, and keeps what modules complain of.
struct Answers {
    user: OsString,
    password: OsString,
    complaints: RefCell<Vec<String>>,
}

impl ConversationAdapter for &Answers {
    fn prompt(&self, _request: impl AsRef<OsStr>) -> Result<OsString> {
        // Whose password it is, is said already; modules may ask again.
        Ok(self.user.clone())
    }

    fn masked_prompt(&self, _request: impl AsRef<OsStr>) -> Result<OsString> {
        Ok(self.password.clone())
    }

    fn error_msg(&self, message: impl AsRef<OsStr>) {
        let text = message.as_ref().to_string_lossy().into_owned();
        self.complaints.borrow_mut().push(text);
    }

    fn info_msg(&self, _message: impl AsRef<OsStr>) {}
}

/// Whether a service's rules let a user in with this password, and the account is in order.
///
/// # Errors
/// They do not, or it is not; the text is for the log.
pub(super) fn check(
    service: &str,
    user: &str,
    password: &str,
    remote: &Address,
) -> std::result::Result<(), String> {
    let answers = Answers {
        user: user.into(),
        password: password.into(),
        complaints: RefCell::default(),
    };
    let place = match remote {
        Address::Tcp(address, _) => address.to_string(),
        Address::Unix(..) => "unix".to_owned(),
    };
    let step = |call: &'static str| {
        let complaints = &answers.complaints;
        move |why: ErrorCode| {
            let said = complaints.take().join("; ");
            match said.as_str() {
                "" => format!("{call}() failed: {why}"),
                said => format!("{call}() failed: {why} ({said})"),
            }
        }
    };
    let mut transaction = TransactionBuilder::new_with_service(service)
        .username(user)
        .build((&answers).into_conversation())
        .map_err(step("pam_start"))?;
    let named = transaction
        .items_mut()
        .set_remote_host(Some(OsStr::new(&place)));
    named.map_err(step("pam_set_item"))?;
    let authenticated = transaction.authenticate(AuthnFlags::SILENT);
    authenticated.map_err(step("pam_authenticate"))?;
    let in_order = transaction.account_management(AuthnFlags::SILENT);
    in_order.map_err(step("pam_acct_mgmt"))
}
