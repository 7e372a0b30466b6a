//! A script that swaps a name of its own for a link to a file of the host while it uses it.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::verdict::Kind;

use crate::{
    left::Left,
    race::Tally,
    service::{self, Level, Service},
};

/// One process swaps, the other uses the name in every way. A file reached through the link would
/// be the host's; a refusal shows that the link was there.
const SOURCE: &str = "
import os, signal
canary, tries = 'CANARY', TIMES
open('own', 'w').write('own')
os.link('own', 'out')
swapper = os.fork()
if swapper == 0:
    while True:
        os.symlink(canary, 'link'); os.rename('link', 'out')
        os.link('own', 'file'); os.rename('file', 'out')
        if os.getppid() == 1: os._exit(0)
def read():
    return open('out').read()
def extend():
    with open('out', 'r+') as file: return file.read()
def append():
    os.close(os.open('out', os.O_WRONLY | os.O_APPEND)); return 'own'
def shorten():
    os.truncate('out', 3); return 'own'
def name():
    os.link('out', 'linked', follow_symlinks=True)
    try: return open('linked').read()
    finally: os.unlink('linked')
def look():
    return 'own' if os.stat('out').st_size == 3 else os.stat('out').st_size
ways = [read, extend, append, shorten, name] + ([look] if LOOKS else [])
while not os.path.islink('out'): pass
own = refused = 0
for number in range(tries):
    try: found = ways[number % len(ways)]()
    except OSError: refused += 1; continue
    if found != 'own': print('reached', ways[number % len(ways)].__name__, found)
    own += 1
os.kill(swapper, signal.SIGKILL)
print(own, refused)
";

const OWN: &str = "uses of the script's own file";
const REFUSED: &str = "uses of the host's file were refused";

/// A file that any user on the host may read and write.
const CONTENT: &str = "a canary";

/// Uses the name `times` times.
///
/// # Errors
/// A file of the host that was reached, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    let directory = tempfile::tempdir()?;
    let canary = directory.path().join("canary");
    fs::write(&canary, CONTENT)?;
    for (path, mode) in [(directory.path(), 0o755), (canary.as_path(), 0o666)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    let before = facts(&canary)?;
    let mut lines = Vec::new();
    for level in Level::BOTH {
        let service = Service::start(level).await?;
        let tally = race(&service, &canary, level, times).await;
        let tally = tally.context(level.name())?;
        ensure!(facts(&canary)? == before, "the canary was changed");
        service.end(&Left::count()).await?;
        lines.push(format!("{}: {tally}", level.name()));
    }
    Ok(lines.join("\n"))
}

async fn race(service: &Service, canary: &Path, level: Level, times: u32) -> anyhow::Result<Tally> {
    // Sizes can be read where there is no root of the script's own.
    let looks = if level == Level::Reduced { "0" } else { "1" };
    let source = SOURCE
        .replace("CANARY", &canary.display().to_string())
        .replace("TIMES", &times.to_string())
        .replace("LOOKS", looks);
    let response = service.run(service::request("python3", source)).await?;
    let said = String::from_utf8_lossy(&response.stdout);
    let ended = service::verdict(&response)?;
    ensure!(
        matches!(ended, Kind::Exited(exited) if exited.code == 0),
        "{ended:?}: {}",
        String::from_utf8_lossy(&response.stderr)
    );
    let mut figures = said.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(own)), Some(Ok(refused)), None) = (figures.next(), figures.next(), figures.next())
    else {
        anyhow::bail!("the host's file was reached: {said}");
    };
    let mut tally = Tally::of(&[OWN, REFUSED]);
    tally.add_many(OWN, own);
    tally.add_many(REFUSED, refused);
    ensure!(own + refused == u64::from(times), "{said}");
    tally.hit()
}

/// All facts of a file that a use could have changed.
fn facts(path: &Path) -> anyhow::Result<(String, u32, u64, i64, i64)> {
    let is = fs::metadata(path)?;
    let content = fs::read_to_string(path)?;
    Ok((content, is.mode(), is.nlink(), is.ctime(), is.ctime_nsec()))
}
