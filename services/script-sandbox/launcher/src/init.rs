//! The first process inside: builds the root, starts the script, delivers files and reaps.

use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::{Mode, OFlags},
};

use crate::{
    confine, payload,
    place::{self, Areas},
    privileges, root,
    sys::{self, Forked},
};
use sandbox_protocol::{
    channel::{self, ScriptDescriptors},
    plan::{Confinement, Delivery, INPUT_DIRECTORY, LaunchPlan, Start, WORK_DIRECTORY},
    report::{At, End, Failure, Layer, Report, Step},
};

/// Runs the init and exits. `go` is readable once the supervisor has done its part, and ends early
/// if it failed; reports go to `reports`.
pub(crate) fn run(
    plan: &LaunchPlan,
    descriptors: ScriptDescriptors<OwnedFd>,
    go: OwnedFd,
    reports: OwnedFd,
) -> ! {
    let mut reports = File::from(reports);
    let mut byte = [0];
    if sys::die_with_parent().is_err() || File::from(go).read_exact(&mut byte).is_err() {
        sys::exit_now(1);
    }
    let code = match keep(plan, descriptors, &mut reports) {
        Ok(()) => 0,
        Err(failure) => {
            send(&mut reports, &Report::Failed(failure));
            1
        }
    };
    sys::exit_now(code)
}

fn send(reports: &mut File, report: &Report) {
    send_all(reports, std::slice::from_ref(report));
}

/// Sends reports at once, so that the service wakes once for the last ones. Reports that cannot be
/// sent have no reader left: the supervisor has died, and soon so will the init.
fn send_all(reports: &mut File, all: &[Report]) {
    let mut lines = Vec::new();
    let written = (all.iter()).try_for_each(|report| channel::write_report(&mut lines, report));
    if written.and_then(|()| reports.write_all(&lines)).is_err() {
        sys::exit_now(1);
    }
}

fn keep(plan: &LaunchPlan, descriptors: ScriptDescriptors<OwnedFd>, reports: &mut File) -> Step {
    let mut missing = Vec::new();
    enter(plan)?;
    privileges::give_up(plan)?;
    if sys::new_keyring().is_err() {
        // The script cannot use keys anyway: its filter answers every such call with ENOSYS.
        missing.push(Layer::Keyring);
    }
    if !confine::has_scopes() {
        missing.push(Layer::LandlockScopes);
    }
    link(plan)?;
    let areas = areas(&plan.confinement)?;
    let files = descriptors.files.try_clone();
    let mut files = UnixStream::from(files.at(Layer::Files, "holding the delivery stream")?);
    if plan.start != Start::AtOnce {
        place::deliver(&mut files, &areas)?;
    }
    // A service that has died does not collect either.
    let _ = channel::send_descriptor(&files, areas.work.as_fd());
    let events = sys::child_events().at(Layer::Launch, "watching for ended processes")?;
    let (script, listener) = start(plan, descriptors)?;
    send(reports, &Report::Started { missing });

    let mut watch = Watch {
        areas,
        files: Some(files),
        listener,
        watches_left: plan.epoll_watches.unwrap_or(0),
        alone: matches!(plan.confinement, Confinement::Namespaces(_)),
    };
    let end = watch.until_ended(script, &events, reports)?;
    if watch.alone {
        end_everybody();
    }
    let mut last = vec![Report::Ended { end }];
    if watch.alone {
        // The kernel removes the namespaces before it reports the init's end to the supervisor,
        // which can take longer than the rest. They are empty by now.
        let (cpu, max_process_bytes) = sys::usage().at(Layer::Launch, "reading what was used")?;
        last.push(Report::gone(cpu, max_process_bytes, 0));
    }
    send_all(reports, &last);
    Ok(())
}

/// Makes the links of the plan, as the script's user. Nothing of the script runs yet.
fn link(plan: &LaunchPlan) -> Step {
    let make = |(path, target): &(PathBuf, PathBuf)| {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::os::unix::fs::symlink(target, path)
    };
    let mut links = plan.links.iter();
    (links.try_for_each(make)).at(Layer::Files, "linking prepared files")
}

