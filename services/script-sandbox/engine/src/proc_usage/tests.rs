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

#[test]
fn a_process_that_outlives_its_parent_stays_in_the_tree_however_old_the_walk_is() {
    let own = std::process::id();
    // As the launcher of a script does without a pid namespace.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).unwrap();
    let mut parent = std::process::Command::new("sh")
        .args(["-c", "sleep 600 & echo made; wait"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut made = [0; 5];
    std::io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut made).unwrap();
    let tree = ProcTree::below(own);
    let is_sleeper = |process: &&Process| process.parent == parent.id();
    let sleeper = tree.all.iter().find(is_sleeper).unwrap().pid;
    parent.kill().unwrap();
    parent.wait().unwrap();
    // No process was made since, so no walk is needed, unless another test has made one.
    let left = loop {
        let left: Vec<u32> = ProcTree::below(own).all.iter().map(|it| it.pid).collect();
        // A walk counts for a moment though a process ends meanwhile.
        if !left.contains(&parent.id()) {
            break left;
        }
        std::thread::yield_now();
    };
    kill_tree(sleeper);
    assert!(left.contains(&sleeper), "{left:?}");
}
