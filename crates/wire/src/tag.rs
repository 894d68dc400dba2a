//! The first byte of every message, by direction.

/// Messages a client sends.
pub mod frontend {
    /// Bind.
    pub const BIND: u8 = b'B';
    /// Close.
    pub const CLOSE: u8 = b'C';
    /// CopyData (both directions).
    pub const COPY_DATA: u8 = b'd';
    /// CopyDone (both directions).
    pub const COPY_DONE: u8 = b'c';
    /// CopyFail.
    pub const COPY_FAIL: u8 = b'f';
    /// Describe.
    pub const DESCRIBE: u8 = b'D';
    /// Execute.
    pub const EXECUTE: u8 = b'E';
    /// Flush.
    pub const FLUSH: u8 = b'H';
    /// FunctionCall.
    pub const FUNCTION_CALL: u8 = b'F';
    /// Parse.
    pub const PARSE: u8 = b'P';
    /// PasswordMessage, SASLInitialResponse, SASLResponse, GSSResponse.
    pub const PASSWORD: u8 = b'p';
    /// Query.
    pub const QUERY: u8 = b'Q';
    /// Sync.
    pub const SYNC: u8 = b'S';
    /// Terminate.
    pub const TERMINATE: u8 = b'X';
}

/// Messages PostgreSQL sends.
pub mod backend {
    /// Authentication requests of all kinds.
    pub const AUTHENTICATION: u8 = b'R';
    /// BackendKeyData.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// BindComplete.
    pub const BIND_COMPLETE: u8 = b'2';
    /// CloseComplete.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// CommandComplete.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// CopyInResponse.
    pub const COPY_IN: u8 = b'G';
    /// CopyOutResponse.
    pub const COPY_OUT: u8 = b'H';
    /// CopyBothResponse.
    pub const COPY_BOTH: u8 = b'W';
    /// CopyData (both directions).
    pub const COPY_DATA: u8 = b'd';
    /// CopyDone (both directions).
    pub const COPY_DONE: u8 = b'c';
    /// DataRow.
    pub const DATA_ROW: u8 = b'D';
    /// EmptyQueryResponse.
    pub const EMPTY_QUERY: u8 = b'I';
    /// ErrorResponse.
    pub const ERROR: u8 = b'E';
    /// FunctionCallResponse.
    pub const FUNCTION_CALL: u8 = b'V';
    /// NegotiateProtocolVersion.
    pub const NEGOTIATE: u8 = b'v';
    /// NoData.
    pub const NO_DATA: u8 = b'n';
    /// NoticeResponse.
    pub const NOTICE: u8 = b'N';
    /// NotificationResponse.
    pub const NOTIFICATION: u8 = b'A';
    /// ParameterDescription.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// ParameterStatus.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// ParseComplete.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// PortalSuspended.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// ReadyForQuery.
    pub const READY: u8 = b'Z';
    /// RowDescription.
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// True for a message that a client may send after its login.
pub fn is_frontend(tag: u8) -> bool {
    use frontend::*;
    matches!(
        tag,
        BIND | CLOSE
            | COPY_DATA
            | COPY_DONE
            | COPY_FAIL
            | DESCRIBE
            | EXECUTE
            | FLUSH
            | FUNCTION_CALL
            | PARSE
            | QUERY
            | SYNC
            | TERMINATE
    )
}

/// True for a client's message that has no long body.
pub fn is_short(tag: u8) -> bool {
    use frontend::*;
    matches!(
        tag,
        CLOSE | COPY_DONE | DESCRIBE | EXECUTE | FLUSH | SYNC | TERMINATE
    )
}

/// True for a message that PostgreSQL may send after its login.
pub fn is_backend(tag: u8) -> bool {
    use backend::*;
    matches!(
        tag,
        AUTHENTICATION
            | BACKEND_KEY_DATA
            | BIND_COMPLETE
            | CLOSE_COMPLETE
            | COMMAND_COMPLETE
            | COPY_IN
            | COPY_OUT
            | COPY_BOTH
            | COPY_DATA
            | COPY_DONE
            | DATA_ROW
            | EMPTY_QUERY
            | ERROR
            | FUNCTION_CALL
            | NEGOTIATE
            | NO_DATA
            | NOTICE
            | NOTIFICATION
            | PARAMETER_DESCRIPTION
            | PARAMETER_STATUS
            | PARSE_COMPLETE
            | PORTAL_SUSPENDED
            | READY
            | ROW_DESCRIPTION
    )
}