/// Enters the new namespaces, where there are any.
fn enter(plan: &LaunchPlan) -> Step {
    match &plan.confinement {
        Confinement::Namespaces(root) => {
            sys::unshare(libc::CLONE_NEWCGROUP).at(
                Layer::CgroupNamespace,
                "leaving the host's cgroup namespace",
            )?;
            rustix::system::sethostname(b"sandbox").at(Layer::UtsNamespace, "naming the host")?;
            sys::loopback_up().at(Layer::NetworkNamespace, "bringing up the loopback")?;
            bound_connections();
            root::build(root, plan.outside_user.is_some())
        }
        Confinement::Reduced(_) => sys::adopt_orphans().at(Layer::Launch, "adopting orphans"),
    }
}

/// Bounds the buffers of the script's TCP connections, which lead only to itself. Their memory is
/// one pool for the whole machine, and no limit of a process counts it. A host may forbid this;
/// where there is a cgroup, it bounds them as well.
fn bound_connections() {
    /// The least, the first and the largest size of a buffer, in bytes.
    const SIZES: &str = "4096 16384 65536";
    for direction in ["tcp_rmem", "tcp_wmem"] {
        // The files configure the network namespace of the process that opens them.
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/{direction}"), SIZES);
    }
}

fn areas(confinement: &Confinement) -> Step<Areas> {
    let (work, input) = match confinement {
        Confinement::Namespaces(_) => (Path::new(WORK_DIRECTORY), Path::new(INPUT_DIRECTORY)),
        Confinement::Reduced(reduced) => (reduced.work.as_path(), reduced.input.as_path()),
    };
    let open = |path: &Path| {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .at(Layer::Files, format!("opening {}", path.display()))
    };
    Ok(Areas {
        work: open(work)?,
        input: open(input)?,
    })
}

