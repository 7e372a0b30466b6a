//! Messages with secrets, which their `Debug` does not show: the build makes it for each message that has a field
//! with the option `debug_redact`.

include!(concat!(env!("OUT_DIR"), "/secrets.rs"));

#[cfg(test)]
mod tests {
    use crate::tavern::registry::v1::{LoginRequest, RotateKeyResponse};

    #[test]
    fn a_secret_is_not_shown() {
        let key = "tvk_secret";
        let login = LoginRequest {
            key: key.to_owned(),
        };
        let rotated = RotateKeyResponse {
            secret_key: key.to_owned(),
            ..RotateKeyResponse::default()
        };
        let shown = format!("{login:?} {rotated:?}");
        assert_eq!(
            shown,
            "tavern.registry.v1.LoginRequest { .. } tavern.registry.v1.RotateKeyResponse { .. }"
        );
    }
}
