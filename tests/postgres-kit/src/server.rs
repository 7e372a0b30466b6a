//! A server in a directory, reached by a socket in it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    disk::SmallDisk,
    power::PowerDisk,
    programs::{command, find, give, run},
};

/// The role that migrates, and the role of the services.
const ROLES: [&str; 2] = ["tavern_migrate", "tavern"];

/// A server, stopped when it is dropped.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    directory: PathBuf,
    /// The file system of its directory, if it has one of its own.
    disk: Option<Disk>,
    /// `None` for a server of several processes, which none of them stops.
    owned: Option<TempDir>,
}

/// A file system of one server.
#[derive(Debug)]
enum Disk {
    Small(SmallDisk),
    Power(PowerDisk),
}

/// A database of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// The address for the role of the services, which owns nothing.
    pub url: String,
    /// The address for the role that migrates.
    pub owner_url: String,
    /// The name of the role of the services.
    pub app_role: &'static str,
}

impl Server {
    /// Starts a server for one test, with `settings` of its configuration, such as `fsync=on`. `None` where PostgreSQL is
    /// missing.
    ///
    /// # Errors
    /// A server that does not start.
    pub fn start(settings: &[&str]) -> anyhow::Result<Option<Self>> {
        Self::start_on(settings, |_| Ok(None))
    }

    /// Starts a server whose directory has `megabytes` in all. `None` also where no file system may be mounted.
    ///
    /// # Errors
    /// A server that does not start.
    pub fn start_on_small_disk(settings: &[&str], megabytes: u32) -> anyhow::Result<Option<Self>> {
        if !SmallDisk::may_be_mounted() {
            return Ok(None);
        }
        Self::start_on(settings, |directory| {
            Ok(Some(Disk::Small(SmallDisk::mount(directory, megabytes)?)))
        })
    }

    /// Starts a server with syncs whose power can be cut. `None` also where no file system may be mounted.
    ///
    /// # Errors
    /// A server that does not start.
    pub fn start_on_power_disk(megabytes: u64) -> anyhow::Result<Option<Self>> {
        if !SmallDisk::may_be_mounted() {
            return Ok(None);
        }
        let server = Self::start_on(&["fsync = on"], |directory| {
            Ok(PowerDisk::mount(directory, megabytes)?.map(Disk::Power))
        })?;
        let Some(server) = server.filter(|server| server.disk.is_some()) else {
            return Ok(None);
        };
        // Its files were made without syncs.
        let mut sync = Command::new("sync");
        run(sync.arg("--file-system").arg(&server.directory))?;
        Ok(Some(server))
    }

