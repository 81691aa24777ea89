//! Completion statuses in CQEPs: the codes of `enum ibv_wc_status`.

use nichrome_wire::star::StatusCode;

use crate::core::completion::Status;

const TABLE: [(Status, u8); 14] = [
    (Status::Success, 0),
    (Status::LocalLength, 1),
    (Status::LocalQpOperation, 2),
    (Status::LocalProtection, 4),
    (Status::Flushed, 5),
    (Status::WindowBind, 6),
    (Status::BadResponse, 7),
    (Status::LocalAccess, 8),
    (Status::RemoteInvalidRequest, 9),
    (Status::RemoteAccess, 10),
    (Status::RemoteOperation, 11),
    (Status::RetryExceeded, 12),
    (Status::RnrRetryExceeded, 13),
    (Status::Fatal, 19),
];

/// Returns the code of a status.
pub(super) fn code(status: Status) -> StatusCode {
    let found = TABLE.into_iter().find(|(known, _)| *known == status);
    found.and_then(|(_, code)| StatusCode::new(code)).unwrap_or(StatusCode::GENERAL)
}

/// Returns the status of a code; unknown codes are [`Status::Fatal`].
pub(super) fn status(code: StatusCode) -> Status {
    let found = TABLE.into_iter().find(|(_, known)| *known == code.code());
    found.map_or(Status::Fatal, |(status, _)| status)
}
