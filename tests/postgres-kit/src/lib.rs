//! A private PostgreSQL server for tests, and a proxy that loses its answers.
//!
//! [`shared`] is one server for all test processes of a run, without syncs, in which each test has a database of its
//! own, as [`on_every_database`] makes them. [`Server::start`] is a server of one test, which may stop it, kill it or make a standby of it.

pub mod databases;
mod disk;
pub mod files;
mod power;
pub mod programs;
pub mod proxy;
pub mod server;
mod shared;

pub use power::PowerDisk;
pub use proxy::Proxy;
pub use server::{Database, Server};
pub use shared::shared;
