//! `tavern migrate`: the tables of a PostgreSQL database.

use std::process::ExitCode;

use all_in_one::settings::MIGRATIONS;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use data_home::{DatabaseAddress, HomeError, SHARED_MIGRATIONS};
use grpc_kit::program::print;
use sql_store::{Migrations, PostgresDatabase, PostgresError, PostgresOptions, ServerMigration};

/// Make the tables of a PostgreSQL database, or bring them to the shape of this version.
///
/// Each step is a transaction that waits at most 2 s for a lock that others hold, so a command that ended in between is
/// repeated. A Tavern never changes tables at its start: it names this command.
#[derive(Args)]
pub(crate) struct Migrate {
    /// The command about the steps.
    #[arg(value_enum, default_value_t = Action::Apply)]
    action: Action,
    /// The database, `postgres://owner@host:5432/database`, as the role that owns the tables, with its password in
    /// PGPASSWORD.
    #[arg(long, value_name = "URL")]
    database: String,
    /// The role as which `tavern serve` connects: it may read and write rows, and owns nothing. It is needed to carry out
    /// steps.
    #[arg(long, value_name = "ROLE")]
    app_role: Option<String>,
}

/// A command about the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Carry out the missing steps.
    Apply,
    /// List the missing steps.
    Plan,
    /// List all steps.
    Status,
}

impl Migrate {
    /// Carries out the command.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        ensure!(
            self.action != Action::Apply || self.app_role.is_some(),
            "name the role as which `tavern serve` connects: --app-role ROLE"
        );
        let options = DatabaseAddress::new(&self.database).options();
        let done = self.execute_on(&options).await;
        done.map_err(|error| HomeError::from(error).of_program())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn execute_on(&self, options: &PostgresOptions) -> Result<(), PostgresError> {
        let components = [SHARED_MIGRATIONS.as_slice(), &MIGRATIONS].concat();
        let steps = PostgresDatabase::migrations(options, &components).await?;
        let missing: Vec<_> = steps.iter().filter(|step| !step.is_applied).collect();
        match (self.action, &self.app_role) {
            (Action::Apply, Some(app_role)) => {
                for component in components {
                    PostgresDatabase::migrate(options, &[component], app_role).await?;
                    let of_component = |step: &&&_| is_of(step, component);
                    missing
                        .iter()
                        .filter(of_component)
                        .for_each(|step| show(step, true));
                }
            }
            (Action::Status, _) => steps.iter().for_each(|step| show(step, step.is_applied)),
            (Action::Plan | Action::Apply, _) => missing.iter().for_each(|step| show(step, false)),
        }
        print(&match (self.action, missing.len()) {
            (_, 0) => "the tables are up to date\n".to_owned(),
            (Action::Apply, missing) => format!("{missing} steps are done\n"),
            (_, missing) => {
                format!("{missing} steps are missing; `tavern migrate` carries them out\n")
            }
        });
        Ok(())
    }
}

fn is_of(step: &ServerMigration, component: Migrations) -> bool {
    step.component == component.namespace()
}

fn show(step: &ServerMigration, is_done: bool) {
    let state = if is_done { "done" } else { "missing" };
    let ServerMigration {
        component,
        number,
        description,
        ..
    } = step;
    print(&format!(
        "{state:8} {component} {number:04} {description}\n"
    ));
}

#[cfg(test)]
mod tests {
    use std::env;

    use postgres_kit::{Proxy, databases::options};

    use super::*;

    /// Every how many messages a migration is cut off in `make test`.
    const EVERY: usize = 12;

    fn migration() -> Migrate {
        Migrate {
            action: Action::Apply,
            database: String::new(),
            app_role: Some("tavern".to_owned()),
        }
    }

    /// The columns, indexes and rights of a database, a line each.
    const SHAPE: &str = "SELECT table_schema || '.' || table_name || '.' || column_name || ' ' || data_type AS line \
         FROM information_schema.columns WHERE table_schema IN ('core', 'registry', 'workflow', 'agent') \
         UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname IN ('core', 'registry', 'workflow', 'agent') \
         UNION ALL SELECT table_schema || '.' || table_name || ' ' || privilege_type || ' ' || grantee \
         FROM information_schema.role_table_grants WHERE grantee = 'tavern' ORDER BY line";

    /// Full: `TAVERN_TEST_CUT_EVERY=1`.
    #[tokio::test(flavor = "multi_thread")]
    async fn f28_a_migration_that_is_cut_off_at_any_statement_is_completed_by_the_next() {
        let Some(server) = postgres_kit::shared() else {
            return;
        };
        let every = env::var("TAVERN_TEST_CUT_EVERY").ok();
        let every = every.map_or(EVERY, |every| every.parse().expect("a number"));
        let proxy = Proxy::start(server.socket()).await.expect("a proxy");
        let (mut whole, mut failed) = (None, 0);
        for messages in (0..).step_by(every) {
            let database = server.database().expect("the server answers");
            let through = options(&proxy.url(&database.name, "tavern_migrate"));
            proxy.cut_after(messages);
            let cut_off = migration().execute_on(&through).await;
            let is_over = proxy.is_to_cut();
            assert!(cut_off.is_ok() || !is_over, "{messages}: {cut_off:?}");
            failed += usize::from(cut_off.is_err());
            let repeated = migration().execute_on(&options(&database.owner_url)).await;
            repeated.unwrap_or_else(|error| panic!("{messages}: {error}"));
            let shape = server.query(&database.name, SHAPE).expect("it is read");
            assert_eq!(&shape, whole.get_or_insert_with(|| shape.clone()));
            if is_over {
                break;
            }
        }
        assert!(failed * every > 20, "{failed} were cut off");
        let lines = whole.map_or(0, |shape: String| shape.lines().count());
        assert!(lines > 200, "{lines}");
    }
}