/// Forks the payload and waits until it has become the interpreter. Returns its id, and the
/// descriptor that reports calls, if the plan wants any reported.
fn start(
    plan: &LaunchPlan,
    descriptors: ScriptDescriptors<OwnedFd>,
) -> Step<(i32, Option<OwnedFd>)> {
    let (outcome, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .at(Layer::Exec, "making a pipe")?;
    let has_listener = confine::profile(plan).has_listener();
    let pair = has_listener.then(UnixStream::pair).transpose();
    let (own, payloads) = pair.at(Layer::Exec, "making a socket")?.unzip();
    match sys::fork(0).at(Layer::Exec, "forking")? {
        Forked::Child => {
            let failure = payload::become_script(plan, descriptors, payloads);
            // The reader may have gone.
            let _ = channel::write_report(&mut File::from(report), &failure);
            sys::exit_now(1)
        }
        Forked::Parent(script) => {
            drop((report, descriptors, payloads));
            let mut failure = Vec::new();
            File::from(outcome)
                .read_to_end(&mut failure)
                .at(Layer::Exec, "waiting for the interpreter")?;
            if failure.is_empty() {
                let take = |own: UnixStream| channel::take_descriptor(&own);
                let listener = own.map(take).transpose();
                return Ok((script, listener.at(Layer::Seccomp, "taking the listener")?));
            }
            let unclear = "the payload died while it reported why";
            let failure = serde_json::from_slice::<Failure>(&failure);
            Err(failure.unwrap_or_else(|_| Failure::new(Layer::Exec, unclear, 0)))
        }
    }
}

/// The state of the init while the script runs.
struct Watch {
    areas: Areas,
    files: Option<UnixStream>,
    /// Reports attempts to use a network and additions to epoll. Only the init has it: the script
    /// cannot take it from here, and its filter refuses the calls that could make another.
    listener: Option<OwnedFd>,
    /// The number of watches that the script may still add to epoll.
    watches_left: u64,
    /// Whether only the script is in the init's pid namespace.
    alone: bool,
}

impl Watch {
    /// Reaps and delivers until the script's first process has ended.
    fn until_ended(&mut self, script: i32, events: &OwnedFd, reports: &mut File) -> Step<End> {
        loop {
            if let Some(end) = reap_until(script) {
                return Ok(end);
            }
            let delivery = self.wait(events)?;
            let attempts = self.answer_calls();
            if attempts > 0 {
                // The calling process waits for an answer that never comes, except from the kernel
                // when the listener is closed. The init may be killed upon its report, and the
                // listener with it, so no process may be left to continue by then. Without a pid
                // namespace, a process that has left the group continues without a network until
                // the supervisor has found it.
                let _ = sys::kill(-script, libc::SIGKILL);
                if self.alone {
                    end_everybody();
                }
                send(reports, &Report::NetworkAttempted { attempts });
                return Ok(End::Signalled(libc::SIGKILL));
            }
            drain(events);
            if delivery && let Some(files) = &mut self.files {
                match place::deliver(files, &self.areas) {
                    Ok(Some((Delivery { files, signal, .. }, refused))) => {
                        if signal.is_none() || !files.is_empty() {
                            send(reports, &Report::Placed { refused });
                        }
                        if let Some(signal) = signal {
                            // The script leads its group and is reaped only here, so the number is
                            // still its own. An empty group receives no signal.
                            let _ = sys::kill(-script, signal);
                        }
                    }
                    Ok(None) => self.files = None,
                    Err(failure) => {
                        send(reports, &Report::Failed(failure));
                        self.files = None;
                    }
                }
            }
        }
    }

    /// Waits for an event. True: a delivery has arrived, or no more will.
    fn wait(&self, events: &OwnedFd) -> Step<bool> {
        let files = self.files.as_ref().map(AsFd::as_fd);
        let listener = self.listener.as_ref().map(AsFd::as_fd);
        let watched = [Some(events.as_fd()), files, listener]
            .into_iter()
            .flatten();
        let mut fds: Vec<PollFd<'_>> = watched
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at(Layer::Launch, "waiting"),
        }
        Ok(self.files.is_some() && fds.get(1).is_some_and(|fd| !fd.revents().is_empty()))
    }

    /// Answers the calls that wait for the listener. Returns the number of attempts to use a
    /// network among them, whose processes continue waiting. A listener without processes is
    /// closed.
    fn answer_calls(&mut self) -> u64 {
        /// The most calls per turn: a script can have many threads, and chooses when they call.
        const MOST: u64 = 10_000;
        let mut attempts = 0;
        for _ in 0..MOST {
            let Some(listener) = &self.listener else {
                break;
            };
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
            let ready = fds[0].revents();
            if polled.is_err() || ready.is_empty() {
                break;
            }
            let is_call = ready.contains(PollFlags::IN);
            match is_call.then(|| sys::take_reported_call(listener.as_fd())) {
                Some(Ok(Some(call))) if call.number == libc::SYS_epoll_ctl => {
                    let refusal = (self.watches_left == 0).then_some(libc::ENOSPC);
                    self.watches_left = self.watches_left.saturating_sub(1);
                    if sys::answer_reported_call(listener.as_fd(), &call, refusal).is_err() {
                        self.listener = None;
                    }
                }
                Some(Ok(call)) => attempts += u64::from(call.is_some()),
                Some(Err(_)) | None => self.listener = None,
            }
        }
        attempts
    }
}

/// Reaps every process that has ended; returns the end of the script, if it is among them.
fn reap_until(script: i32) -> Option<End> {
    let mut end = None;
    while let Ok(Some(reaped)) = sys::reap(-1, false) {
        if reaped.pid == script {
            end = Some(how(reaped.status));
        }
    }
    end
}

/// Reads a wait status.
pub(crate) fn how(status: i32) -> End {
    if libc::WIFSIGNALED(status) {
        End::Signalled(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

pub(crate) fn drain(events: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    while rustix::io::read(events, &mut buffer).is_ok_and(|read| read > 0) {}
}

/// Kills every other process of the pid namespace and waits until none is left.
fn end_everybody() {
    while sys::kill(-1, libc::SIGKILL).is_ok() {
        while let Ok(Some(_)) = sys::reap(-1, true) {}
    }
    while let Ok(Some(_)) = sys::reap(-1, true) {}
}
