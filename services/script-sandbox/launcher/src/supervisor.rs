//! The process that stays outside: it makes the namespaces, waits, and ends everything on demand.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use crate::{
    init,
    sys::{self, Forked},
};
use sandbox_protocol::{
    channel::{self, ScriptDescriptors},
    plan::{Confinement, INSIDE_ID, LaunchPlan},
    report::{At, Failure, Layer, Report, Step},
};

pub(crate) mod tree;

/// The longest wait for the end of all processes after they were killed. It takes milliseconds; on
/// an overloaded machine, a crowd may still take its time to die.
const KILL_TIME: Duration = Duration::from_secs(30);

/// All namespaces but the cgroup one, which the init makes after it has joined its cgroups.
const NAMESPACES: [(i32, Layer); 6] = [
    (libc::CLONE_NEWUSER, Layer::UserNamespace),
    (libc::CLONE_NEWNS, Layer::MountNamespace),
    (libc::CLONE_NEWPID, Layer::PidNamespace),
    (libc::CLONE_NEWNET, Layer::NetworkNamespace),
    (libc::CLONE_NEWIPC, Layer::IpcNamespace),
    (libc::CLONE_NEWUTS, Layer::UtsNamespace),
];

/// Executes the one plan that comes over standard input.
pub fn run() -> ExitCode {
    // A panic must not unwind past a fork into code that is meant for the other process.
    std::panic::set_hook(Box::new(|_| sys::exit_now(101)));
    // The end of the socket reports the end of the service. The end of the service must not end
    // this process first: without a pid namespace, a script would continue.
    if sys::close_from(3).is_err() {
        return ExitCode::FAILURE;
    }
    // SAFETY: descriptor 0 is the socket that the service has put there, and nothing else owns it.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let Ok((plan, descriptors)) = channel::receive::<LaunchPlan>(&socket) else {
        return ExitCode::FAILURE;
    };
    let reported = match supervise(&socket, plan, descriptors) {
        Ok(last) => channel::write_report(&mut &socket, &last),
        Err(failure) => channel::write_report(&mut &socket, &Report::Failed(failure)),
    };
    if reported.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Starts the init, forwards its reports, and returns the last report once no process is left.
fn supervise(
    socket: &UnixStream,
    plan: LaunchPlan,
    descriptors: ScriptDescriptors<OwnedFd>,
) -> Step<Report> {
    let layer = Layer::Launch;
    let events = sys::child_events().at(layer, "watching for ended processes")?;
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (go, say_go) = pipe().at(layer, "making a pipe")?;
    let (reports, tell) = pipe().at(layer, "making a pipe")?;
    let namespaces = matches!(plan.confinement, Confinement::Namespaces(_));
    sys::adopt_orphans().at(layer, "adopting orphans")?;
    if !namespaces {
        tree::mark("self", tree::SUPERVISOR).at(layer, "marking the supervisor")?;
    }
    let flags = NAMESPACES.iter().fold(0, |all, (flag, _)| all | flag);

    let init = match sys::fork(if namespaces { flags } else { 0 }) {
        Ok(Forked::Child) => {
            drop((say_go, reports, events));
            init::run(&plan, descriptors, go, tell)
        }
        Ok(Forked::Parent(init)) => init,
        Err(error) if namespaces => return Err(which_namespace(error)),
        Err(error) => return Err(error).at(layer, "forking"),
    };
    drop((go, tell, descriptors));
    let mut family = Family {
        init,
        user: plan.outside_user.filter(|_| !namespaces),
        namespaces,
        cpu: Duration::ZERO,
        max_bytes: 0,
    };
    if let Err(failure) = admit(&plan, init, namespaces) {
        family.end(&events);
        return Err(failure);
    }
    File::from(say_go)
        .write_all(&[1])
        .at(layer, "letting the init go")?;
    family.accompany(socket, &events, reports);
    Ok(family.end(&events))
}

/// Does the part that needs a process outside: id maps, cgroups, and a high score among the victims
/// when the machine runs out of memory.
fn admit(plan: &LaunchPlan, init: i32, namespaces: bool) -> Step {
    let write = |path: &str, text: &str| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
    };
    if namespaces {
        let (uid_map, gid_map) = match plan.outside_user {
            // The init needs root's own files while it builds the root; the script gets the other.
            Some(user) => {
                let map = format!("0 0 1\n{INSIDE_ID} {user} 1\n");
                (map.clone(), map)
            }
            None => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                write(&format!("/proc/{init}/setgroups"), "deny")
                    .at(Layer::UserNamespace, "denying group changes")?;
                let map = |id: u32| format!("{INSIDE_ID} {id} 1\n");
                (map(user.as_raw()), map(group.as_raw()))
            }
        };
        write(&format!("/proc/{init}/uid_map"), &uid_map)
            .at(Layer::UserNamespace, "mapping the user")?;
        write(&format!("/proc/{init}/gid_map"), &gid_map)
            .at(Layer::UserNamespace, "mapping the group")?;
    }
    if !namespaces {
        tree::mark(&init.to_string(), tree::SCRIPT).at(Layer::Launch, "marking the script")?;
    }
    for cgroup in &plan.cgroups {
        fs::write(cgroup, init.to_string())
            .at(Layer::CgroupLimits, format!("joining {}", cgroup.display()))?;
    }
    write(&format!("/proc/{init}/oom_score_adj"), tree::FIRST_VICTIM)
        .at(Layer::Launch, "marking the script as the first victim")
}

