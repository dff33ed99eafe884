//! What can go wrong, in words.

/// An error of this program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused a statement.
    #[error("error {code}: {message}")]
    Server {
        /// The server's number.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// There is no connection.
    #[error("no connection to the server: {0}")]
    Connection(String),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

/// A result of this program.
pub type Result<T> = std::result::Result<T, Error>;

impl From<mysql::Error> for Error {
    fn from(e: mysql::Error) -> Error {
        match e {
            mysql::Error::MySqlError(e) => Error::Server {
                code: e.code,
                message: e.message,
            },
            other => Error::Connection(other.to_string()),
        }
    }
}
