//! One PAM login. PAM's modules may block it for any time.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};

use howdah_pooler::event::Address;
use nonstick::items::ItemsMut;
use nonstick::{
    AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Result, Transaction, TransactionBuilder,
};

/// Answers every prompt for a secret with the password, and keeps the modules' complaints.
struct Answers {
    user: OsString,
    password: OsString,
    complaints: RefCell<Vec<String>>,
}

impl ConversationAdapter for &Answers {
    fn prompt(&self, _request: impl AsRef<OsStr>) -> Result<OsString> {
        // PAM already knows the user, but modules may ask again.
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

/// Checks a user's password and account by the rules of a service.
///
/// # Errors
/// The password is wrong, or the account is not valid; the text is for the log.
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
