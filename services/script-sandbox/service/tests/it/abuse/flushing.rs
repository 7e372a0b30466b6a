//! Programs that make other processes wait for the disk.

use contracts::tavern::sandbox::v1::{Collect, ExecuteRequest};

use crate::{
    rounds::everywhere,
    support::{expect_output, python},
};

#[test]
fn e21_nothing_is_flushed_to_a_disk_that_others_use() {
    // An executed flush fails where there is no data to flush; a suppressed one cannot fail.
    let source = "
import ctypes, mmap, os, sqlite3
libc = ctypes.CDLL(None, use_errno=True)
with open('flushed', 'wb') as file:
    for _ in range(2000):
        file.write(b'x'); file.flush(); os.fsync(file.fileno()); os.fdatasync(file.fileno())
with open('mapped', 'wb+') as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
    mapped[:] = b'y' * 4096; mapped.flush()
connection = sqlite3.connect('base.db')
connection.execute('create table t (x)'); connection.execute('insert into t values (7)'); connection.commit()
print(connection.execute('select x from t').fetchall())
print([libc.fsync(-1), libc.fdatasync(-1), libc.msync(None, 4096, 4)])
for flag in (os.O_SYNC, os.O_DSYNC):
    try: os.close(os.open('opened', os.O_WRONLY | os.O_CREAT | flag)); print('opened')
    except PermissionError: print('refused')
";
    everywhere(async |host| {
        let collecting = ExecuteRequest {
            collect: Some(Collect::default()),
            ..python(source)
        };
        let response = host.run(collecting).await;
        let expected = match host.kind {
            "reduced" => "[(7,)]\n[0, 0, 0]\nrefused\nrefused\n",
            _ => "[(7,)]\n[-1, -1, -1]\nopened\nopened\n",
        };
        expect_output(&response, expected);
        let files = response.collected.unwrap().files;
        let content = |path: &str| {
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.content.clone()).unwrap_or_default()
        };
        assert_eq!(content("flushed"), vec![b'x'; 2000]);
        assert_eq!(content("mapped"), vec![b'y'; 4096]);
    });
}