/// Finds out which namespace was refused, as one call requests all of them at once.
fn which_namespace(error: io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or(0);
    let all = |layer| Failure::new(layer, "making the namespaces", errno);
    let Ok(Forked::Parent(probe)) = sys::fork(0).inspect(|forked| {
        if matches!(forked, Forked::Child) {
            let mut namespaces = NAMESPACES.iter();
            let refused = namespaces.position(|(flag, _)| sys::unshare(*flag).is_err());
            sys::exit_now(refused.map_or(0, |position| position as i32 + 1));
        }
    }) else {
        return all(Layer::UserNamespace);
    };
    let reaped = sys::reap(probe, true).ok().flatten();
    let code = reaped.map_or(0, |reaped| libc::WEXITSTATUS(reaped.status));
    let position = usize::try_from(code - 1).ok();
    let refused = position.and_then(|position| NAMESPACES.get(position));
    all(refused.map_or(Layer::UserNamespace, |(_, layer)| *layer))
}

/// The init and every process that descends from it.
struct Family {
    init: i32,
    /// The user that only this run has, if it shares the host's process ids.
    user: Option<u32>,
    namespaces: bool,
    cpu: Duration,
    max_bytes: u64,
}

impl Family {
    /// Forwards reports until the init has ended, or the service orders the end or has died.
    fn accompany(&mut self, socket: &UnixStream, events: &OwnedFd, reports: OwnedFd) {
        let reports = File::from(reports);
        let mut talking = true;
        loop {
            let watched = [events.as_fd(), socket.as_fd()].into_iter();
            let watched = watched.chain(talking.then(|| reports.as_fd()));
            let mut fds: Vec<PollFd<'_>> = watched
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let polled = rustix::event::poll(&mut fds, None);
            if polled.is_err_and(|error| error != rustix::io::Errno::INTR) {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.get(2) == Some(&true) {
                talking = hand_on(&reports, socket);
            }
            if ready[0] {
                init::drain(events);
                if !self.reap() || self.init == 0 {
                    while talking && hand_on(&reports, socket) {}
                    return;
                }
            }
            // The service sends only one order, by a byte or by closing the socket: end it.
            if ready[1] {
                return;
            }
        }
    }

    /// Reaps every process that has ended. False: none is left.
    fn reap(&mut self) -> bool {
        loop {
            match sys::reap(-1, false) {
                Ok(Some(reaped)) => {
                    self.cpu += reaped.cpu;
                    self.max_bytes = self.max_bytes.max(reaped.max_bytes);
                    if reaped.pid == self.init {
                        self.init = 0;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Kills every process and waits until none is left.
    fn end(&mut self, events: &OwnedFd) -> Report {
        let deadline = Instant::now() + KILL_TIME;
        let step = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let mut survivors = 0;
        loop {
            if self.init != 0 {
                // It may have ended just now; the wait below shows that.
                let _ = sys::kill(self.init, libc::SIGKILL);
            }
            if !self.namespaces {
                self.catch_orphans();
                survivors = tree::kill_descendants(self.user);
            }
            // All the dead at once: a crowd leaves thousands, and each walk over the living costs
            // as much as there are.
            if !self.reap() {
                // No children at all: the dead have left no orphans either, as this process adopts
                // them.
                survivors = 0;
                break;
            }
            if Instant::now() > deadline {
                break;
            }
            let _ = rustix::event::poll(&mut [PollFd::new(events, PollFlags::IN)], Some(&step));
            init::drain(events);
        }
        let survivors = survivors.max(u32::from(self.init != 0));
        Report::gone(self.cpu, self.max_bytes, survivors)
    }

    /// Kills our own children as they come. A process that forks and ends faster than a walk over
    /// all processes leaves its child to us each time, and is caught here.
    fn catch_orphans(&mut self) {
        const TURNS: u32 = 200;
        for _ in 0..TURNS {
            if tree::kill_children() == 0 || !self.reap() {
                return;
            }
        }
    }
}

/// Forwards the pending reports. False: no more will come.
fn hand_on(mut reports: &File, mut socket: &UnixStream) -> bool {
    let mut buffer = [0; 4 << 10];
    match reports.read(&mut buffer) {
        Ok(read) if read > 0 => socket.write_all(&buffer[..read]).is_ok(),
        _ => false,
    }
}