    /// Cuts the power of the server and its disk, and turns both on again.
    ///
    /// # Errors
    /// A server that has no such disk, or does not start again.
    pub fn lose_power(&self) -> anyhow::Result<()> {
        let Some(Disk::Power(disk)) = &self.disk else {
            bail!("the server has no disk whose power is cut");
        };
        let lock = self.data().join("postmaster.pid");
        let written = std::fs::read_to_string(&lock)?;
        let number = written.lines().next().context("a number")?.parse()?;
        let process = Pid::from_raw(number).context("a process")?;
        disk.cut()?;
        // Stopped, it starts no others; those of its processes that sleep would outlive it for a while. Some may have ended
        // by themselves.
        let _ = kill_process(process, Signal::STOP);
        let children = ["-KILL", "-P", &process.to_string()];
        Command::new("pkill").args(children).status()?;
        let _ = kill_process(process, Signal::KILL);
        disk.restore()?;
        // After a power loss no process has the number; here the killed one may not have been waited for.
        let of_socket = self.socket().with_added_extension("lock");
        for lock in [lock, of_socket] {
            match std::fs::remove_file(lock) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        self.run_up()
    }

    fn start_on(
        settings: &[&str],
        mount: impl FnOnce(&Path) -> anyhow::Result<Option<Disk>>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(programs) = find() else {
            return Ok(None);
        };
        let directory = tempfile::Builder::new().prefix("tavern-pg-").tempdir()?;
        let disk = mount(directory.path())?;
        give(directory.path())?;
        let server = Self {
            programs,
            directory: directory.path().to_owned(),
            disk,
            owned: Some(directory),
        };
        server.initialise(settings)?;
        server.run_up()?;
        server.add_roles()?;
        Ok(Some(server))
    }

    /// Fills the small disk.
    ///
    /// # Errors
    /// A server that has none.
    pub fn fill_disk(&self) -> anyhow::Result<()> {
        self.small_disk()?.fill()
    }

    /// Frees the room that was filled.
    ///
    /// # Errors
    /// A server whose disk was not filled.
    pub fn free_disk(&self) -> anyhow::Result<()> {
        self.small_disk()?.free()
    }

    fn small_disk(&self) -> anyhow::Result<&SmallDisk> {
        match &self.disk {
            Some(Disk::Small(disk)) => Ok(disk),
            _ => bail!("the server has no small disk"),
        }
    }

    /// Names a server that several processes share.
    pub(crate) fn in_directory(programs: PathBuf, directory: PathBuf) -> Self {
        Self {
            programs,
            directory,
            disk: None,
            owned: None,
        }
    }

    pub(crate) fn initialise(&self, settings: &[&str]) -> anyhow::Result<()> {
        let mut initdb = command(&self.programs, "initdb");
        initdb.arg("-D").arg(self.data());
        initdb.args([
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-U",
            "postgres",
            "--no-sync",
        ]);
        run(&mut initdb)?;
        let mut lines = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 400\nshared_buffers = '64MB'\n",
            self.directory.display()
        );
        for setting in settings {
            lines.push_str(setting);
            lines.push('\n');
        }
        let configuration = self.data().join("postgresql.auto.conf");
        Ok(std::fs::write(configuration, lines)?)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// A server that does not start.
    pub fn run_up(&self) -> anyhow::Result<()> {
        let mut start = self.pg_ctl();
        start
            .args(["-w", "-t", "60", "-l"])
            .arg(self.directory.join("log"))
            .arg("start");
        // The server inherits these; an open pipe would hold up the process that waits for the end of the test.
        start.stdout(Stdio::null()).stderr(Stdio::null());
        if !start.status()?.success() {
            let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            bail!("the server does not start: {log}");
        }
        Ok(())
    }

    /// Stops the server: `fast` ends its sessions, `immediate` also leaves out the checkpoint, as a crash does.
    ///
    /// # Errors
    /// A server that does not stop.
    pub fn stop(&self, mode: &str) -> anyhow::Result<()> {
        run(self.pg_ctl().args(["-w", "-m", mode, "stop"])).map(drop)
    }

    /// Whether the server runs.
    pub fn is_up(&self) -> bool {
        let mut status = self.pg_ctl();
        status
            .arg("status")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        status.status().is_ok_and(|status| status.success())
    }

    fn pg_ctl(&self) -> std::process::Command {
        let mut pg_ctl = command(&self.programs, "pg_ctl");
        pg_ctl.arg("-D").arg(self.data());
        pg_ctl
    }

    pub(crate) fn add_roles(&self) -> anyhow::Result<()> {
        for role in ROLES {
            self.query("postgres", &format!("CREATE ROLE {role} LOGIN"))?;
        }
        Ok(())
    }

    /// Starts a standby of this server, which repeats its changes as they come.
    ///
    /// # Errors
    /// A server that does not start.
    pub fn standby(&self) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("tavern-pg-").tempdir()?;
        give(directory.path())?;
        let standby = Self {
            programs: self.programs.clone(),
            directory: directory.path().to_owned(),
            disk: None,
            owned: Some(directory),
        };
        let mut copy = command(&self.programs, "pg_basebackup");
        copy.arg("-h")
            .arg(&self.directory)
            .args(["-U", "postgres", "-R", "-X", "stream", "-c", "fast", "-D"]);
        run(copy.arg(standby.data()))?;
        let socket = format!(
            "\nunix_socket_directories = '{}'\n",
            standby.directory.display()
        );
        let configuration = standby.data().join("postgresql.auto.conf");
        let mut lines = std::fs::read_to_string(&configuration)?;
        lines.push_str(&socket);
        std::fs::write(configuration, lines)?;
        standby.run_up()?;
        Ok(standby)
    }

    /// Makes a standby the primary, and waits until it is.
    ///
    /// # Errors
    /// A server that is no standby.
    pub fn promote(&self) -> anyhow::Result<()> {
        run(self.pg_ctl().args(["-w", "promote"])).map(drop)
    }

    /// Makes an empty database.
    ///
    /// # Errors
    /// A server that does not answer.
    pub fn database(&self) -> anyhow::Result<Database> {
        let name = format!("t{}", Uuid::new_v4().simple());
        let [owner, app_role] = ROLES;
        self.query(
            "postgres",
            &format!("CREATE DATABASE {name} OWNER {owner} ENCODING 'UTF8' TEMPLATE template0"),
        )?;
        Ok(Database {
            url: self.url(&name, app_role),
            owner_url: self.url(&name, owner),
            name,
            app_role,
        })
    }

    /// Returns the address of a database for a role.
    pub fn url(&self, database: &str, role: &str) -> String {
        format!(
            "postgres://{role}@localhost/{database}?host={}",
            self.directory.display()
        )
    }

    /// Returns the socket by which the server is reached.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(".s.PGSQL.5432")
    }

    /// Runs statements as the superuser. Returns the values, a row a line.
    ///
    /// # Errors
    /// A statement that fails.
    pub fn query(&self, database: &str, text: &str) -> anyhow::Result<String> {
        let mut psql = command(&self.programs, "psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-U",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
        ]);
        psql.arg("-h").arg(&self.directory).args(["-c", text]);
        Ok(run(&mut psql)?.trim_end().to_owned())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.owned.is_some() {
            // It may have been stopped by the test.
            self.stop("immediate").unwrap_or_default();
        }
    }
}
