//! One connection to the server under a fixed set of session variables.

use crate::error::Result;
use clap::Args;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Row, Value};

/// How to reach the server.
#[derive(Args, Debug)]
pub struct Login {
    /// Unix socket of the server; has precedence over --host
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// Host name or address
    #[arg(long, value_name = "NAME", default_value = "127.0.0.1")]
    pub host: String,
    /// TCP port
    #[arg(long, value_name = "N", default_value_t = 3306)]
    pub port: u16,
    /// Account; it needs all privileges on the tables and on the database `ferrite_migrate_trial`
    #[arg(long, value_name = "NAME", env = "USER", default_value = "root")]
    pub user: String,
    /// Password; other users of the machine cannot see it in the environment
    #[arg(long, value_name = "TEXT", env = "MYSQL_PWD", hide_env_values = true)]
    pub password: Option<String>,
}

/// A connection.
pub struct Server {
    connection: Conn,
}

/// A value of a row as text; NULL is empty.
pub fn field(row: &Row, at: usize) -> String {
    match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

impl Server {
    /// Connects. No statement of this connection depends on the server's settings for SQL modes, engines or checks of foreign keys.
    pub fn connect(login: &Login) -> Result<Server> {
        let options = OptsBuilder::new()
            .user(Some(&login.user))
            .pass(login.password.as_ref())
            .prefer_socket(false);
        let options = match &login.socket {
            Some(path) => options.socket(Some(path)),
            None => options
                .ip_or_hostname(Some(&login.host))
                .tcp_port(login.port),
        };
        let mut server = Server {
            connection: Conn::new(options)?,
        };
        server.run("SET NAMES utf8mb4")?;
        server.run("SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'")?;
        server.run(
            "SET SESSION foreign_key_checks=0, check_constraint_checks=0, sql_quote_show_create=1",
        )?;
        server.run(
            "SET SESSION enforce_storage_engine=NULL, lock_wait_timeout=10, time_zone='+00:00'",
        )?;
        Ok(server)
    }

    /// Runs a statement without an answer.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        Ok(self.connection.query_drop(sql)?)
    }

    /// All rows of an answer.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Row>> {
        Ok(self.connection.query(sql)?)
    }

    /// The first column of the first row as text, empty if there is none.
    pub fn value(&mut self, sql: &str) -> Result<String> {
        Ok(self
            .rows(sql)?
            .first()
            .map(|row| field(row, 0))
            .unwrap_or_default())
    }

    /// The statement with which the server would make this table (quoted name).
    pub fn create_statement(&mut self, table: &str) -> Result<String> {
        Ok(self
            .rows(&format!("SHOW CREATE TABLE {table}"))?
            .first()
            .map(|row| field(row, 1))
            .unwrap_or_default())
    }

    /// The warnings of the last statement: number and text.
    pub fn warnings(&mut self) -> Result<Vec<(String, String)>> {
        let rows = self.rows("SHOW WARNINGS")?;
        Ok(rows
            .iter()
            .map(|row| (field(row, 1), field(row, 2)))
            .collect())
    }
}
