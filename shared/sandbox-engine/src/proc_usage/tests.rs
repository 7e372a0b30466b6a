use super::*;

fn kill_tree(pid: u32) {
    for process in process::all() {
        if process.parent == pid {
            kill_tree(process.pid);
        }
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

#[test]
fn the_tree_of_a_supervisor_is_counted() {
    let mut supervisor = std::process::Command::new("sh")
        .args(["-c", "sh -c 'sleep 600 & echo started; wait' & wait"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut started = [0; 8];
    std::io::Read::read_exact(supervisor.stdout.as_mut().unwrap(), &mut started).unwrap();
    let sum = ProcTree::below(supervisor.id()).sample(u64::MAX, None);
    kill_tree(supervisor.id());
    supervisor.wait().unwrap();
    // The inner shell is of the first generation, which does not count; its sleeper does.
    assert_eq!(sum.processes, 1);
}
